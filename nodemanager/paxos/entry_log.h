// The part of the log that a replica keeps: consecutive slots with accepted entries.
#pragma once

#include <deque>
#include <vector>

#include "nodemanager/paxos/types.h"

namespace onepiece::paxos {

/// Consecutive slots of the log. New slots come at the end, and old ones are dropped at the
/// beginning.
///
/// Ownership: owns the entries.
/// Threading: thread-confined.
/// Invariants: the log holds every slot from first() to last(), without a gap.
class EntryLog {
 public:
  /// Takes `entries`, which ascend without a gap. If there are none, the log is empty and its first
  /// slot will be `next`.
  EntryLog(std::vector<AcceptedEntry> entries, Slot next);

  [[nodiscard]] Slot first() const { return first_; }
  [[nodiscard]] Slot last() const { return first_ + entries_.size() - 1; }
  [[nodiscard]] bool Has(Slot slot) const { return slot >= first_ && slot <= last(); }
  /// REQUIRES: Has(slot).
  [[nodiscard]] const AcceptedEntry& At(Slot slot) const { return entries_[slot - first_]; }
  /// Puts `entry` into its slot and replaces what the slot held.
  /// REQUIRES: first() <= entry.slot <= last() + 1.
  void Put(AcceptedEntry entry);
  /// Forgets all slots up to `slot`. If the log ended before `slot`, it is empty and goes on at
  /// slot + 1.
  void DropThrough(Slot slot);
  /// The entries after `slot`.
  [[nodiscard]] std::vector<AcceptedEntry> After(Slot slot) const;

 private:
  Slot first_;
  std::deque<AcceptedEntry> entries_;
};

}  // namespace onepiece::paxos
