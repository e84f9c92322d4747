// The graph of a workflow says which stage hands on to which. This is the one place that reads
// StageSpec.after.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onepiece/v1/workflow.pb.h"

namespace onepiece::workflow {

/// The stages of one workflow and their order.
///
/// When no stage names another in `after`, the stages are a chain in the order of the file.
/// Otherwise a stage that names none is an entrance. Entries that CheckWorkflow would refuse give
/// no edge, and edges only go from earlier stages to later ones, so there is never a cycle. An
/// unknown stage has no neighbours.
///
/// Threading: immutable after construction.
/// Lifetime: the spans that it returns live as long as the Graph.
class Graph {
 public:
  Graph() = default;  ///< No stages.
  explicit Graph(const v1::Workflow& workflow);

  /// Returns the stages that take the job's inputs, in the order of the file.
  [[nodiscard]] std::span<const std::string> Entrances() const { return entrances_; }
  /// Returns the stages whose outputs this one takes, in the order in which it names them. When
  /// there are several, their outputs are joined.
  [[nodiscard]] std::span<const std::string> Predecessors(std::string_view stage) const;
  /// Returns the stages that take this one's outputs, in the order of the file. When there are
  /// none, the stage makes the result.
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
