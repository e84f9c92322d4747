// Policies: where instances should go (DESIGN §8, paper §3-4). Pure objects: the NodeManager and
// the simulator use the same ones.
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

struct InstanceView {
  std::string node_id;
  std::string workflow_set;
  std::string pool;  ///< Empty: idle.
  /// False: pinned, removed, quarantined, or part of a plan that has not ended.
  bool movable = true;
  std::string pinned_stage;  ///< Serves pools of this stage only; empty: any.
  /// 0: it serves nobody (quarantined, stuck) and fills no minimum, but it counts to the maximum.
  int workers = 1;
  std::optional<double>
      utilization;  ///< Mean over the window; nullopt: not measured for long enough.
  /// When it last began to be where it is; nullopt: longer ago than anybody remembers.
  std::optional<base::MonotonicTime> since;
};

struct PoolView {
  std::string workflow_set;
  std::string id, stage;
  int min_instances = 1;
  int max_instances = 0;  ///< 0: no limit.
  /// Devices that one instance takes; above 1 in the simulator only. An idle instance is one
  /// device. A move of an idle one takes `resource` − 1 others with it, idle in the same set; from
  /// a pool of larger instances, the devices left over become idle. For a pool of smaller ones,
  /// enough of them are made idle at once, and used when they are.
  int resource = 1;
  double load_s = 0;   ///< Measured, or 0: not known.
  int unloadable = 0;  ///< Instances there that could not load its model.
  /// Automatic plans with moves to it that were brought back, of the last kFlappingWindows windows.
  int failed_plans = 0;
  std::optional<base::MonotonicTime> changed;  ///< Its last change of size.
};

/// One workflow set's load.
struct SetView {
  std::string workflow_set;
  capacity::Model model;  ///< Pools by PoolView::id, demand as measured over the window.
};

/// For so many windows back policies want to know moves: a pool that gives an instance to another
/// and takes one back within them is flapping: it gives none then, and takes idle ones only.
inline constexpr int kFlappingWindows = 4;

struct PastMove {
  base::MonotonicTime at;
  std::string node_id, from_pool, to_pool;  ///< Empty: idle.
  std::string from_set, to_set;
};

/// Everything that a policy may look at.
struct PolicyView {
  base::MonotonicTime now;
  std::vector<InstanceView> instances;  ///< Alive, by node id.
  std::vector<PoolView> pools;          ///< Of all sets.
  std::vector<SetView> sets;
  std::vector<PastMove>
      past;  ///< Automatic moves of the last kFlappingWindows windows, oldest first.
  int moves_under_way = 0;
};

struct WantedMove {
  std::string node_id;
  std::string to_set;
  std::string to_pool;  ///< Empty: idle.
  std::string reason;   ///< "diffusion/… at 93 % over 300 s; vae_decode/… keeps 41 %".
};

struct PolicyDecision {
  std::vector<WantedMove> moves;
  std::string detail;  ///< Why nothing moves, for people; "flapping: …" names the pools.
};

/// Stateless: what it must remember it finds in PolicyView, so that a failover loses nothing.
/// Never moves what is not movable, below a minimum or above a maximum.
class Policy {
 public:
  virtual ~Policy() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual PolicyDecision Decide(const PolicyView& view) const = 0;
};

/// The configuration with its defaults filled in. Errors: INVALID_ARGUMENT (BAD_ELASTICITY): names
/// the field.
absl::StatusOr<v1::ElasticityConfig> CompleteElasticity(v1::ElasticityConfig config);

/// "utilization" or "static". REQUIRES: `config` is complete. Errors: NOT_FOUND (POLICY_UNKNOWN).
absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(const v1::ElasticityConfig& config);

}  // namespace onepiece::nodemanager
