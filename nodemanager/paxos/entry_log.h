// The slots that a replica keeps: consecutive, accepted, the older ones chosen.
#pragma once

#include <deque>
#include <vector>

#include "nodemanager/paxos/types.h"

namespace onepiece::paxos {

/// Ownership  Owns the entries.
/// Threading  Thread-confined.
/// Invariant  Slots first()..last() are there, without a gap.
class EntryLog {
 public:
  /// `entries` ascend without a gap; empty ones leave a log that goes on at `next`.
  EntryLog(std::vector<AcceptedEntry> entries, Slot next);

  [[nodiscard]] Slot first() const { return first_; }
  [[nodiscard]] Slot last() const { return first_ + entries_.size() - 1; }
  [[nodiscard]] bool Has(Slot slot) const { return slot >= first_ && slot <= last(); }
  /// REQUIRES: Has(slot).
  [[nodiscard]] const AcceptedEntry& At(Slot slot) const { return entries_[slot - first_]; }
  /// Replaces what its slot held. REQUIRES: first() <= slot <= last() + 1.
  void Put(AcceptedEntry entry);
  /// Forgets slots <= `slot`. A log that ends before goes on at slot + 1.
  void DropThrough(Slot slot);
  /// The entries after `slot`.
  [[nodiscard]] std::vector<AcceptedEntry> After(Slot slot) const;

 private:
  Slot first_;
  std::deque<AcceptedEntry> entries_;
};

}  // namespace onepiece::paxos
