#include "nodemanager/paxos/entry_log.h"

#include <algorithm>
#include <iterator>

#include "cluster/base/check.h"

namespace onepiece::paxos {

EntryLog::EntryLog(std::vector<AcceptedEntry> entries, Slot next)
    : first_(entries.empty() ? next : entries.front().slot),
      entries_(std::make_move_iterator(entries.begin()), std::make_move_iterator(entries.end())) {
  for (std::size_t i = 0; i < entries_.size(); ++i) ONEPIECE_CHECK(entries_[i].slot == first_ + i);
}

void EntryLog::Put(AcceptedEntry entry) {
  ONEPIECE_CHECK(entry.slot >= first_ && entry.slot <= last() + 1);
  if (entry.slot == last() + 1) {
    entries_.push_back(std::move(entry));
  } else {
    entries_[entry.slot - first_] = std::move(entry);
  }
}

void EntryLog::DropThrough(Slot slot) {
  if (slot < first_) return;
  const std::size_t count = std::min<std::size_t>(slot - first_ + 1, entries_.size());
  entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(count));
  first_ = slot + 1;
}

std::vector<AcceptedEntry> EntryLog::After(Slot slot) const {
  if (slot >= last()) return {};
  const Slot from = std::max(slot + 1, first_);
  return {entries_.begin() + static_cast<std::ptrdiff_t>(from - first_), entries_.end()};
}

}  // namespace onepiece::paxos
