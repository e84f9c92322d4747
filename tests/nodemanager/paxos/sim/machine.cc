#include "tests/nodemanager/paxos/sim/machine.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string_view>

#include "cluster/base/canonical_bytes.h"
#include "cluster/base/check.h"
#include "cluster/base/generation.h"
#include "tests/nodemanager/state/builders.h"

namespace onepiece::paxos::sim {
namespace {

/// One slot in so many has the real state in its hash.
constexpr std::uint64_t kHashEvery = 8;

// In front of the real state machine's command stands the version under which it was proposed.
void AppendReal(std::string& bytes, std::uint32_t version, const v1::Command& command) {
  bytes.append(reinterpret_cast<const char*>(&version), sizeof(version));
  bytes += base::CanonicalBytes(command);
}

}  // namespace

Machine Machine::Load(bool real, const std::string* bytes) {
  Machine machine;
  if (real) machine.real_.emplace();
  if (bytes == nullptr || bytes->empty()) return machine;
  if (!real) {
    machine.toy_ = ToyState::Load(*bytes);
    return machine;
  }
  std::uint32_t size = 0;
  std::memcpy(&size, bytes->data(), sizeof(size));
  machine.toy_ = ToyState::Load(bytes->substr(sizeof(size), size));
  const std::string_view rest = std::string_view(*bytes).substr(sizeof(size) + size);
  if (!machine.real_->Restore(rest).ok() || machine.real_->Serialize() != rest)
    machine.wrong_ = "the state differs after it was saved and restored";
  return machine;
}

std::shared_ptr<const std::string> Machine::Save() const {
  const auto toy = toy_.Save();
  if (!real_) return toy;
  const auto size = static_cast<std::uint32_t>(toy->size());
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof(size));
  return std::make_shared<const std::string>(bytes + *toy + real_->Serialize());
}

std::shared_ptr<const std::string> Machine::Encode(const Request& request, std::uint32_t version,
                                                   Random& random) const {
  const auto toy = ToyState::Encode(request);
  if (!real_) return toy;
  std::mt19937_64 draws(random.Next());
  v1::Command command;
  if (real_->cluster_id().empty()) {
    command.mutable_initialize()->set_cluster_id("sim");
    command.mutable_initialize()->set_cluster_secret(std::string(32, 's'));
  } else if (draws() % 50 == 0) {
    command.mutable_raise_feature_level()->set_level(version + 1);
  } else {
    command = nodemanager::RandomCommand(draws, *real_);
  }
  std::string bytes = *toy;
  // The history's programs of version 1 and 2 know what programs of version 2 and 3 know.
  AppendReal(bytes, std::min(real_->VersionLimit(command), version + 1), command);
  return std::make_shared<const std::string>(std::move(bytes));
}

std::shared_ptr<const std::string> Machine::EncodeGeneration() const {
  const auto toy = ToyState::EncodeGeneration();
  if (!real_) return toy;
  v1::Command command;
  v1::BeginGeneration& begin = *command.mutable_begin_generation();
  begin.set_generation(base::GenerationOf(real_->epoch()) + 1);
  begin.set_cause("recover");
  std::string bytes = *toy;
  AppendReal(bytes, nodemanager::kCommandVersion, command);
  return std::make_shared<const std::string>(std::move(bytes));
}

std::optional<Machine::Done> Machine::Apply(const std::string& payload, WorldMutant mutant) {
  const bool generation = ToyState::IsGeneration(payload);
  if (real_) ApplyReal(std::string_view(payload).substr(ToyState::kCommandBytes));
  if (generation) {
    if (mutant != WorldMutant::kSameGeneration) toy_.BeginGeneration();
    return std::nullopt;
  }
  const Request request = ToyState::Decode(payload);
  return Done{request,
              toy_.Apply(request, mutant == WorldMutant::kForgetRetries ? Retries::kForgotten
                                                                        : Retries::kRemembered)};
}

void Machine::ApplyReal(std::string_view bytes) {
  std::uint32_t version = 0;
  ONEPIECE_CHECK(bytes.size() >= sizeof(version));
  std::memcpy(&version, bytes.data(), sizeof(version));
  v1::Command command;
  ONEPIECE_CHECK(command.ParseFromString(std::string(bytes.substr(sizeof(version)))));
  const std::uint64_t revision = real_->revision(), epoch = real_->epoch();
  const v1::CommandResult result = real_->Apply(real_->applied_index() + 1, command, version);
  if (real_->revision() < revision || real_->epoch() < epoch) wrong_ = "a counter has fallen";
  if (command.has_begin_generation() &&
      (result.code() != 0 || base::GenerationOf(real_->epoch()) <= base::GenerationOf(epoch)))
    wrong_ = "no new generation begins: " + result.message();
}

std::uint64_t Machine::HashAt(Slot slot) const {
  if (!real_ || slot.value % kHashEvery != 0) return toy_.hash();
  return Mix(toy_.hash(), std::hash<std::string>()(real_->Serialize()));
}

}  // namespace onepiece::paxos::sim
