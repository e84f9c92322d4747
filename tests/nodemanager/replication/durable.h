// Makes the values that a Store keeps, and describes them as text, for tests.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "nodemanager/replication/codec.h"
#include "nodemanager/replication/store.h"

namespace onepiece::nodemanager {

/// The replica that proposes in these tests, and has the first seat.
inline constexpr paxos::ReplicaId kProposer{7};

inline paxos::AcceptedEntry CommandAt(paxos::Slot slot, std::uint64_t round, std::string payload) {
  paxos::AcceptedEntry accepted{slot, {round, kProposer}, {}};
  accepted.entry.kind = paxos::LogEntry::Kind::kCommand;
  accepted.entry.version = 1;
  accepted.entry.payload = std::make_shared<const std::string>(std::move(payload));
  return accepted;
}

inline paxos::Members ThreeSeats() {
  return {{{"nodemanager-1", "localhost:1", kProposer},
           {"nodemanager-2", "localhost:2", paxos::ReplicaId{8}},
           {"new", "", {}}}};
}

inline std::shared_ptr<const paxos::Snapshot> SnapshotAt(paxos::Slot index, std::string state) {
  paxos::Snapshot snapshot{index, ThreeSeats(), nullptr};
  snapshot.state = std::make_shared<const std::string>(std::move(state));
  return std::make_shared<const paxos::Snapshot>(std::move(snapshot));
}

inline const ReplicaIdentity kIdentity = {"cluster", "nodemanager-1",
                                          paxos::ReplicaId{0xfedcba9876543210}, GroupId(5)};

/// The state of a new replica in a group of ThreeSeats().
inline paxos::DurableState NewState() {
  return {.replica = kIdentity.replica, .snapshot = *SnapshotAt({}, "")};
}

/// The state as a text that is short enough to read. Equal states give equal texts.
inline std::string Describe(const paxos::DurableState& state) {
  v1::LogSnapshot snapshot;
  EncodeSnapshot(state.snapshot, &snapshot);
  std::string text =
      absl::StrCat("replica ", state.replica.value, " promised ", state.promised.round, "/",
                   state.promised.replica.value, " chosen ", state.chosen.value, " snapshot ",
                   snapshot.ShortDebugString(), " log");
  for (const paxos::AcceptedEntry& accepted : state.log) {
    v1::LogEntry entry;
    EncodeEntry(accepted.entry, &entry);
    absl::StrAppend(&text, " ", accepted.slot.value, "@", accepted.ballot.round, "/",
                    accepted.ballot.replica.value, "{", entry.ShortDebugString(), "}");
  }
  return text;
}

}  // namespace onepiece::nodemanager
