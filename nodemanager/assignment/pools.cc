#include "nodemanager/assignment/pools.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/workflow/pool.h"

namespace onepiece::nodemanager {
namespace {

void ApplyLimits(const StateMachine& state, const std::string& workflow_set, Pool& pool) {
  if (const auto limits = state.pool_limits().find({workflow_set, pool.id});
      limits != state.pool_limits().end()) {
    pool.min_instances = std::max(pool.min_instances, limits->second.min_instances());
    if (limits->second.max_instances() > 0) pool.max_instances = limits->second.max_instances();
    if (!limits->second.device().empty()) pool.device = limits->second.device();
    if (limits->second.device_memory_bytes() > 0)
      pool.device_memory_bytes = limits->second.device_memory_bytes();
  }
  if (pool.max_instances > 0) pool.max_instances = std::max(pool.max_instances, pool.min_instances);
}

}  // namespace

std::vector<Pool> PoolsOf(const StateMachine& state, const std::string& workflow_set) {
  std::vector<Pool> pools;
  std::map<workflow::PoolKey, std::size_t> places;
  for (const auto& [app_id, record] : state.workflows()) {
    for (const v1::StageSpec& spec : record.workflow().stages()) {
      const auto [place, is_new] = places.try_emplace(workflow::PoolOf(spec), pools.size());
      if (is_new) {
        pools.push_back({.id = workflow::PoolIdOf(spec), .spec = spec, .device = spec.device()});
        // `after` belongs to the workflow. Who serves the stage does not need it.
        pools.back().spec.clear_after();
      }
      Pool& pool = pools[place->second];
      pool.app_ids.push_back(app_id);
      pool.models.push_back(spec.model());
      pool.min_instances = std::max(pool.min_instances, spec.min_instances());
      pool.device_memory_bytes = std::max(pool.device_memory_bytes, spec.device_memory_bytes());
      if (const int most = spec.max_instances(); most > 0)
        pool.max_instances = pool.max_instances == 0 ? most : std::min(pool.max_instances, most);
    }
  }
  for (Pool& pool : pools) ApplyLimits(state, workflow_set, pool);
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
