// Which stage of a workflow hands on to which: the one place that reads StageSpec.after.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onepiece/v1/workflow.pb.h"

namespace onepiece::workflow {

/// The stages of one workflow and their order. When no stage names another in `after`, they are a
/// chain in the order of the file; otherwise a stage without is an entrance. What CheckWorkflow
/// would refuse gives no edge, never a cycle: edges go from earlier stages to later ones.
///
/// Threading  Immutable. Unknown stages have no neighbours. What it returns lives as long as it
/// does.
class Graph {
 public:
  Graph() = default;  ///< No stages.
  explicit Graph(const v1::Workflow& workflow);

  /// Stages that begin with the job's inputs, in the order of the file.
  [[nodiscard]] std::span<const std::string> Entrances() const { return entrances_; }
  /// Stages whose outputs this one takes, in the order in which it names them. More than one: their
  /// outputs are joined.
  [[nodiscard]] std::span<const std::string> Predecessors(std::string_view stage) const;
  /// Stages that take this one's outputs, in the order of the file; none: it makes the result.
  [[nodiscard]] std::span<const std::string> Successors(std::string_view stage) const;

 private:
  struct Edges {
    std::vector<std::string> predecessors, successors;
  };
  [[nodiscard]] const Edges& EdgesOf(std::string_view stage) const;

  std::map<std::string, Edges, std::less<>> stages_;
  std::vector<std::string> entrances_;
};

}  // namespace onepiece::workflow
