// Translates what replicas say and keep into protobuf (consensus.proto) and back.
//
// Decoding trusts nothing. It refuses a message that no correct replica sends with INVALID_ARGUMENT
// (BAD_MESSAGE), which names the field. Slots and rounds are bounded, so that sums of them cannot
// overflow.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "nodemanager/paxos/message.h"
#include "onepiece/v1/consensus.pb.h"

namespace onepiece::nodemanager {

/// The most entries of one message. A leader's window and a recovery stay far below.
inline constexpr int kMaxEntries = 8192;
inline constexpr std::size_t kMaxPayloadBytes = 8 << 20;  ///< The size of one command.
/// The size of a state on the network, below rpc::kMaxMessageBytes. A state on a disk may have any
/// size.
inline constexpr std::size_t kMaxSnapshotBytes = 64 << 20;
inline constexpr std::size_t kMaxNameBytes = 255;  ///< For a seat's name, and for its address.
inline constexpr paxos::Slot kMaxSlot{std::uint64_t{1} << 62};
inline constexpr std::uint64_t kMaxRound = std::uint64_t{1} << 62;

// All functions are thread-safe; none blocks.

/// Encodes the message without `from` and `to`, because a stream has one sender and one receiver.
v1::ReplicaMessage EncodeMessage(const paxos::Message& message);
/// Decodes a message, and moves the payloads out of it. It sets `from` and `to` as given.
absl::StatusOr<paxos::Message> DecodeMessage(v1::ReplicaMessage&& message, paxos::ReplicaId from,
                                             paxos::ReplicaId to);

void EncodeEntry(const paxos::LogEntry& entry, v1::LogEntry* out);
absl::StatusOr<paxos::LogEntry> DecodeEntry(v1::LogEntry&& entry);

void EncodeSeats(const paxos::Members& members, google::protobuf::RepeatedPtrField<v1::Seat>* out);
/// Refuses seats whose names or occupants are not unique. An empty list is allowed.
absl::StatusOr<paxos::Members> DecodeSeats(
    const google::protobuf::RepeatedPtrField<v1::Seat>& seats);

void EncodeSnapshot(const paxos::Snapshot& snapshot, v1::LogSnapshot* out);
/// Decodes a snapshot. Its state is never null.
absl::StatusOr<paxos::Snapshot> DecodeSnapshot(v1::LogSnapshot&& snapshot);

}  // namespace onepiece::nodemanager
