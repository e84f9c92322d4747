// The places of everything in a PipelineGraph: a column for each stage, a row for each instance.
// Only the graph decides, so equal graphs give equal pictures, and no card jumps when others come
// and go.
//
// Units: pixels at 100 % zoom and the usual font size.
// Threading: pure function.
#pragma once

#include <QPointF>
#include <QRectF>
#include <vector>

#include "gui/models/pipeline_graph.h"

namespace onepiece::gui {

struct PipelineLayout {
  static constexpr double kCardWidth = 184, kCardHeight = 82, kCardGap = 8;
  static constexpr double kHeader = 74, kPadding = 10, kEndWidth = 84;
  static constexpr double kColumnGap = 98, kRowGap = 36, kSetGap = 56, kSetTitle = 34;

  struct Edge {
    QPointF begin, end;
    /// 0 if it runs straight to the next column. Otherwise how far it rises above what lies
    /// between.
    double rise = 0;
    bool operator==(const Edge&) const = default;
  };
  // Indexed as in the graph.
  std::vector<QRectF> sets, stages, headers, cards;
  std::vector<Edge> edges;
  QRectF bounds;
  /// True if sets have titles, because there are several.
  bool titled = false;
  bool operator==(const PipelineLayout&) const = default;
};

/// The number of cards that stand below each other before the next column of cards begins. It is
/// the same up to 64 cards, so that an instance that joins last moves no other card.
int CardRows(int cards);
/// The number of idle instances beside each other, in the box below the stages.
inline constexpr int kIdleColumns = 6;
/// Places a graph.
PipelineLayout LayOut(const PipelineGraph& graph);

}  // namespace onepiece::gui
