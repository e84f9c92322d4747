// What tenants may use, and what they have used (docs/security.md, "Quotas").
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "onepiece/v1/generation.pb.h"
#include "onepiece/v1/identity.pb.h"

namespace onepiece::proxy {

/// One proxy's accounts of the tenants. A quota is the cluster's; each proxy grants an equal part
/// of it, so proxies need not ask each other for each job, and a tenant that uses one proxy only
/// has that proxy's part. What it knows of jobs under way ends with the process.
///
/// Ownership: borrows the clock, which outlives it.
/// Threading: thread-safe.
/// Blocking: never.
class TenantAccounts {
 public:
  /// Beyond these, tenants without a quota share one account.
  static constexpr std::size_t kMaxTenants = 4096;

  explicit TenantAccounts(const base::Clock& clock) : clock_(clock) {}

  /// Goes by these quotas from now on. This proxy is one of `proxies`.
  void SetQuotas(const std::vector<v1::Tenant>& quotas, int proxies);

  /// Counts a job as under way. Returns false when it counts already.
  ///
  /// Errors: RESOURCE_EXHAUSTED (QUOTA_EXCEEDED; metadata "limit": the quota's field, and
  /// retry_after_ms).
  absl::StatusOr<bool> Admit(const std::string& tenant, const base::Uid& uid);
  /// The job did not begin after all.
  void Withdraw(const base::Uid& uid);
  /// The job has ended, and counts as used. Has no effect for a job that is not under way here.
  void End(const base::Uid& uid, const v1::Job& job);
  /// The job is gone, and nobody knows what it used.
  void Forget(const base::Uid& uid) { Withdraw(uid); }

  /// Returns what has been used since the last call, by tenant and hour.
  std::vector<v1::TenantUse> TakeUses();
  [[nodiscard]] int UnderWay(const std::string& tenant) const;

 private:
  struct Account {
    v1::Quota quota;  ///< This proxy's part.
    int under_way = 0;
    double starts = 0;          ///< Jobs that may begin now, for jobs_per_s.
    double worker_seconds = 0;  ///< Left of worker_seconds_per_h. Below 0 is debt.
    base::MonotonicTime filled{};
    v1::TenantUse use;  ///< Since TakeUses().
  };
  Account& Find(const std::string& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Fill(Account& account, base::MonotonicTime now);
  void NoteUse(Account& account, const std::string& tenant, const v1::Job& job)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const base::Clock& clock_;
  mutable base::Mutex mutex_;
  std::unordered_map<std::string, Account> accounts_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<base::Uid, std::string> jobs_ ABSL_GUARDED_BY(mutex_);  ///< Their tenants.
  std::deque<v1::TenantUse> ended_hours_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::proxy
