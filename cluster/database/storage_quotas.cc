#include "cluster/database/storage_quotas.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/rpc/door.h"
#include "cluster/rpc/status.h"

namespace onepiece::database {

std::int64_t StorageQuotas::PartOf(const std::string& tenant) const {
  const base::MutexLock lock(mutex_);
  if (const std::uint64_t epoch = door_.epoch(); epoch != epoch_) {
    quotas_.clear();
    for (const v1::Tenant& one : door_.Tenants()) {
      if (one.quota().stored_bytes() > 0) quotas_[one.name()] = one.quota().stored_bytes();
    }
    epoch_ = epoch;
  }
  const auto found = quotas_.find(tenant);
  if (found == quotas_.end()) return 0;
  const int databases = std::max(1, databases_());
  return std::max<std::int64_t>(1, found->second / databases * std::min(copies_, databases));
}

absl::Status StorageQuotas::Check(const std::string& tenant, std::int64_t stored) const {
  const std::int64_t part = PartOf(tenant);
  if (part == 0 || stored < part) return absl::OkStatus();
  return base::MakeError(
      absl::StatusCode::kResourceExhausted, "QUOTA_EXCEEDED",
      absl::StrCat("tenant ", tenant, " has used its stored_bytes at this database (", part,
                   "): fetch and acknowledge results, or delete jobs"),
      {{"limit", "stored_bytes"}, {"tenant", tenant}, {rpc::kRetryAfterMs, "60000"}});
}

}  // namespace onepiece::database
