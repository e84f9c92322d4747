// What replicas say and keep, as protobuf (consensus.proto) and back.
//
// Decoding trusts nothing: a message that no correct replica sends is INVALID_ARGUMENT
// (BAD_MESSAGE) and names the field. Slots and rounds are bounded so that sums of them cannot
// overflow.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "nodemanager/paxos/message.h"
#include "onepiece/v1/consensus.pb.h"

namespace onepiece::nodemanager {

/// Of one message; a leader's window and a recovery stay far below.
inline constexpr int kMaxEntries = 8192;
inline constexpr std::size_t kMaxPayloadBytes = 8 << 20;  ///< Of one command.
/// Of a state on its way, below rpc::kMaxMessageBytes. What a disk holds is read whatever its size.
inline constexpr std::size_t kMaxSnapshotBytes = 64 << 20;
inline constexpr std::size_t kMaxNameBytes = 255;  ///< Of a seat's name, and of its address.
inline constexpr std::uint64_t kMaxSlot = std::uint64_t{1} << 62;
inline constexpr std::uint64_t kMaxRound = std::uint64_t{1} << 62;

// All functions are thread-safe; none blocks.

/// `from` and `to` are not part of it: a stream has one sender and one receiver.
v1::ReplicaMessage EncodeMessage(const paxos::Message& message);
/// Takes payloads out of `message`. `from` and `to` are filled in as given.
absl::StatusOr<paxos::Message> DecodeMessage(v1::ReplicaMessage&& message, paxos::ReplicaId from,
                                             paxos::ReplicaId to);

void EncodeEntry(const paxos::Entry& entry, v1::LogEntry* out);
absl::StatusOr<paxos::Entry> DecodeEntry(v1::LogEntry&& entry);

void EncodeSeats(const paxos::Members& members, google::protobuf::RepeatedPtrField<v1::Seat>* out);
/// Names and occupants must be unique; no seats at all are allowed.
absl::StatusOr<paxos::Members> DecodeSeats(
    const google::protobuf::RepeatedPtrField<v1::Seat>& seats);

void EncodeSnapshot(const paxos::Snapshot& snapshot, v1::LogSnapshot* out);
/// The state of the result is never null.
absl::StatusOr<paxos::Snapshot> DecodeSnapshot(v1::LogSnapshot&& snapshot);

}  // namespace onepiece::nodemanager
