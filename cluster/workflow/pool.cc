#include "cluster/workflow/pool.h"

#include "absl/strings/str_cat.h"

namespace onepiece::workflow {

std::string PoolId(const PoolKey& key) {
  std::string id = absl::StrCat(key.stage, "/", key.plugin);
  if (!key.pool.empty()) absl::StrAppend(&id, "/", key.pool);
  if (key.threads != 1) absl::StrAppend(&id, ";", key.threads, " threads");
  if (key.precision != "f32") absl::StrAppend(&id, ";", key.precision);
  if (!key.device.empty()) absl::StrAppend(&id, ";", key.device);
  if (key.collaborates) absl::StrAppend(&id, ";collaboration");
  if (key.cfg != 0 || key.sequence != 0)
    absl::StrAppend(&id, ";cfg=", key.cfg, ",sequence=", key.sequence);
  return id;
}

}  // namespace onepiece::workflow
