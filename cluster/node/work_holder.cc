#include "cluster/node/work_holder.h"

#include <algorithm>

namespace onepiece::node {

v1::WorkHolder HolderAt(const Routing& table, const message::Header& header,
                        const v1::Endpoint& endpoint, std::uint32_t attempt) {
  v1::WorkHolder holder;
  holder.set_node_id(endpoint.node_id());
  holder.set_incarnation(endpoint.incarnation());
  holder.set_attempt(attempt);
  holder.set_from(header.from);
  holder.set_run(header.run);
  holder.set_keeper(header.keeper);
  holder.set_keeper_incarnation(header.keeper_incarnation);
  // The sender's table may be newer than this node's, which then need not name the holder yet.
  holder.set_routing_epoch(std::max(table.epoch(), header.routing_epoch));
  const bool is_result = header.kind == message::Kind::kResult;
  const std::string& stage = is_result ? header.from : header.stage;
  holder.set_stage(stage);
  const int index = table.StageIndex(header.app, stage).value_or(0);
  holder.set_stage_index(is_result ? index + 1 : index);
  if (is_result) return holder;
  // The last stage has no successors, but it hands its result on to a database.
  const auto next = table.GraphOf(header.app).Successors(header.stage).size();
  holder.set_successors(std::max(1, static_cast<int>(next)));
  return holder;
}

v1::WorkHolder HolderAt(const Routing& table, const message::Header& header,
                        const Delivered& delivered) {
  v1::WorkHolder holder = HolderAt(table, header, delivered.endpoint, delivered.attempt);
  holder.set_routing_epoch(delivered.routing_epoch);
  return holder;
}

}  // namespace onepiece::node
