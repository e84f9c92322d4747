// The numbers of the page "Pipelines": the pools of each workflow set in the order in which jobs
// pass them, their instances, the flow between them, and the narrowest pool.
//
// A number that nobody reports is nullopt, which is not 0.
//
// Threading: thread-confined.
#pragma once

#include <QString>
#include <QStringList>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/session/snapshot.h"
#include "gui/models/format.h"

namespace onepiece::gui {

/// One instance, or the ghost of one that is gone or will come.
struct PipelineCard {
  enum class Kind {
    kLive,
    kLost,     ///< Seen within the last PipelineModel::kGhostMs, and gone.
    kPlanned,  ///< A plan will move it here.
  };
  /// What a plan will do with an instance that is here.
  enum class Fate {
    kStays,
    kMoves,        ///< Moves to `other_pool`.
    kLeaves,       ///< Becomes idle, or is removed.
    kUnconfirmed,  ///< Has arrived, and goes back unless the plan is confirmed.
  };
  /// Unique in the graph. It stays the same while the instance stays in its stage.
  std::string key;
  std::string node_id;
  int stage = 0;  ///< In PipelineGraph::stages.
  Kind kind = Kind::kLive;
  Fate fate = Fate::kStays;
  /// The pool that it moves to (kMoves) or comes from (kPlanned; empty for idle).
  QString other_pool;
  std::int64_t seen_ms = 0;  ///< When it was last seen, in kLost.

  QString state;  ///< ActivityName, "lost", "starting", "planned"
  StatusTone tone = StatusTone::kUnknown;
  bool serves = false;  ///< Takes work of its stage.
  bool stale = false;  ///< Its last report is PipelineModel::kStaleMs older than the newest of all.

  std::optional<double> utilization;  ///< 0 to 1, over the time before its last report.
  v1::UtilizationSource source = v1::UTILIZATION_SOURCE_UNSPECIFIED;
  std::optional<double> sm_active;           ///< Mean over its devices that report it.
  std::optional<std::int64_t> running;       ///< Jobs being computed,
  std::optional<std::int64_t> workers;       ///< and how many it can compute at a time.
  std::optional<std::int64_t> queued, held;  ///< As in NodeLoad.
  std::optional<std::int64_t> ring_used, ring_slots;
  /// Means over the last `measured_s` seconds. If it finished no job in them, means since its
  /// process began; `measured_s` is then 0. p50 is interpolated in the buckets of NodeLoad, which
  /// are powers of 2.
  std::optional<double> service_p50_s, service_mean_s, queued_s, transfer_s;
  std::optional<double> jobs_per_s;  ///< Finished jobs, over the window. Absent until there is one.
  double measured_s = 0;
  std::uint64_t jobs = 0;  ///< The jobs that these means are made from.

  bool operator==(const PipelineCard&) const = default;
};

/// One box of the page: a pool of a workflow set, the idle instances, or the entrance and exit of
/// jobs.
struct PipelineStage {
  enum class Kind { kPool, kIdle, kEntrance, kExit };
  Kind kind = Kind::kPool;
  int set = 0;       ///< In PipelineGraph::sets.
  std::string pool;  ///< Pool id. Empty if it is not a pool.
  QString name;      ///< The stage's name, as shown.
  QStringList apps;  ///< The ids of the applications whose jobs pass it.
  int rank = 0;      ///< Column: the longest way from an entrance.
  int row = 0;       ///< Row of boxes. Applications that share no pool have rows of their own.
  int first_card = 0, cards = 0;  ///< In PipelineGraph::cards.
  int serving = 0, present = 0;   ///< Instances that serve, and all that are there.
  /// `max_instances` is absent if no limit is known.
  std::optional<int> min_instances, max_instances;
  std::optional<double> rho;       ///< PoolStatus.utilization, a mean over Elasticity.window_s.
  std::optional<double> busy_now;  ///< Mean over the instances that serve.
  std::optional<std::int64_t> running, workers, queued, ring_used, ring_slots;
  std::optional<double> service_p50_s;   ///< Median over all its instances' jobs.
  std::optional<double> service_mean_s;  ///< Mean over all its instances' jobs.
  std::optional<double> jobs_per_s;
  bool bottleneck = false;

