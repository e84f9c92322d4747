// A pool key says which stages of which workflows share instances.
#pragma once

#include <compare>
#include <string>

#include "onepiece/v1/workflow.pb.h"

namespace onepiece::workflow {

/// The same instances serve all stages with equal keys, whatever their workflows.
struct PoolKey {
  std::string stage, plugin;
  std::string pool;  ///< The stage's pool, or its model when it names no pool.
  int threads = 1;
  std::string precision;
  std::string device;         ///< The kind that an instance needs. Empty: any.
  bool collaborates = false;  ///< Its instances' workers compute each job together.
  int cfg = 0, sequence = 0;  ///< How. 0: as the stage chooses.
  friend auto operator<=>(const PoolKey&, const PoolKey&) = default;
};

inline PoolKey PoolOf(const v1::StageSpec& stage) {
  return {.stage = stage.stage(),
          .plugin = stage.plugin(),
          .pool = stage.pool().empty() ? stage.model() : stage.pool(),
          .threads = stage.threads() < 1 ? 1 : stage.threads(),
          .precision = stage.precision().empty() ? "f32" : stage.precision(),
          .device = stage.device(),
          .collaborates = stage.mode() == v1::MODE_COLLABORATION,
          .cfg = stage.parallel().cfg(),
          .sequence = stage.parallel().sequence()};
}

/// How many instances a pool may have, as its stages and its limits say together.
struct PoolBounds {
  int least = 1;  ///< The highest minimum.
  int most = 0;   ///< The lowest maximum. 0: none.

  void Add(const v1::StageSpec& stage) {
    least = stage.min_instances() > least ? stage.min_instances() : least;
    if (const int max = stage.max_instances(); max > 0 && (most == 0 || max < most)) most = max;
  }
  /// Limits replace the stages' maximum, and can only raise their minimum. 0: they say nothing.
  void Limit(int min, int max) {
    least = min > least ? min : least;
    if (max > 0) most = max;
  }
  /// Where the two contradict each other, the minimum holds.
  [[nodiscard]] int Most() const { return most > 0 && most < least ? least : most; }
};

/// Returns the key as people and plans write it: "diffusion/wan/tiny-wan-t2v", with ";2 threads"
/// ";bf16", ";cuda", ";collaboration" and ";cfg=2,sequence=4" where they are not the default.
/// Different keys have different ids.
std::string PoolId(const PoolKey& key);
inline std::string PoolIdOf(const v1::StageSpec& stage) { return PoolId(PoolOf(stage)); }

}  // namespace onepiece::workflow
