// The words of the page "Pipelines": a graph's numbers, rounded and written. What looks the same is
// equal, so that it is not painted again.
//
// Threading: pure functions.
#pragma once

#include <QString>
#include <QStringList>
#include <array>
#include <cstdint>
#include <optional>

#include "gui/models/pipeline_graph.h"

namespace onepiece::gui {

/// What a card shows. `busy_permille` and `ring_permille` are the lengths of bars; -1 if not known.
struct CardLook {
  QString name, state, mark;  ///< `mark`: what a plan does with it, or when it was lost.
  QString busy, jobs, ring, service, sm;
  StatusTone tone = StatusTone::kUnknown;
  PipelineCard::Kind kind = PipelineCard::Kind::kLive;
  PipelineCard::Fate fate = PipelineCard::Fate::kStays;
  bool stale = false;
  int busy_permille = -1, ring_permille = -1;
  std::int64_t running = 0, workers = 0;
  bool operator==(const CardLook&) const = default;
};
/// What a stage's header shows. `load_permille` is the length of a bar; -1 if not known.
struct StageLook {
  QString name, badge, counts, load, apps, work;
  StatusTone tone = StatusTone::kNeutral;  ///< The tone of `load`.
  PipelineStage::Kind kind = PipelineStage::Kind::kPool;
  bool bottleneck = false;
  int load_permille = -1;
  bool operator==(const StageLook&) const = default;
};
/// What an edge shows.
struct EdgeLook {
  QString rate;         ///< "12.5/s"
  QStringList details;  ///< "q 37/64", "1.8 MiB/s", "2.1 ms"; "stalled 9.0 s"
  bool known = false, stalled = false, flows = false;
  int width = 0;  ///< In halves of a pixel at 100 %. It grows with the logarithm of items/s.
  bool operator==(const EdgeLook&) const = default;
};

CardLook LookOf(const PipelineCard& card, std::int64_t now_ms);
StageLook LookOf(const PipelineStage& stage);
EdgeLook LookOf(const PipelineEdge& edge);

/// The name for screen readers: "instance-3, diffusion, serving, 87 % busy, 2 of 4 in
/// flight"; "diffusion, 3 of 4 serve, ρ 97 %, bottleneck".
QString AccessibleName(const PipelineCard& card, const PipelineStage& stage, std::int64_t now_ms);
QString AccessibleName(const PipelineStage& stage);
/// The tool tip: every number, where it comes from and over which time.
QString TipOf(const PipelineCard& card, const PipelineStage& stage, std::int64_t now_ms);
QString TipOf(const PipelineStage& stage);
QString TipOf(const PipelineEdge& edge, const PipelineGraph& graph);

/// The median of NodeLoad's buckets, which are powers of 2 from 1 ms. Values count as evenly spread
/// within a bucket. Absent if all buckets are empty.
std::optional<double> MedianOfBuckets(const std::array<std::uint64_t, 21>& buckets);

/// Finds the narrowest pool and says why, or why nobody knows it. Also says what is stale, and what
/// is missing when there is nothing.
void Judge(const session::Snapshot& snapshot, PipelineGraph& graph);

}  // namespace onepiece::gui
