// What the page "pipelines" says: a graph's numbers as words, rounded, so that what looks the same
// is equal and is not painted again.
//
// Threading  Pure functions.
#pragma once

#include <QString>
#include <QStringList>
#include <array>
#include <cstdint>
#include <optional>

#include "gui/models/pipeline_graph.h"

namespace onepiece::gui {

/// Thousandths of bars; -1: unknown.
struct CardLook {
  QString name, state, mark;  ///< Mark: what a plan does with it, or when it was lost.
  QString busy, jobs, ring, service, sm;
  StatusTone tone = StatusTone::kUnknown;
  PipelineCard::Kind kind = PipelineCard::Kind::kLive;
  PipelineCard::Fate fate = PipelineCard::Fate::kStays;
  bool stale = false;
  int busy_permille = -1, ring_permille = -1;
  std::int64_t running = 0, workers = 0;
  bool operator==(const CardLook&) const = default;
};
struct StageLook {
  QString name, badge, counts, load, apps, work;
  StatusTone tone = StatusTone::kNeutral;  ///< Of `load`.
  PipelineStage::Kind kind = PipelineStage::Kind::kPool;
  bool bottleneck = false;
  int load_permille = -1;
  bool operator==(const StageLook&) const = default;
};
struct EdgeLook {
  QString rate;         ///< "12.5/s"
  QStringList details;  ///< "q 37/64", "1.8 MiB/s", "2.1 ms"; "stalled 9.0 s"
  bool known = false, stalled = false, flows = false;
  int width = 0;  ///< Halves of a pixel at 100 %: grows with the logarithm of items/s.
  bool operator==(const EdgeLook&) const = default;
};

CardLook LookOf(const PipelineCard& card, std::int64_t now_ms);
StageLook LookOf(const PipelineStage& stage);
EdgeLook LookOf(const PipelineEdge& edge);

/// For screen readers: "instance-3, diffusion, serving, 87 % busy, 2 of 4 in flight"; "diffusion,
/// 3 of 4 serve, 97 % busy, bottleneck".
QString AccessibleName(const PipelineCard& card, const PipelineStage& stage, std::int64_t now_ms);
QString AccessibleName(const PipelineStage& stage);
/// Every number, where it comes from and over which time.
QString TipOf(const PipelineCard& card, const PipelineStage& stage, std::int64_t now_ms);
QString TipOf(const PipelineStage& stage);
QString TipOf(const PipelineEdge& edge, const PipelineGraph& graph);

/// Of NodeLoad's buckets (powers of 2, from 1 ms), even within each; absent: they are empty.
std::optional<double> MedianOfBuckets(const std::array<std::uint64_t, 21>& buckets);

/// Finds the narrowest pool and says why it is that, or why nobody knows; says what is stale, and
/// what is missing when there is nothing.
void Judge(const Snapshot& snapshot, PipelineGraph& graph);

}  // namespace onepiece::gui
