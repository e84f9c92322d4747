#include "cluster/ring/dedup.h"

#include <algorithm>

namespace onepiece::ring {

DedupWindow::Producer& DedupWindow::Find(std::uint64_t producer_id) {
  const auto found = producers_.find(producer_id);
  if (found == producers_.end() && producers_.size() >= max_producers_) {
    const auto oldest = std::ranges::min_element(
        producers_, {}, [](const auto& entry) { return entry.second.last_use; });
    producers_.erase(oldest);
  }
  Producer& producer = found != producers_.end() ? found->second : producers_[producer_id];
  producer.last_use = ++clock_;
  return producer;
}

bool DedupWindow::IsStale(std::uint64_t producer_id, std::uint64_t incarnation) const {
  const auto found = producers_.find(producer_id);
  return incarnation <= (found != producers_.end() ? found->second.incarnation : 0);
}

bool DedupWindow::Admit(std::uint64_t producer_id, std::uint64_t incarnation) {
  Producer& producer = Find(producer_id);
  if (incarnation <= producer.incarnation) return false;
  producer.incarnation = incarnation;
  return true;
}

DedupWindow::Verdict DedupWindow::Offer(std::uint64_t producer_id, std::uint64_t message_id) {
  Producer& producer = Find(producer_id);
  const auto [entry, inserted] = producer.ids.try_emplace(message_id);
  if (!inserted) return entry->second.pending ? Verdict::kPending : Verdict::kSeen;
  entry->second.stamp = ++clock_;
  producer.order.emplace_back(message_id, entry->second.stamp);
  if (producer.order.size() > ids_per_producer_) {
    const auto [old_id, old_stamp] = producer.order.front();
    producer.order.pop_front();
    // An id that was forgotten and offered again has a younger stamp.
    const auto old = producer.ids.find(old_id);
    if (old != producer.ids.end() && old->second.stamp == old_stamp) producer.ids.erase(old);
  }
  return Verdict::kNew;
}

void DedupWindow::Settle(std::uint64_t producer_id, std::uint64_t message_id, bool good) {
  const auto producer = producers_.find(producer_id);
  if (producer == producers_.end()) return;
  const auto entry = producer->second.ids.find(message_id);
  if (entry == producer->second.ids.end()) return;
  if (good) {
    entry->second.pending = false;
  } else {
    producer->second.ids.erase(entry);
  }
}

}  // namespace onepiece::ring
