#include "nodemanager/replication/encoded_message.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "nodemanager/replication/codec.h"

namespace onepiece::nodemanager {
namespace {

std::size_t BytesOf(const paxos::Message& message) {
  std::size_t bytes = 128;
  if (const auto* accept = std::get_if<paxos::Accept>(&message.body)) {
    for (const paxos::LogEntry& entry : accept->entries) bytes += entry.bytes();
  } else if (const auto* promise = std::get_if<paxos::Promise>(&message.body)) {
    for (const paxos::AcceptedEntry& accepted : promise->accepted) bytes += accepted.entry.bytes();
  } else if (const auto* install = std::get_if<paxos::InstallSnapshot>(&message.body)) {
    bytes += install->snapshot->state->size();
  }
  return bytes;
}

bool AreSame(const paxos::Accept& a, const paxos::Accept& b) {
  return a.ballot == b.ballot && a.first == b.first && a.chosen == b.chosen && a.sent == b.sent &&
         a.agreed == b.agreed &&
         std::equal(a.entries.begin(), a.entries.end(), b.entries.begin(), b.entries.end());
}

}  // namespace

EncodedMessage::EncodedMessage(paxos::Message message)
    : message_(std::move(message)), size_(BytesOf(message_)) {}

bool EncodedMessage::Says(const paxos::Message& message) const {
  const auto* mine = std::get_if<paxos::Accept>(&message_.body);
  const auto* other = std::get_if<paxos::Accept>(&message.body);
  return mine != nullptr && other != nullptr && AreSame(*mine, *other);
}

const grpc::Slice& EncodedMessage::bytes() const {
  std::call_once(encoded_, [this] {
    // An envelope with one message is what the message is as a field. Envelopes that are put one
    // after another are parsed as one with all their messages.
    v1::ReplicaEnvelope envelope;
    *envelope.add_messages() = EncodeMessage(message_);
    bytes_ = grpc::Slice(envelope.SerializeAsString());
  });
  return bytes_;
}

}  // namespace onepiece::nodemanager
