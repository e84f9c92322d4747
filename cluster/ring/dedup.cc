#include "cluster/ring/dedup.h"

#include <algorithm>

namespace onepiece::ring {

DedupWindow::Producer& DedupWindow::Find(ProducerId producer_id) {
  auto found = producers_.find(producer_id);
  if (found == producers_.end()) {
    if (producers_.size() >= max_producers_) {
      producers_.erase(std::ranges::min_element(
          producers_, {}, [](const auto& entry) { return entry.second->last_use; }));
    }
    found = producers_.emplace(producer_id, std::make_unique<Producer>()).first;
  }
  Producer& producer = *found->second;
  producer.last_use = ++clock_;
  return producer;
}

bool DedupWindow::IsStale(ProducerId producer_id, Incarnation incarnation) const {
  const auto found = producers_.find(producer_id);
  return incarnation <= (found != producers_.end() ? found->second->incarnation : Incarnation());
}

bool DedupWindow::Enroll(ProducerId producer_id, Incarnation incarnation) {
  Producer& producer = Find(producer_id);
  if (incarnation <= producer.incarnation) return false;
  producer.incarnation = incarnation;
  return true;
}

DedupWindow::Verdict DedupWindow::Offer(ProducerId producer_id, std::uint64_t message_id) {
  Producer& producer = Find(producer_id);
  const auto [entry, inserted] = producer.ids.try_emplace(message_id);
  if (!inserted) return entry->second.pending ? Verdict::kPending : Verdict::kSeen;
  entry->second.stamp = ++clock_;
  const std::pair newest(message_id, entry->second.stamp);
  if (producer.order.size() < ids_per_producer_) {
    producer.order.push_back(newest);
    return Verdict::kNew;
  }
  const auto [old_id, old_stamp] = std::exchange(producer.order[producer.oldest], newest);
  producer.oldest = (producer.oldest + 1) % ids_per_producer_;
  // If the old id was forgotten and offered again, its entry has a younger stamp and must stay.
  const auto old = producer.ids.find(old_id);
  if (old != producer.ids.end() && old->second.stamp == old_stamp) producer.ids.erase(old);
  return Verdict::kNew;
}

void DedupWindow::Settle(ProducerId producer_id, std::uint64_t message_id, bool good) {
  const auto producer = producers_.find(producer_id);
  if (producer == producers_.end()) return;
  auto& ids = producer->second->ids;
  const auto entry = ids.find(message_id);
  if (entry == ids.end()) return;
  if (good) {
    entry->second.pending = false;
  } else {
    ids.erase(entry);
  }
}

}  // namespace onepiece::ring
