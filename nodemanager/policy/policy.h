// A policy says where instances should go (docs/elasticity.md, "Policy"). Policies are pure
// objects, and the NodeManager and the simulator use the same ones.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/capacity/capacity_model.h"
#include "onepiece/v1/config.pb.h"

namespace onepiece::nodemanager {

/// After this many failures to load a pool's model, or to move an instance to it, a policy gives
/// the pool no more instances.
inline constexpr int kEnoughFailures = 2;

/// An instance as a policy sees it.
struct InstanceView {
  std::string node_id;
  std::string workflow_set;
  std::string pool;  ///< Empty when it is idle.
  /// False when it is pinned, removed, quarantined, or part of a plan that has not ended.
  bool movable = true;
  std::string pinned_stage;  ///< It serves pools of this stage only. Empty: of any stage.
  /// Pools that it cannot serve for lack of a device.
  std::vector<std::string> unfit_pools;
  std::string host, zone;  ///< Where it runs. Empty: unknown.
  /// 0 when it serves nobody (quarantined, stuck). It then fills no minimum but counts to the
  /// maximum.
  int workers = 1;
  /// The mean over the window, or nullopt when it was not measured for long enough.
  std::optional<double> utilization;
  /// When it came to where it is, or nullopt when that is longer ago than anybody remembers.
  std::optional<base::MonotonicTime> since;
};

/// A pool of one workflow set as a policy sees it.
struct PoolView {
  std::string workflow_set;
  std::string id, stage;
  int min_instances = 1;
  int max_instances = 0;  ///< 0 means no limit.
  /// How many devices one instance takes. It is above 1 in the simulator only, where an idle
  /// instance is one device. A move of an idle instance into the pool takes `resource` − 1 other
  /// idle ones of the same set with it. A move from a pool of larger instances leaves the other
  /// devices idle. A move from a pool of smaller instances first makes enough of them idle; a later
  /// decision uses them.
  int resource = 1;
  double load_s = 0;   ///< How long its model takes to load, measured, or 0 when unknown.
  int unloadable = 0;  ///< Instances there that could not load its model.
  /// How many automatic plans with moves to it were reverted in the last kFlappingWindows windows.
  int failed_plans = 0;
  /// When an instance came or left, once for each, as far back as a cooldown. In any order.
  std::vector<base::MonotonicTime> changes;
  /// The moves that have not ended and take an instance from here to elsewhere. It counts there
  /// already.
  int leaving = 0;
  /// The moves that have not ended and bring an idle instance.
  int arriving = 0;
};

/// One workflow set's load.
struct SetView {
  std::string workflow_set;
  capacity::Model model;  ///< Pools by PoolView::id, demand as measured over the window.
};

/// Policies look back at the moves of this many windows. A pool that gives instances to another
/// pool and takes as many back within that time is flapping when they are MoveShare() or more. It
/// then gives none and takes idle ones only.
inline constexpr int kFlappingWindows = 4;

struct PastMove {
  base::MonotonicTime at;
  std::string node_id, from_pool, to_pool;  ///< An empty pool means idle.
  std::string from_set, to_set;
};

/// Everything that a policy may look at.
struct PolicyView {
  base::MonotonicTime now;
  std::vector<InstanceView> instances;  ///< Alive, by node id.
  std::vector<PoolView> pools;          ///< The pools of all sets.
  std::vector<SetView> sets;
  /// The automatic moves of the last kFlappingWindows windows, oldest first.
  std::vector<PastMove> past;
  int moves_under_way = 0;
};

struct WantedMove {
  std::string node_id;
  std::string to_set;
  std::string to_pool;  ///< Empty: the idle pool.
  std::string reason;   ///< "diffusion/… at 93 % over 300 s; vae_decode/… keeps 41 %".
};

struct PolicyDecision {
  std::vector<WantedMove> moves;
  std::string detail;  ///< Says for people why nothing moves. "flapping: …" names the pools.
};

/// Decides which instances move. A policy is stateless: what it must remember stands in PolicyView,
/// so a failover loses nothing. It moves only what is movable, and never takes a pool below its
/// minimum or above its maximum.
///
/// Threading: thread-safe, because it never changes.
class Policy {
 public:
  virtual ~Policy() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual PolicyDecision Decide(const PolicyView& view) const = 0;
};

/// Fills the defaults into the configuration.
/// Errors: INVALID_ARGUMENT (BAD_ELASTICITY, which names the field).
absl::StatusOr<v1::ElasticityConfig> CompleteElasticity(v1::ElasticityConfig config);

/// How many instances of a pool that has `instances` may change their place at a time:
/// max_move_share of them, but at least one.
/// REQUIRES: `config` is complete.
int MoveShare(const v1::ElasticityConfig& config, int instances);

/// Makes the policy that `config` names: "utilization" or "static".
/// REQUIRES: `config` is complete.
/// Errors: NOT_FOUND (POLICY_UNKNOWN).
absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(const v1::ElasticityConfig& config);

}  // namespace onepiece::nodemanager
