#include "tests/nodemanager/paxos/sim/toy_state.h"

#include <cstring>

#include "cluster/base/check.h"
#include "cluster/base/generation.h"

namespace onepiece::paxos::sim {
namespace {

/// Stands in place of a client in the command that a new generation begins with.
constexpr std::uint32_t kOperator = 0xffffffff;

template <typename T>
void Append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T Take(const std::string& bytes, std::size_t& at) {
  ONEPIECE_CHECK(at + sizeof(T) <= bytes.size());
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  at += sizeof(T);
  return value;
}

}  // namespace

std::shared_ptr<const std::string> ToyState::Encode(const Request& request) {
  auto bytes = std::make_shared<std::string>();
  bytes->reserve(kCommandBytes);
  Append(*bytes, request.client);
  Append(*bytes, request.number);
  Append(*bytes, static_cast<std::uint32_t>(request.kind));
  Append(*bytes, request.key);
  Append(*bytes, request.expected);
  Append(*bytes, request.written);
  return bytes;
}

std::shared_ptr<const std::string> ToyState::EncodeGeneration() {
  return Encode({.client = kOperator});
}

bool ToyState::IsGeneration(const std::string& command) {
  std::size_t at = 0;
  return Take<std::uint32_t>(command, at) == kOperator;
}

void ToyState::BeginGeneration() {
  if (epoch_ != 0) hash_ -= Mix(3, epoch_);
  epoch_ = base::FirstEpochOf(base::GenerationOf(epoch_) + 1);
  hash_ += Mix(3, epoch_);
}

Request ToyState::Decode(const std::string& command) {
  std::size_t at = 0;
  Request request;
  request.client = Take<std::uint32_t>(command, at);
  request.number = Take<std::uint32_t>(command, at);
  request.kind = static_cast<Operation::Kind>(Take<std::uint32_t>(command, at));
  request.key = Take<std::uint32_t>(command, at);
  request.expected = Take<std::uint64_t>(command, at);
  request.written = Take<std::uint64_t>(command, at);
  return request;
}

Result ToyState::Apply(const Request& request, Retries retries) {
  if (sessions_.size() <= request.client) sessions_.resize(request.client + 1);
  Session& session = sessions_[request.client];
  if (retries == Retries::kRemembered && request.number <= session.number) return session.result;
  if (session.number != 0) hash_ -= HashOf(request.client, session);
  std::uint64_t& value = registers_[request.key % kKeys];
  session = {request.number, {value, epoch_ + 1}};
  hash_ += HashOf(request.client, session);
  hash_ += Mix(3, epoch_ + 1) - (epoch_ == 0 ? 0 : Mix(3, epoch_));
  ++epoch_;
  if (request.kind == Operation::Kind::kWrite || value == request.expected) {
    if (value != 0) hash_ -= HashOf(request.key, value);
    value = request.written;
    hash_ += HashOf(request.key, value);
  }
  return session.result;
}

std::uint32_t ToyState::last_number(std::uint32_t client) const {
  return client < sessions_.size() ? sessions_[client].number : 0;
}

std::shared_ptr<const std::string> ToyState::Save() const {
  auto bytes = std::make_shared<std::string>();
  bytes->reserve(16 + sizeof(registers_) + sessions_.size() * 24);
  Append(*bytes, epoch_);
  Append(*bytes, registers_);
  Append(*bytes, static_cast<std::uint32_t>(sessions_.size()));
  for (const Session& session : sessions_) {
    Append(*bytes, session.number);
    Append(*bytes, session.result.before);
    Append(*bytes, session.result.epoch);
  }
  return bytes;
}

ToyState ToyState::Load(const std::string& bytes) {
  ToyState state;
  if (bytes.empty()) return state;
  std::size_t at = 0;
  state.epoch_ = Take<std::uint64_t>(bytes, at);
  state.registers_ = Take<std::array<std::uint64_t, kKeys>>(bytes, at);
  state.sessions_.resize(Take<std::uint32_t>(bytes, at));
  for (Session& session : state.sessions_) {
    session.number = Take<std::uint32_t>(bytes, at);
    session.result.before = Take<std::uint64_t>(bytes, at);
    session.result.epoch = Take<std::uint64_t>(bytes, at);
  }
  if (state.epoch_ != 0) state.hash_ += Mix(3, state.epoch_);
  for (std::uint32_t key = 0; key < kKeys; ++key) {
    if (state.registers_[key] != 0) state.hash_ += HashOf(key, state.registers_[key]);
  }
  for (std::uint32_t client = 0; client < state.sessions_.size(); ++client) {
    const Session& session = state.sessions_[client];
    if (session.number != 0) state.hash_ += HashOf(client, session);
  }
  return state;
}

}  // namespace onepiece::paxos::sim
