// What the page "pipelines" shows, by number: the pools of every workflow set in the order in which
// jobs pass them, their instances, what flows between them, and which of them is the narrowest.
//
// What is not reported stays unknown (nullopt), which is not 0.
//
// Threading  Thread-confined.
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

/// One instance, or the ghost of one.
struct PipelineCard {
  enum class Kind {
    kLive,
    kLost,     ///< Was seen within PipelineModel::kGhostMs, and is gone.
    kPlanned,  ///< A plan will bring it here.
  };
  /// What a plan will do with one that is here.
  enum class Fate {
    kStays,
    kMoves,        ///< To `other_pool`.
    kLeaves,       ///< To be idle, or to be removed.
    kUnconfirmed,  ///< Has come; goes back unless the plan is confirmed.
  };
  std::string key;  ///< Unique in the graph, and the same as long as it stays in its stage.
  std::string node_id;
  int stage = 0;  ///< In PipelineGraph::stages.
  Kind kind = Kind::kLive;
  Fate fate = Fate::kStays;
  QString other_pool;        ///< Of a move: where to (kMoves) or from (kPlanned; empty: idle).
  std::int64_t seen_ms = 0;  ///< kLost: when it was seen last.

  QString state;  ///< ActivityName, "lost", "starting", "planned"
  StatusTone tone = StatusTone::kUnknown;
  bool serves = false;  ///< Takes work of its stage.
  bool stale = false;   ///< Has not reported for 10 s longer than the newest report.

  std::optional<double> utilization;  ///< 0 to 1, since its last report.
  v1::UtilizationSource source = v1::UTILIZATION_SOURCE_UNSPECIFIED;
  std::optional<double> sm_active;           ///< Mean of its devices that say so.
  std::optional<std::int64_t> running;       ///< Jobs that it computes,
  std::optional<std::int64_t> workers;       ///< of as many as it can.
  std::optional<std::int64_t> queued, held;  ///< NodeLoad's.
  std::optional<std::int64_t> ring_used, ring_slots;
  /// Over `measured_s` seconds when it finished jobs in them, else since its process began
  /// (measured_s 0). p50 is interpolated in NodeLoad's buckets, which are powers of 2.
  std::optional<double> service_p50_s, service_mean_s, queued_s, transfer_s;
  std::optional<double> jobs_per_s;  ///< Finished, over the window; unknown until there is one.
  double measured_s = 0;
  std::uint64_t jobs = 0;  ///< That these means are of.

  bool operator==(const PipelineCard&) const = default;
};

/// A pool of a workflow set, "idle", or what jobs come from and go to.
struct PipelineStage {
  enum class Kind { kPool, kIdle, kEntrance, kExit };
  Kind kind = Kind::kPool;
  int set = 0;       ///< In PipelineGraph::sets.
  std::string pool;  ///< Pool id; empty: not a pool.
  QString name;      ///< Of the stage, shown.
  QStringList apps;  ///< Whose jobs pass it, by app id.
  int rank = 0;      ///< Column: longest way from an entrance.
  int lane = 0;      ///< Row of blocks: applications that share no pool here have their own.
  int first_card = 0, cards = 0;                    ///< In PipelineGraph::cards.
  int serving = 0, present = 0;                     ///< Instances; present: all that are there.
  std::optional<int> min_instances, max_instances;  ///< Max absent: no limit is known.
  std::optional<double> rho;       ///< Over Elasticity.window_s: PoolStatus.utilization.
  std::optional<double> busy_now;  ///< Mean of those that serve.
  std::optional<std::int64_t> running, workers, queued, ring_used, ring_slots;
  std::optional<double> service_p50_s;   ///< Median of its instances' numbers.
  std::optional<double> service_mean_s;  ///< Of all jobs measured.
  std::optional<double> jobs_per_s;
  bool bottleneck = false;

  bool operator==(const PipelineStage&) const = default;
};

/// What flows from one stage of a set to another.
struct PipelineEdge {
  int from = 0, to = 0;  ///< In PipelineGraph::stages.
  std::optional<double> items_per_s, bytes_per_s;
  /// Of the receiving rings, which all senders share.
  std::optional<std::int64_t> ring_used, ring_slots;
  std::optional<double> transfer_s;  ///< Mean, sender's encoding to arrival.
  std::optional<double> oldest_s;    ///< That waits in these rings.
  bool stalled = false;              ///< The oldest has waited for 5 s and nothing is taken out.

  bool operator==(const PipelineEdge&) const = default;
};

struct PipelineSet {
  std::string name;
  int first_stage = 0, stages = 0;
  bool operator==(const PipelineSet&) const = default;
};

/// Sets by name, their stages by lane and rank, cards by stage and node id: who joins or leaves
/// changes the order of nobody else.
struct PipelineGraph {
  std::vector<PipelineSet> sets;
  std::vector<PipelineStage> stages;
  std::vector<PipelineCard> cards;
  std::vector<PipelineEdge> edges;
  int bottleneck = -1;  ///< The busiest pool; -1: not known.
  QString verdict;      ///< Which pool is the narrowest and why, or why that is not known.
  StatusTone verdict_tone = StatusTone::kUnknown;
  QString empty;  ///< Why there is nothing, and what to do; empty: there is something.
  QString stale;  ///< Why parts of it are not newer; empty: they are.

  bool operator==(const PipelineGraph&) const = default;
};

/// "instance-2" comes before "instance-10".
bool NodeIdLess(const std::string& a, const std::string& b);

/// Makes graphs, and remembers between them who was there and how much they had done.
class PipelineModel {
 public:
  static constexpr std::int64_t kGhostMs = 60'000;
  static constexpr std::int64_t kStaleMs = 10'000;
  static constexpr std::int64_t kStalledMs = 5'000;
  /// What is measured is so long at least, and twice as long at most.
  static constexpr std::int64_t kWindowMs = 30'000;

  PipelineModel();
  ~PipelineModel();
  /// The plan that is being drafted: its moves are shown as those of plans under way. Null: none.
  void SetDraft(const v1::Plan* draft);
  /// A snapshot before the last one (the past) forgets what came after it.
  const PipelineGraph& Update(const Snapshot& snapshot);
  [[nodiscard]] const PipelineGraph& graph() const { return graph_; }

 private:
  class Builder;
  /// Counts of one instance in its stage.
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
  /// What a ring has taken from one sender, and how fast that grows.
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

  /// What `card` has done, into it; the counts that its means are of.
  Totals Count(const v1::Node& node, const std::string& pool, const Totals& totals,
               PipelineCard& card);
  void FollowRing(const RingEntry& ring);

  PipelineGraph graph_;
  std::unique_ptr<v1::Plan> draft_;
  std::int64_t at_ms_ = 0;
  // By node id; of nodes in the newest snapshot, and `seen_` for kGhostMs longer.
  std::map<std::string, Counted> counted_;
  std::map<std::string, RingFlows> flows_;
  std::map<std::string, Seen> seen_;
};

}  // namespace onepiece::gui
