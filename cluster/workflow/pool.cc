#include "cluster/workflow/pool.h"

#include "absl/strings/str_cat.h"

namespace onepiece::workflow {

std::string PoolId(const PoolKey& key) {
  std::string id = absl::StrCat(key.stage, "/", key.plugin);
  if (!key.pool.empty()) absl::StrAppend(&id, "/", key.pool);
  if (key.threads != 1) absl::StrAppend(&id, ";", key.threads, " threads");
  if (key.precision != "f32") absl::StrAppend(&id, ";", key.precision);
  if (!key.device.empty()) absl::StrAppend(&id, ";", key.device);
  return id;
}

}  // namespace onepiece::workflow
