#include "nodemanager/service/routing_history.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cluster/node/routing_delta.h"
#include "grpcpp/support/slice.h"

namespace onepiece::nodemanager {

grpc::ByteBuffer ToBytes(const google::protobuf::MessageLite& message) {
  // The slice takes the string over, so the bytes are not copied.
  auto* const bytes = new std::string(message.SerializeAsString());
  const grpc::Slice slice(
      bytes->data(), bytes->size(), [](void* held) { delete static_cast<std::string*>(held); },
      bytes);
  return {&slice, 1};
}

void RoutingHistory::Update(v1::RoutingTable table) {
  whole_.reset();
  if (!table_ || table.epoch() <= table_->epoch()) {
    deltas_.clear();
    delta_bytes_ = 0;
  } else {
    const v1::RoutingTable delta = node::MakeRoutingDelta(*table_, table);
    deltas_.push_back({.from = table_->epoch(),
                       .to = table.epoch(),
                       .bytes = ToBytes(delta),
                       .size = delta.ByteSizeLong()});
    delta_bytes_ += deltas_.back().size;
    const std::size_t limit = table.ByteSizeLong();
    for (; delta_bytes_ > limit && !deltas_.empty(); deltas_.pop_front())
      delta_bytes_ -= deltas_.front().size;
  }
  table_ = std::move(table);
}

RoutingHistory::Message RoutingHistory::Next(std::uint64_t known) {
  if (known == 0) return Whole();
  if (known == table_->epoch()) {
    v1::RoutingTable same;
    same.set_epoch(known);
    same.set_base_epoch(known);
    same.set_workflow_set(table_->workflow_set());
    return {ToBytes(same), known};
  }
  // Most watchers have the table before the newest one.
  const auto delta = std::find_if(deltas_.rbegin(), deltas_.rend(),
                                  [&](const Delta& each) { return each.from == known; });
  if (delta == deltas_.rend()) return Whole();
  return {delta->bytes, delta->to};
}

RoutingHistory::Message RoutingHistory::Whole() {
  if (!whole_) whole_ = ToBytes(*table_);
  return {*whole_, table_->epoch(), true};
}

}  // namespace onepiece::nodemanager
