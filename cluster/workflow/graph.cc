#include "cluster/workflow/graph.h"

#include <algorithm>

namespace onepiece::workflow {

Graph::Graph(const v1::Workflow& workflow) {
  const bool chain = std::ranges::all_of(
      workflow.stages(), [](const v1::StageSpec& spec) { return spec.after().empty(); });
  const std::string* last = nullptr;
  for (const v1::StageSpec& spec : workflow.stages()) {
    const auto [stage, is_new] = stages_.try_emplace(spec.stage());
    if (!is_new) continue;
    const auto follow = [&, stage = stage](const std::string& before) {
      const auto found = stages_.find(before);
      auto& predecessors = stage->second.predecessors;
      // stages_ holds this stage and the earlier ones, so a name of a later stage is not found. A
      // routing table from another version may hold such a workflow.
      if (found == stages_.end() || found == stage || std::ranges::count(predecessors, before) > 0)
        return;
      predecessors.push_back(before);
      found->second.successors.push_back(spec.stage());
    };
    if (chain && last != nullptr) follow(*last);
    for (const std::string& before : spec.after()) follow(before);
    if (stage->second.predecessors.empty()) entrances_.push_back(spec.stage());
    last = &spec.stage();
  }
}

std::span<const std::string> Graph::Predecessors(std::string_view stage) const {
  return EdgesOf(stage).predecessors;
}

std::span<const std::string> Graph::Successors(std::string_view stage) const {
  return EdgesOf(stage).successors;
}

const Graph::Edges& Graph::EdgesOf(std::string_view stage) const {
  static const Edges none;
  const auto found = stages_.find(stage);
  return found == stages_.end() ? none : found->second;
}

}  // namespace onepiece::workflow
