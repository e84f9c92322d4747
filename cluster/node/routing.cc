#include "cluster/node/routing.h"

#include <algorithm>
#include <span>

#include "cluster/base/split_mix64.h"
#include "cluster/node/database_order.h"

namespace onepiece::node {
namespace {

std::vector<v1::Endpoint> ToVector(const google::protobuf::RepeatedPtrField<v1::Endpoint>& field) {
  return {field.begin(), field.end()};
}

}  // namespace

Routing::Routing(v1::RoutingTable table) : table_(std::move(table)) {
  for (int i = 0; i < table_.workflows_size(); ++i) {
    workflows_.emplace(table_.workflows(i).app_id(), i);
    graphs_.emplace_back(table_.workflows(i));
  }
  for (const v1::Route& route : table_.routes()) {
    std::vector<v1::Endpoint> instances = ToVector(route.instances());
    std::ranges::sort(instances, {}, &v1::Endpoint::node_id);
    instances_[{route.app_id(), route.stage()}] = std::move(instances);
  }
  for (const v1::Endpoint& database : table_.databases())
    database_places_.push_back(PlaceOf(database));
  for (const v1::Endpoint& node : table_.alive())
    alive_.emplace(node.node_id(), node.incarnation());
}

const v1::Workflow* Routing::FindWorkflow(std::string_view app) const {
  const auto found = workflows_.find(app);
  return found == workflows_.end() ? nullptr : &table_.workflows(found->second);
}

std::optional<int> Routing::StageIndex(std::string_view app, std::string_view stage) const {
  const v1::Workflow* workflow = FindWorkflow(app);
  if (workflow == nullptr) return std::nullopt;
  for (int i = 0; i < workflow->stages_size(); ++i) {
    if (workflow->stages(i).stage() == stage) return i;
  }
  return std::nullopt;
}

const workflow::Graph& Routing::GraphOf(std::string_view app) const {
  static const workflow::Graph none;
  const auto found = workflows_.find(app);
  return found == workflows_.end() ? none : graphs_[static_cast<std::size_t>(found->second)];
}

std::span<const v1::Endpoint> Routing::Instances(std::string_view app,
                                                 std::string_view stage) const {
  const auto found = instances_.find({std::string(app), std::string(stage)});
  if (found == instances_.end()) return {};
  return found->second;
}

std::optional<v1::Endpoint> Routing::MeetingPoint(std::string_view app, std::string_view stage,
                                                  const base::Uid& uid,
                                                  std::string_view without) const {
  const v1::Endpoint* best = nullptr;
  std::uint64_t best_weight = 0;
  for (const v1::Endpoint& instance : Instances(app, stage)) {
    if (instance.node_id() == without) continue;
    const std::uint64_t weight = RendezvousWeight(uid, instance.node_id());
    // Instances are sorted, so every node takes the same one of two with equal weights: the first.
    if (best != nullptr && weight <= best_weight) continue;
    best = &instance;
    best_weight = weight;
  }
  if (best == nullptr) return std::nullopt;
  return *best;
}

bool Routing::IsAlive(std::string_view node_id, std::uint64_t incarnation) const {
  const auto found = alive_.find(node_id);
  return found != alive_.end() && found->second == incarnation;
}

bool Routing::IsOver(std::string_view node_id, std::uint64_t incarnation, std::uint64_t epoch,
                     std::string_view workflow_set) const {
  const auto found = alive_.find(node_id);
  if (found != alive_.end()) return found->second > incarnation;
  return table_.epoch() > 0 && table_.epoch() >= epoch && table_.workflow_set() == workflow_set;
}

std::vector<v1::Endpoint> Routing::DatabasesFor(const base::Uid& uid) const {
  std::vector<v1::Endpoint> databases;
  for (const std::size_t place : DatabaseOrder(uid, database_places_, database_places_.size()))
    databases.push_back(table_.databases(static_cast<int>(place)));
  return databases;
}

std::vector<v1::Endpoint> Routing::Databases() const { return ToVector(table_.databases()); }

std::optional<v1::Endpoint> Routing::FindDatabase(std::string_view node_id) const {
  const auto found = std::ranges::find(table_.databases(), node_id, &v1::Endpoint::node_id);
  if (found == table_.databases().end()) return std::nullopt;
  return *found;
}

std::vector<v1::Endpoint> Routing::Proxies() const { return ToVector(table_.proxies()); }

std::uint64_t RendezvousWeight(const base::Uid& uid, std::string_view node_id) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a offset basis and prime.
  const auto add = [&hash](std::uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (const std::uint8_t byte : uid.bytes()) add(byte);
  for (const char byte : node_id) add(static_cast<std::uint8_t>(byte));
  // FNV leaves the last bytes in the low bits only, so names that differ at their end need the
  // mixer.
  return base::Mix64(hash);
}

}  // namespace onepiece::node
