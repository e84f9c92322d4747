// Refuses new jobs of tenants whose results fill their quota (Quota.stored_bytes).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "cluster/base/mutex.h"
#include "onepiece/v1/identity.pb.h"

namespace onepiece::rpc {
class Door;
}

namespace onepiece::database {

/// One database's part of the quotas. Each job has `copies` copies on `databases`, so each of them
/// holds about copies / databases of what a tenant has, and grants as much of the quota.
///
/// Ownership: borrows the door.
/// Threading: thread-safe.
class StorageQuotas {
 public:
  StorageQuotas(const rpc::Door& door, int copies, std::function<int()> databases)
      : door_(door), copies_(copies), databases_(std::move(databases)) {}

  /// `stored`: what the tenant has here, in bytes. A tenant without a quota may have any.
  ///
  /// Errors: RESOURCE_EXHAUSTED (QUOTA_EXCEEDED, as proxies refuse by the other quotas; nobody
  /// knows when results go, so retry_after_ms is a minute).
  [[nodiscard]] absl::Status Check(const std::string& tenant, std::int64_t stored) const;

 private:
  [[nodiscard]] std::int64_t PartOf(const std::string& tenant) const;

  const rpc::Door& door_;
  const int copies_;
  const std::function<int()> databases_;
  mutable base::Mutex mutex_;
  mutable std::uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // Of the door's table.
  mutable std::map<std::string, std::int64_t> quotas_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::database
