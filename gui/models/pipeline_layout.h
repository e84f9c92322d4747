// Where everything of a PipelineGraph lies: a column for each stage, a row for each instance.
// Nothing but the graph decides, so that pictures are the same and nobody jumps when others come
// and go.
//
// Units      Pixels at 100 % zoom and the usual size of type.
// Threading  Pure function.
#pragma once

#include <QPointF>
#include <QRectF>
#include <vector>

#include "gui/models/pipeline_graph.h"

namespace onepiece::gui {

struct PipelineLayout {
  static constexpr double kCardWidth = 184, kCardHeight = 82, kCardGap = 8;
  static constexpr double kHeader = 74, kPadding = 10, kEndWidth = 84;
  static constexpr double kColumnGap = 98, kLaneGap = 36, kSetGap = 56, kSetTitle = 34;

  struct Edge {
    QPointF begin, end;
    double rise =
        0;  ///< 0: straight to the next column; else this far above, over what is between.
    bool operator==(const Edge&) const = default;
  };
  // By index, as in the graph.
  std::vector<QRectF> sets, stages, headers, cards;
  std::vector<Edge> edges;
  QRectF bounds;
  /// True: sets have titles, for there are several.
  bool titled = false;
  bool operator==(const PipelineLayout&) const = default;
};

/// How many cards of a stage stand below each other before the next column of cards begins: the
/// same up to 64 cards, so that who joins last moves nobody.
int CardRows(int cards);
/// Idle instances stand below the stages, so many beside each other.
inline constexpr int kIdleColumns = 6;
PipelineLayout LayOut(const PipelineGraph& graph);

}  // namespace onepiece::gui
