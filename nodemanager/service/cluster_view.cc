#include "nodemanager/service/cluster_view.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/rpc/version.h"

namespace onepiece::nodemanager {
namespace {

constexpr int kDefaultWorkflowsPage = 100;
constexpr int kMaxWorkflowsPage = 1000;
constexpr std::uint64_t kMaxIncarnation = std::numeric_limits<std::int64_t>::max();
constexpr int kMaxLabels = 32, kMaxDevices = 64;
constexpr std::size_t kMaxWord = 128;  // Bytes of a zone, host, version or label.
constexpr char kTooLong[] = "at most 128 bytes";
constexpr std::string_view kTokenPrefix = "after:";
constexpr std::string_view kNamePrefix = "workflows/";

absl::Status Bad(std::string_view reason, std::string_view field, std::string_view message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, reason,
                         absl::StrCat(std::string(field), ": ", std::string(message)),
                         {{"field", std::string(field)}});
}

bool IsIdentifier(const std::string& text, std::size_t longest) {
  return !text.empty() && text.size() <= longest &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' ||
                  c == '.';
         });
}

// Checks where the node runs, and on what.
absl::Status CheckEnvironment(const v1::Node& node) {
  const std::pair<const char*, const std::string*> words[] = {{"node.version", &node.version()},
                                                              {"node.build", &node.build()},
                                                              {"node.zone", &node.zone()},
                                                              {"node.host", &node.host()}};
  for (const auto& [field, word] : words) {
    if (word->size() > kMaxWord) return Bad("BAD_NODE", field, kTooLong);
  }
  if (node.labels_size() > kMaxLabels) return Bad("BAD_NODE", "node.labels", "at most 32");
  for (const auto& [key, value] : node.labels()) {
    if (key.empty() || key.size() > kMaxWord || value.size() > kMaxWord)
      return Bad("BAD_NODE", "node.labels", "keys have 1 to 128 bytes, values at most 128");
  }
  if (node.devices_size() > kMaxDevices) return Bad("BAD_NODE", "node.devices", "at most 64");
  for (const v1::Device& device : node.devices()) {
    if (device.kind().size() > kMaxWord || device.device().size() > kMaxWord ||
        device.product().size() > kMaxWord)
      return Bad("BAD_NODE", "node.devices", kTooLong);
    if (device.memory_bytes() < 0)
      return Bad("BAD_NODE", "node.devices", "memory_bytes is not negative");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckKnown(const StateMachine& state, const std::string& node_id,
                        std::uint64_t incarnation) {
  const auto known = state.nodes().find(node_id);
  if (known != state.nodes().end() && known->second.node().incarnation() >= incarnation)
    return absl::OkStatus();
  return base::MakeError(
      absl::StatusCode::kNotFound, "NODE_UNKNOWN",
      known == state.nodes().end()
          ? absl::StrCat("node '", node_id, "' is not registered")
          : absl::StrCat("this incarnation of node '", node_id, "' is not registered"),
      {{"node_id", node_id}});
}

v1::Cluster MakeSnapshot(const StateMachine& state) {
  v1::Cluster cluster;
  cluster.set_cluster_id(state.cluster_id());
  cluster.set_revision(state.revision());
  cluster.set_epoch(state.epoch());
  cluster.set_api_version(rpc::kApiVersion);
  cluster.set_server_version(ONEPIECE_VERSION);
  cluster.set_feature_level(state.feature_level());
  cluster.set_config_revision(state.config_revision());
  for (const auto& [id, record] : state.nodes()) *cluster.add_nodes() = record.node();
  for (const auto& [id, record] : state.workflows()) *cluster.add_workflows() = record.workflow();
  return cluster;
}

std::vector<v1::ClusterEvent> ChangesAfter(const StateMachine& state, std::uint64_t revision) {
  std::vector<v1::ClusterEvent> events;
  if (revision == 0 || revision > state.revision() || revision < state.history_floor()) {
    events.emplace_back().set_revision(state.revision());
    *events.back().mutable_snapshot() = MakeSnapshot(state);
    return events;
  }
  for (const auto& [id, record] : state.nodes()) {
    if (record.revision() <= revision) continue;
    events.emplace_back().set_revision(record.revision());
    *events.back().mutable_node() = record.node();
  }
  for (const auto& [id, record] : state.workflows()) {
    if (record.revision() <= revision) continue;
    events.emplace_back().set_revision(record.revision());
    *events.back().mutable_workflow() = record.workflow();
  }
  for (const v1::WorkflowDeletion& deletion : state.deletions()) {
    if (deletion.revision() <= revision) continue;
    events.emplace_back().set_revision(deletion.revision());
    events.back().set_workflow_deleted(deletion.app_id());
  }
  // A watcher resumes after the last event that it got. Out of order, it would miss the older ones.
  std::sort(events.begin(), events.end(),
            [](const auto& a, const auto& b) { return a.revision() < b.revision(); });
  return events;
}

v1::ListProxiesResponse MakeProxyList(const StateMachine& state, const std::string& workflow_set) {
  v1::ListProxiesResponse response;
  for (const auto& [id, record] : state.nodes()) {
    const v1::Node& node = record.node();
    if (node.role() != v1::PROXY || node.state() != v1::Node::READY) continue;
    if (!workflow_set.empty() && node.workflow_set() != workflow_set) continue;
    auto& proxy = *response.add_proxies();
    proxy.mutable_endpoint()->set_node_id(id);
    proxy.mutable_endpoint()->set_incarnation(node.incarnation());
    proxy.mutable_endpoint()->set_address(node.address());
    proxy.set_workflow_set(node.workflow_set());
  }
  return response;
}

absl::StatusOr<v1::ListWorkflowsResponse> MakeWorkflowPage(
    const StateMachine& state, const v1::ListWorkflowsRequest& request) {
  if (request.page_size() < 0) return Bad("BAD_PAGE_SIZE", "page_size", "not negative");
  const int size = request.page_size() == 0 ? kDefaultWorkflowsPage
                                            : std::min(request.page_size(), kMaxWorkflowsPage);
  // A token names the last app id of the page before, so a page goes on correctly after workflows
  // have come and gone.
  auto next = state.workflows().begin();
  if (!request.page_token().empty()) {
    if (!request.page_token().starts_with(kTokenPrefix)) {
      return Bad("BAD_PAGE_TOKEN", "page_token", "not a token that ListWorkflows gave");
    }
    next = state.workflows().upper_bound(request.page_token().substr(kTokenPrefix.size()));
  }
  v1::ListWorkflowsResponse response;
  for (; next != state.workflows().end() && response.workflows_size() < size; ++next) {
    *response.add_workflows() = next->second.workflow();
  }
  if (next != state.workflows().end()) {
    response.set_next_page_token(absl::StrCat(
        std::string(kTokenPrefix), response.workflows(response.workflows_size() - 1).app_id()));
  }
  return response;
}

absl::StatusOr<std::string> AppIdOfName(const std::string& name) {
  if (name.starts_with(kNamePrefix) && name.size() > kNamePrefix.size())
    return name.substr(kNamePrefix.size());
  return Bad("BAD_NAME", "name", "workflows/{app_id}");
}

absl::Status CheckNode(const v1::Node& node) {
  if (!IsIdentifier(node.node_id(), 128)) {
    return Bad("BAD_NODE", "node.node_id", "1 to 128 letters, digits, '-', '_' and '.'");
  }
  if (node.role() == v1::ROLE_UNSPECIFIED || !v1::Role_IsValid(node.role())) {
    return Bad("BAD_NODE", "node.role", "unknown value");
  }
  // Others must be able to exceed it (StateMachine::forgotten_incarnation).
  if (node.incarnation() == 0 || node.incarnation() > kMaxIncarnation)
    return Bad("BAD_NODE", "node.incarnation", "1 to 2^63 - 1");
  if (!IsIdentifier(node.workflow_set(), 63)) {
    return Bad("BAD_NODE", "node.workflow_set", "1 to 63 letters, digits, '-', '_' and '.'");
  }
  if (node.address().empty() || node.address().size() > 300)
    return Bad("BAD_NODE", "node.address", "host:port");
  if (node.metrics_address().size() > 300)
    return Bad("BAD_NODE", "node.metrics_address", "host:port");
  if (node.pinned_stage().size() > 63)
    return Bad("BAD_NODE", "node.pinned_stage", "at most 63 characters");
  if (node.detail().size() > 512) return Bad("BAD_NODE", "node.detail", "at most 512 bytes");
  return CheckEnvironment(node);
}

}  // namespace onepiece::nodemanager
