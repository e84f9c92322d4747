// SendQueue: the jobs that a peer has yet to be sent.
#pragma once

#include <cstddef>
#include <deque>
#include <unordered_set>
#include <vector>

#include "cluster/base/ids.h"

namespace onepiece::database {

/// Uids in order of arrival, each once, urgent ones first. It holds at most kMaxWaiting.
///
/// Threading: externally synchronised.
class SendQueue {
 public:
  static constexpr std::size_t kMaxWaiting = 100'000;

  /// Returns false when another uid was dropped to make room.
  bool Add(const base::Uid& uid, bool is_urgent);
  /// Removes and returns the first `count` uids.
  std::vector<base::Uid> Take(std::size_t count);
  [[nodiscard]] bool contains(const base::Uid& uid) const { return waiting_.contains(uid); }
  [[nodiscard]] std::size_t size() const { return waiting_.size(); }

 private:
  // They may still hold uids that are no longer in waiting_. Take skips these.
  std::deque<base::Uid> urgent_, order_;
  std::unordered_set<base::Uid> waiting_;
};

}  // namespace onepiece::database
