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
  next_.clear();
  if (!tables_.empty() && table.epoch() <= tables_.front().epoch()) tables_.clear();
  tables_.push_front(std::move(table));
  if (tables_.size() > kKept) tables_.pop_back();
}

RoutingHistory::Message RoutingHistory::Next(std::uint64_t known) {
  const v1::RoutingTable& newest = tables_.front();
  const auto from = std::ranges::find(tables_, known, &v1::RoutingTable::epoch);
  if (known == 0 || from == tables_.end()) return Whole();
  const auto [made, is_new] = next_.try_emplace(known);
  if (is_new) made->second = ToBytes(node::MakeRoutingDelta(*from, newest));
  if (made->second.Length() >= Whole().bytes.Length()) return Whole();
  return {made->second, newest.epoch()};
}

RoutingHistory::Message RoutingHistory::Whole() {
  const auto [made, is_new] = next_.try_emplace(0);
  if (is_new) made->second = ToBytes(tables_.front());
  return {made->second, tables_.front().epoch(), true};
}

}  // namespace onepiece::nodemanager
