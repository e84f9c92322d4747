// The instances of a PipelineGraph as rows, for export.
//
// Threading: GUI thread only.
#pragma once

#include <memory>

#include "gui/models/keyed_table.h"
#include "gui/models/pipeline_graph.h"

namespace onepiece::gui {

struct PipelineRow {
  std::string set;
  PipelineStage stage;
  PipelineCard card;
  bool operator==(const PipelineRow&) const = default;
};
using PipelineTable = KeyedTable<PipelineRow>;

/// Makes the table. Numbers are in kSortRole; a number that is not known is null there, never 0.
std::unique_ptr<PipelineTable> MakePipelineTable();
void Update(PipelineTable& table, const PipelineGraph& graph);

}  // namespace onepiece::gui
