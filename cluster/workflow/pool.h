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
  std::string device;  ///< The kind that an instance needs. Empty: any.
  friend auto operator<=>(const PoolKey&, const PoolKey&) = default;
};

inline PoolKey PoolOf(const v1::StageSpec& stage) {
  return {.stage = stage.stage(),
          .plugin = stage.plugin(),
          .pool = stage.pool().empty() ? stage.model() : stage.pool(),
          .threads = stage.threads() < 1 ? 1 : stage.threads(),
          .precision = stage.precision().empty() ? "f32" : stage.precision(),
          .device = stage.device()};
}

/// Returns the key as people and plans write it: "diffusion/wan/tiny-wan-t2v", with ";2 threads"
/// ";bf16" and ";cuda" where they are not the default. Different keys have different ids.
std::string PoolId(const PoolKey& key);
inline std::string PoolIdOf(const v1::StageSpec& stage) { return PoolId(PoolOf(stage)); }

}  // namespace onepiece::workflow
