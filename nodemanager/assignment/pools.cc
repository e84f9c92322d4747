#include "nodemanager/assignment/pools.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/workflow/pool.h"

namespace onepiece::nodemanager {
namespace {

void ApplyLimits(const StateMachine& state, const std::string& workflow_set,
                 workflow::PoolBounds bounds, Pool& pool) {
  if (const auto limits = state.pool_limits().find({workflow_set, pool.id});
      limits != state.pool_limits().end()) {
    bounds.Limit(limits->second.min_instances(), limits->second.max_instances());
    if (!limits->second.device().empty()) pool.device = limits->second.device();
    if (limits->second.device_memory_bytes() > 0)
      pool.device_memory_bytes = limits->second.device_memory_bytes();
  }
  pool.min_instances = bounds.least;
  pool.max_instances = bounds.Most();
}

}  // namespace

std::vector<Pool> PoolsOf(const StateMachine& state, const std::string& workflow_set) {
  std::vector<Pool> pools;
  std::vector<workflow::PoolBounds> bounds;  // In the order of `pools`.
  std::map<workflow::PoolKey, std::size_t> places;
  for (const auto& [app_id, record] : state.workflows()) {
    for (const v1::StageSpec& spec : record.workflow().stages()) {
      const auto [place, is_new] = places.try_emplace(workflow::PoolOf(spec), pools.size());
      if (is_new) {
        pools.push_back({.id = workflow::PoolIdOf(spec), .spec = spec, .device = spec.device()});
        // `after` belongs to the workflow. Who serves the stage does not need it.
        pools.back().spec.clear_after();
        bounds.emplace_back();
      }
      Pool& pool = pools[place->second];
      pool.app_ids.push_back(app_id);
      pool.models.push_back(spec.model());
      bounds[place->second].Add(spec);
      pool.device_memory_bytes = std::max(pool.device_memory_bytes, spec.device_memory_bytes());
    }
  }
  for (std::size_t i = 0; i < pools.size(); ++i)
    ApplyLimits(state, workflow_set, bounds[i], pools[i]);
  return pools;
}

const Pool* FindPool(const std::vector<Pool>& pools, const std::string& id) {
  const auto it =
      std::find_if(pools.begin(), pools.end(), [&](const Pool& pool) { return pool.id == id; });
  return it == pools.end() ? nullptr : &*it;
}

bool HasDevice(const v1::Node& node, const Pool& pool) {
  const std::string& kind = pool.device;
  if (kind.empty() && pool.device_memory_bytes == 0) return true;
  return std::ranges::any_of(node.devices(), [&](const v1::Device& device) {
    return (kind.empty() || device.kind() == kind) &&
           device.memory_bytes() >= pool.device_memory_bytes;
  });
}

std::string NeededDevice(const Pool& pool) {
  const std::string& kind = pool.device;
  if (kind.empty() && pool.device_memory_bytes == 0) return "";
  std::string text = absl::StrCat("a ", kind, kind.empty() ? "" : " ", "device");
  if (pool.device_memory_bytes > 0) {
    absl::StrAppendFormat(&text, " with %.1f GiB",
                          static_cast<double>(pool.device_memory_bytes) / (1 << 30));
  }
  return text;
}

std::string AssignedPool(const v1::Node& node) {
  return node.assignment().has_stage() ? workflow::PoolIdOf(node.assignment().stage()) : "";
}

}  // namespace onepiece::nodemanager
