#include "gui/models/pipeline_layout.h"

#include <algorithm>
#include <map>

namespace onepiece::gui {
namespace {

using L = PipelineLayout;

bool IsEnd(const PipelineStage& stage) {
  return stage.kind == PipelineStage::Kind::kEntrance || stage.kind == PipelineStage::Kind::kExit;
}

QSizeF SizeOf(const PipelineStage& stage) {
  if (IsEnd(stage)) return {L::kEndWidth, L::kHeader};
  const bool idle = stage.kind == PipelineStage::Kind::kIdle;
  const int most = idle ? (stage.cards + kIdleColumns - 1) / kIdleColumns : CardRows(stage.cards);
  const int rows = std::max(std::min(stage.cards, most), 1);
  const int columns = idle ? std::clamp(stage.cards, 1, kIdleColumns)
                           : std::max((stage.cards + rows - 1) / rows, 1);
  const double cards =
      stage.cards == 0 ? 0 : rows * (L::kCardHeight + L::kCardGap) - L::kCardGap + L::kPadding;
  return {columns * (L::kCardWidth + L::kCardGap) - L::kCardGap + 2 * L::kPadding,
          L::kHeader + cards};
}

/// Places the stages of one set below `top`, and returns where they end.
double PlaceSet(const PipelineGraph& graph, const PipelineSet& set, double top,
                PipelineLayout& layout) {
  std::map<int, double> widths, heights;  // Widths of columns by rank, heights of rows.
  for (int i = set.first_stage; i < set.first_stage + set.stages; ++i) {
    const PipelineStage& stage = graph.stages[static_cast<std::size_t>(i)];
    const QSizeF size = SizeOf(stage);
    // The idle box stands below the columns, so it does not widen its column.
    const bool idle = stage.kind == PipelineStage::Kind::kIdle;
    widths[stage.rank] = std::max(widths[stage.rank], idle ? 0 : size.width());
    heights[stage.row] = std::max(heights[stage.row], size.height());
  }
  std::map<int, double> lefts, tops;
  double x = 0, y = top;
  for (const auto& [rank, width] : widths) {
    lefts[rank] = x;
    x += width + L::kColumnGap;
  }
  for (const auto& [row, height] : heights) {
    tops[row] = y;
    y += height + L::kRowGap;
  }
  for (int i = set.first_stage; i < set.first_stage + set.stages; ++i) {
    const auto index = static_cast<std::size_t>(i);
    const PipelineStage& stage = graph.stages[index];
    const QRectF box({lefts[stage.rank], tops[stage.row]}, SizeOf(stage));
    layout.stages[index] = box;
    layout.headers[index] = QRectF(box.topLeft(), QSizeF(box.width(), L::kHeader));
    const int rows = CardRows(stage.cards);
    for (int card = 0; card < stage.cards; ++card) {
      const bool idle = stage.kind == PipelineStage::Kind::kIdle;
      const int column = idle ? card % kIdleColumns : card / rows;
      const int row = idle ? card / kIdleColumns : card % rows;
      const QPointF at(L::kPadding + column * (L::kCardWidth + L::kCardGap),
                       L::kHeader + row * (L::kCardHeight + L::kCardGap));
      layout.cards[static_cast<std::size_t>(stage.first_card + card)] =
          QRectF(box.topLeft() + at, QSizeF(L::kCardWidth, L::kCardHeight));
    }
  }
  return y - L::kRowGap;
}

L::Edge Connect(const PipelineGraph& graph, const PipelineEdge& edge,
                const PipelineLayout& layout) {
  const auto from = static_cast<std::size_t>(edge.from), to = static_cast<std::size_t>(edge.to);
  const QRectF a = layout.headers[from], b = layout.headers[to];
  L::Edge made{{a.right(), a.center().y()}, {b.left(), b.center().y()}, 0};
  const int span = graph.stages[to].rank - graph.stages[from].rank;
  // An edge over other columns rises above them. The more columns it passes, the higher it rises.
  const bool blocked =
      std::any_of(graph.stages.begin(), graph.stages.end(), [&](const PipelineStage& stage) {
        return stage.set == graph.stages[from].set && stage.rank > graph.stages[from].rank &&
               stage.rank < graph.stages[to].rank && stage.row == graph.stages[from].row;
      });
  if (span > 1 && blocked) made.rise = 24 + 12 * std::min(span, 6);
  if (span < 1) made.rise = 24 + 12 * std::min(2 - span, 6);
  return made;
}

}  // namespace

int CardRows(int cards) { return cards <= 64 ? 8 : cards <= 256 ? 16 : 32; }

PipelineLayout LayOut(const PipelineGraph& graph) {
  PipelineLayout layout;
  layout.sets.resize(graph.sets.size());
  layout.stages.resize(graph.stages.size());
  layout.headers.resize(graph.stages.size());
  layout.cards.resize(graph.cards.size());
  layout.titled = graph.sets.size() > 1;
  double y = 0;
  for (std::size_t i = 0; i < graph.sets.size(); ++i) {
    const PipelineSet& set = graph.sets[i];
    double above = 0;
    // Leaves room for the edges that rise above the set. Ranks alone decide this, because no box
    // has a place yet.
    for (const PipelineEdge& edge : graph.edges) {
      const PipelineStage& from = graph.stages[static_cast<std::size_t>(edge.from)];
      const int span = graph.stages[static_cast<std::size_t>(edge.to)].rank - from.rank;
      if (from.set == static_cast<int>(i) && span != 1) above = L::kSetGap;
    }
    const double top = y + above + (layout.titled ? L::kSetTitle : 0);
    const double end = PlaceSet(graph, set, top, layout);
    double right = 0;
    for (int stage = set.first_stage; stage < set.first_stage + set.stages; ++stage) {
      right = std::max(right, layout.stages[static_cast<std::size_t>(stage)].right());
    }
    layout.sets[i] = QRectF(0, y, right, end - y);
    y = end + L::kSetGap;
    layout.bounds |= layout.sets[i];
  }
  for (const PipelineEdge& edge : graph.edges) {
    layout.edges.push_back(Connect(graph, edge, layout));
  }
  return layout;
}

}  // namespace onepiece::gui
