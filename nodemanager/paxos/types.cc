#include "nodemanager/paxos/types.h"

#include <algorithm>

namespace onepiece::paxos {

const Seat* Members::Find(ReplicaId replica) const {
  if (replica == ReplicaId{}) return nullptr;  // Only vacant seats have this id.
  for (const Seat& seat : seats) {
    if (seat.replica == replica) return &seat;
  }
  return nullptr;
}

const Seat* Members::FindName(const std::string& name) const {
  for (const Seat& seat : seats) {
    if (seat.name == name) return &seat;
  }
  return nullptr;
}

std::size_t Members::voters() const {
  return static_cast<std::size_t>(std::count_if(
      seats.begin(), seats.end(), [](const Seat& s) { return s.replica != ReplicaId{}; }));
}

bool operator==(const LogEntry& a, const LogEntry& b) {
  if (a.kind != b.kind || a.version != b.version || a.members != b.members) return false;
  if (a.payload == b.payload) return true;
  return a.payload && b.payload && *a.payload == *b.payload;
}

}  // namespace onepiece::paxos
