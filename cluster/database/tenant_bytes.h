// How many bytes of results each tenant has in a database, and whether that is more than its quota.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"

namespace onepiece::database {

/// Counts by tenant. A tenant without bytes takes no room, so there are at most as many as results.
///
/// Threading: thread-safe.
class TenantBytes {
 public:
  void Add(const std::string& tenant, std::int64_t bytes) {
    const base::MutexLock lock(mutex_);
    if ((bytes_[tenant] += bytes) == 0) bytes_.erase(tenant);
  }
  [[nodiscard]] std::int64_t Of(const std::string& tenant) const {
    const base::MutexLock lock(mutex_);
    const auto found = bytes_.find(tenant);
    return found == bytes_.end() ? 0 : found->second;
  }

 private:
  mutable base::Mutex mutex_;
  std::map<std::string, std::int64_t> bytes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::database
