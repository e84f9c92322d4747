#include "cluster/client/cluster_notes.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace onepiece::client {
namespace {

constexpr std::size_t kMaxNamed = 5;

// The first nodes, and how many there are beside them.
std::string Name(const std::vector<std::string>& nodes) {
  const std::vector<std::string> first(
      nodes.begin(),
      nodes.begin() + static_cast<std::ptrdiff_t>(std::min(nodes.size(), kMaxNamed)));
  const std::size_t rest = nodes.size() - first.size();
  return absl::StrCat(absl::StrJoin(first, ", "),
                      rest == 0 ? "" : absl::StrCat(" and ", rest, " more"));
}

}  // namespace

std::vector<UnservedStage> UnservedStages(const v1::Cluster& cluster) {
  std::set<std::string> sets;
  std::set<std::tuple<std::string, std::string, std::string>> served;
  for (const v1::Node& node : cluster.nodes()) {
    if (node.state() != v1::Node::READY) continue;
    if (node.role() == v1::PROXY) sets.insert(node.workflow_set());
    if (node.role() != v1::INSTANCE || node.assignment().draining()) continue;
    for (const std::string& app : node.assignment().app_ids())
      served.emplace(node.workflow_set(), app, node.assignment().stage().stage());
  }
  std::vector<UnservedStage> unserved;
  for (const v1::Workflow& workflow : cluster.workflows()) {
    std::vector<UnservedStage> missing;
    bool complete_somewhere = false;
    for (const std::string& set : sets) {
      const std::size_t before = missing.size();
      for (const v1::StageSpec& stage : workflow.stages()) {
        if (!served.contains({set, workflow.app_id(), stage.stage()}))
          missing.push_back({set, workflow.app_id(), stage.stage()});
      }
      complete_somewhere |= missing.size() == before;
    }
    if (!complete_somewhere) unserved.insert(unserved.end(), missing.begin(), missing.end());
  }
  return unserved;
}

std::map<std::string, std::vector<std::string>> NodesByVersion(const v1::Cluster& cluster) {
  std::map<std::string, std::vector<std::string>> nodes;
  for (const v1::Node& node : cluster.nodes()) {
    if (node.state() != v1::Node::DEAD) nodes[node.version()].push_back(node.node_id());
  }
  return nodes;
}

std::vector<std::string> NotesOn(const v1::Cluster& cluster) {
  std::vector<std::string> notes;
  for (const UnservedStage& unserved : UnservedStages(cluster)) {
    notes.push_back(absl::StrCat(
        "no instance serves stage ", unserved.stage, " of application ", unserved.app_id,
        unserved.workflow_set == "default" ? "" : " in set " + unserved.workflow_set));
  }
  const auto versions = NodesByVersion(cluster);
  if (versions.size() > 1) {
    std::vector<std::string> each;
    for (const auto& [version, nodes] : versions)
      each.push_back(absl::StrCat(version.empty() ? "unknown" : version, ": ", Name(nodes)));
    notes.push_back(absl::StrCat("nodes run different versions (", absl::StrJoin(each, "; "), ")"));
  }
  if (cluster.available_feature_level() > cluster.feature_level()) {
    notes.push_back(absl::StrCat("feature level ", cluster.feature_level(),
                                 ", and all replicas know ", cluster.available_feature_level(),
                                 ": `onepiece cluster upgrade` raises it, for good"));
  }
  return notes;
}

}  // namespace onepiece::client
