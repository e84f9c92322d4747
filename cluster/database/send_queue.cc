#include "cluster/database/send_queue.h"

namespace onepiece::database {

bool SendQueue::Add(const base::Uid& uid, bool is_urgent) {
  const bool is_new = waiting_.insert(uid).second;
  // A waiting uid that becomes urgent is queued a second time. Take skips its old place in order_.
  if (is_new || is_urgent) (is_urgent ? urgent_ : order_).push_back(uid);
  bool kept_all = true;
  while (waiting_.size() > kMaxWaiting || urgent_.size() + order_.size() > 2 * kMaxWaiting) {
    std::deque<base::Uid>& oldest = order_.empty() ? urgent_ : order_;
    if (waiting_.erase(oldest.front()) > 0) kept_all = false;
    oldest.pop_front();
  }
  return kept_all;
}

std::vector<base::Uid> SendQueue::Take(std::size_t count) {
  std::vector<base::Uid> uids;
  for (std::deque<base::Uid>* from : {&urgent_, &order_}) {
    while (uids.size() < count && !from->empty()) {
      if (waiting_.erase(from->front()) > 0) uids.push_back(from->front());
      from->pop_front();
    }
  }
  return uids;
}

}  // namespace onepiece::database