  bool operator==(const PipelineStage&) const = default;
};

/// The flow from one stage of a set to another.
struct PipelineEdge {
  int from = 0, to = 0;  ///< In PipelineGraph::stages.
  std::optional<double> items_per_s, bytes_per_s;
  /// The used slots and all slots of the receiving rings, which all senders share.
  std::optional<std::int64_t> ring_used, ring_slots;
  std::optional<double> transfer_s;  ///< Mean from the sender's encoding to arrival.
  std::optional<double> oldest_s;    ///< Age of the oldest message in these rings.
  bool stalled = false;  ///< The oldest message has waited for kStalledMs, and none is taken out.

  bool operator==(const PipelineEdge&) const = default;
};

struct PipelineSet {
  std::string name;
  int first_stage = 0, stages = 0;
  bool operator==(const PipelineSet&) const = default;
};

/// All of the page. The order is stable: sets by name, their stages by column and row, cards by
/// stage and node id. An instance that joins or leaves changes the order of no other.
struct PipelineGraph {
  std::vector<PipelineSet> sets;
  std::vector<PipelineStage> stages;
  std::vector<PipelineCard> cards;
  std::vector<PipelineEdge> edges;
  int bottleneck = -1;  ///< The narrowest pool. -1 if not known.
  QString verdict;      ///< Which pool is the narrowest and why, or why that is not known.
  StatusTone verdict_tone = StatusTone::kUnknown;
  QString empty;  ///< Why there is nothing to show, and what to do. Empty otherwise.
  QString stale;  ///< Why parts are not newer. Empty if they are.

  bool operator==(const PipelineGraph&) const = default;
};

/// "instance-2" comes before "instance-10".
bool NodeIdLess(const std::string& a, const std::string& b);

/// Makes graphs. It remembers from one snapshot to the next which instances were there and how much
/// they had done.
class PipelineModel {
 public:
  static constexpr std::int64_t kGhostMs = 60'000;
  static constexpr std::int64_t kStaleMs = 10'000;
  static constexpr std::int64_t kStalledMs = 5'000;
  /// The window that means and rates are measured over is at least this long, and at most twice as
  /// long.
  static constexpr std::int64_t kWindowMs = 30'000;

  PipelineModel();
  ~PipelineModel();
  /// Shows the moves of a draft like those of plans under way. Null shows none.
  void SetDraft(const v1::Plan* draft);
  /// Makes the graph of a snapshot. If it is older than the last one (the past is shown),
  /// everything remembered is dropped.
  const PipelineGraph& Update(const session::Snapshot& snapshot);
  [[nodiscard]] const PipelineGraph& graph() const { return graph_; }

 private:
  class Builder;
  /// What one instance has done in its stage since its process began.
  struct Totals {
    std::uint64_t jobs = 0;
    double compute_s = 0, queued_s = 0, transfer_s = 0;
    std::array<std::uint64_t, 21> buckets{};
  };
  struct Sample {
    std::int64_t at_ms = 0;  ///< By the node's clock.
    Totals totals;
  };
  struct Counted {
    std::uint64_t incarnation = 0;
    std::string pool;
    Sample older, newer;
  };
  /// What a ring has taken from one sender, and at which rate that grows.
  struct Flow {
    std::uint64_t delivered = 0, bytes = 0;
    std::optional<double> items_per_s, bytes_per_s;
  };
  struct RingFlows {
    std::uint64_t incarnation = 0;
    std::int64_t as_of_ms = 0;
    std::map<std::string, Flow> senders;  ///< By node id.
  };
  struct Seen {
    PipelineCard card;
    std::string set, pool;
    std::int64_t seen_ms = 0;
  };

  /// Fills in the means of `card` from `totals`. Returns the counts that the means are made from.
  Totals Count(const v1::Node& node, const std::string& pool, const Totals& totals,
               PipelineCard& card);
  void FollowRing(const session::RingEntry& ring);

  PipelineGraph graph_;
  std::unique_ptr<v1::Plan> draft_;
  std::int64_t at_ms_ = 0;
  // By node id. They hold the nodes of the newest snapshot; `seen_` keeps a node for kGhostMs
  // longer.
  std::map<std::string, Counted> counted_;
  std::map<std::string, RingFlows> flows_;
  std::map<std::string, Seen> seen_;
};

}  // namespace onepiece::gui
