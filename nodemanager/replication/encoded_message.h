// A message as the bytes that a stream carries. Private to this folder.
#pragma once

#include <grpcpp/support/slice.h>

#include <cstddef>
#include <mutex>

#include "nodemanager/paxos/message.h"

namespace onepiece::nodemanager {

/// A message that is encoded once, by whoever sends it first, and shared by the streams to all
/// receivers. So a batch is not copied for each follower.
///
/// Threading: thread-safe.
class EncodedMessage {
 public:
  explicit EncodedMessage(paxos::Message message);

  /// True when `message` says the same. The receivers may differ. It may return false for an equal
  /// one, but does not for the Accepts of one step.
  [[nodiscard]] bool Says(const paxos::Message& message) const;
  /// The message as a field of a v1::ReplicaEnvelope.
  const grpc::Slice& bytes() const;
  /// About as many as bytes() has. Never encodes.
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  const paxos::Message message_;
  const std::size_t size_;
  mutable std::once_flag encoded_;
  mutable grpc::Slice bytes_;
};

}  // namespace onepiece::nodemanager
