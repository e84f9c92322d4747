// A table of strangers that strangers cannot make grow without end.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>

#include "cluster/base/clock.h"

namespace onepiece::rpc {

/// Entries by name. When the table is full, entries that say nothing (Entry::IsIdle(now)) make
/// room. If none does, all further names share one entry. The caller synchronises.
template <typename Entry>
class BoundedTable {
 public:
  explicit BoundedTable(std::size_t most) : most_(most) {}

  /// The entry of `name`, a new one if need be. It stays where it is until the next call.
  Entry& Of(const std::string& name, base::MonotonicTime now) {
    const auto found = entries_.find(name);
    if (found != entries_.end()) return found->second;
    if (entries_.size() >= most_ && now >= next_sweep_) {
      std::erase_if(entries_, [now](const auto& entry) { return entry.second.IsIdle(now); });
      next_sweep_ = now + kSweepPeriod;
    }
    return entries_.size() >= most_ ? others_ : entries_[name];
  }
  /// Null when there is none of its own.
  Entry* Find(const std::string& name) {
    const auto found = entries_.find(name);
    return found == entries_.end() ? nullptr : &found->second;
  }
  /// What names share that have no entry of their own.
  Entry& others() { return others_; }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

 private:
  // A sweep looks at every entry, so a flood of names pays for one a second.
  static constexpr base::Duration kSweepPeriod = std::chrono::seconds(1);

  const std::size_t most_;
  base::MonotonicTime next_sweep_ = base::MonotonicTime::min();
  std::unordered_map<std::string, Entry> entries_;
  Entry others_;
};

}  // namespace onepiece::rpc
