#include "cluster/proxy/tenant_accounts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/seconds.h"
#include "cluster/base/status.h"
#include "cluster/rpc/status.h"

namespace onepiece::proxy {
namespace {

constexpr std::int64_t kHourMs = 3'600'000;
constexpr double kHourSeconds = 3600;
/// When a job under way ends is not known.
constexpr double kAskAgainSeconds = 0.5;
constexpr std::size_t kMaxEndedHours = 16'384;
/// Where tenants beyond kMaxTenants are counted. No tenant has an empty name.
constexpr char kOthers[] = "";

absl::Status Exceeded(const std::string& tenant, const std::string& limit, double value,
                      double wait_s) {
  const auto ms = static_cast<std::int64_t>(std::ceil(std::clamp(wait_s, 0.01, 3600.0) * 1000));
  return base::MakeError(
      absl::StatusCode::kResourceExhausted, "QUOTA_EXCEEDED",
      absl::StrCat("tenant ", tenant, " has used its ", limit, " at this proxy (", value, ")"),
      {{"limit", limit}, {"tenant", tenant}, {rpc::kRetryAfterMs, std::to_string(ms)}});
}

/// Jobs that may begin at once, for a rate.
double Burst(double per_s) { return std::max(1.0, per_s); }

v1::Quota PartOf(const v1::Quota& whole, int proxies) {
  v1::Quota part;
  // A tenant that may have one job finds a place for it at every proxy.
  part.set_jobs_in_flight((whole.jobs_in_flight() + proxies - 1) / proxies);
  part.set_jobs_per_s(whole.jobs_per_s() / proxies);
  part.set_worker_seconds_per_h(whole.worker_seconds_per_h() / proxies);
  return part;
}

double ComputeSeconds(const v1::Job& job) {
  double seconds = 0;
  for (const v1::StageTiming& timing : job.timings()) {
    seconds += static_cast<double>(timing.compute().seconds()) +
               static_cast<double>(timing.compute().nanos()) * 1e-9;
  }
  return seconds;
}

}  // namespace

void TenantAccounts::SetQuotas(const std::vector<v1::Tenant>& quotas, int proxies) {
  const base::MonotonicTime now = clock_.Now();
  std::unordered_map<std::string, v1::Quota> parts;
  for (const v1::Tenant& tenant : quotas)
    parts[tenant.name()] = PartOf(tenant.quota(), std::max(1, proxies));
  const base::MutexLock lock(mutex_);
  for (const auto& [name, part] : parts) (void)Find(name);
  for (auto& [name, account] : accounts_) {
    Fill(account, now);
    const v1::Quota before = std::exchange(account.quota, parts[name]);
    const double burst = Burst(account.quota.jobs_per_s());
    const double hour = account.quota.worker_seconds_per_h();
    // Who had no limit yet begins with all of it.
    account.starts = before.jobs_per_s() == 0 ? burst : std::min(account.starts, burst);
    account.worker_seconds =
        before.worker_seconds_per_h() == 0 ? hour : std::min(account.worker_seconds, hour);
  }
}

TenantAccounts::Account& TenantAccounts::Find(const std::string& tenant) {
  if (const auto found = accounts_.find(tenant); found != accounts_.end()) return found->second;
  return accounts_[accounts_.size() < kMaxTenants ? tenant : kOthers];
}

void TenantAccounts::Fill(Account& account, base::MonotonicTime now) {
  const double seconds = base::ToSeconds(now - account.filled);
  account.filled = now;
  const v1::Quota& quota = account.quota;
  account.starts =
      std::min(Burst(quota.jobs_per_s()), account.starts + seconds * quota.jobs_per_s());
  account.worker_seconds =
      std::min(quota.worker_seconds_per_h(),
               account.worker_seconds + seconds * quota.worker_seconds_per_h() / kHourSeconds);
}

absl::StatusOr<bool> TenantAccounts::Admit(const std::string& tenant, const base::Uid& uid) {
  const base::MonotonicTime now = clock_.Now();
  const base::MutexLock lock(mutex_);
  if (jobs_.contains(uid)) return false;
  Account& account = Find(tenant);
  Fill(account, now);
  const v1::Quota& quota = account.quota;
  if (quota.jobs_in_flight() > 0 && account.under_way >= quota.jobs_in_flight())
    return Exceeded(tenant, "jobs_in_flight", quota.jobs_in_flight(), kAskAgainSeconds);
  if (quota.jobs_per_s() > 0 && account.starts < 1) {
    return Exceeded(tenant, "jobs_per_s", quota.jobs_per_s(),
                    (1 - account.starts) / quota.jobs_per_s());
  }
  if (quota.worker_seconds_per_h() > 0 && account.worker_seconds <= 0) {
    return Exceeded(tenant, "worker_seconds_per_h", quota.worker_seconds_per_h(),
                    (1e-3 - account.worker_seconds) * kHourSeconds / quota.worker_seconds_per_h());
  }
  if (quota.jobs_per_s() > 0) account.starts -= 1;
  ++account.under_way;
  jobs_.emplace(uid, tenant);
  return true;
}

void TenantAccounts::Withdraw(const base::Uid& uid) {
  const base::MutexLock lock(mutex_);
  const auto job = jobs_.find(uid);
  if (job == jobs_.end()) return;
  --Find(job->second).under_way;
  jobs_.erase(job);
}

void TenantAccounts::End(const base::Uid& uid, const v1::Job& job) {
  const base::MonotonicTime now = clock_.Now();
  const base::MutexLock lock(mutex_);
  const auto known = jobs_.find(uid);
  if (known == jobs_.end()) return;
  Account& account = Find(known->second);
  Fill(account, now);
  --account.under_way;
  if (account.quota.worker_seconds_per_h() > 0) account.worker_seconds -= ComputeSeconds(job);
  NoteUse(account, known->second, job);
  jobs_.erase(known);
}

void TenantAccounts::NoteUse(Account& account, const std::string& tenant, const v1::Job& job) {
  const std::int64_t now_ms = base::ToUnixMs(clock_.WallNow());
  const std::int64_t hour_ms = now_ms - now_ms % kHourMs;
  if (account.use.jobs() > 0 && account.use.hour_unix_ms() != hour_ms) {
    // Nobody has asked for a long time.
    if (ended_hours_.size() >= kMaxEndedHours) ended_hours_.pop_front();
    ended_hours_.push_back(account.use);
    account.use.Clear();
  }
  account.use.set_tenant(tenant);
  account.use.set_hour_unix_ms(hour_ms);
  account.use.set_jobs(account.use.jobs() + 1);
  account.use.set_worker_seconds(account.use.worker_seconds() + ComputeSeconds(job));
  for (const v1::ResultArtifact& artifact : job.result().artifacts())
    account.use.set_bytes(account.use.bytes() + artifact.size_bytes());
}

std::vector<v1::TenantUse> TenantAccounts::TakeUses() {
  const base::MutexLock lock(mutex_);
  std::vector<v1::TenantUse> uses(ended_hours_.begin(), ended_hours_.end());
  ended_hours_.clear();
  for (auto& [name, account] : accounts_) {
    if (account.use.jobs() > 0) uses.push_back(account.use);
    account.use.Clear();
  }
  return uses;
}

int TenantAccounts::UnderWay(const std::string& tenant) const {
  const base::MutexLock lock(mutex_);
  const auto found = accounts_.find(tenant);
  return found == accounts_.end() ? 0 : found->second.under_way;
}

}  // namespace onepiece::proxy
