#include "nodemanager/service/identity_reports.h"

#include <chrono>
#include <cmath>
#include <limits>

namespace onepiece::nodemanager {
namespace {

constexpr std::int64_t kHourMs = 3600 * 1000, kMostAgeMs = 48 * kHourMs;

bool IsSound(const v1::TenantUse& use, std::int64_t now) {
  return !use.tenant().empty() && use.tenant().size() <= 64 &&
         use.hour_unix_ms() > now - kMostAgeMs && use.hour_unix_ms() < now + kMostAgeMs &&
         use.jobs() >= 0 && use.bytes() >= 0 && std::isfinite(use.worker_seconds()) &&
         use.worker_seconds() >= 0;
}

std::int64_t Sum(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  return b > kMost - a ? kMost : a + b;
}

}  // namespace

void IdentityReports::Clear() {
  const base::MutexLock lock(mutex_);
  nodes_.clear();
}

void IdentityReports::Take(const v1::ReportNodeRequest& request) {
  const base::MutexLock lock(mutex_);
  // Nodes that were forgotten stay here until there are too many; the others report again soon.
  if (nodes_.size() >= kMaxNodes && !nodes_.contains(request.node_id())) nodes_.clear();
  nodes_[request.node_id()] = {.incarnation = request.incarnation(),
                               .epoch = request.identity_epoch(),
                               .authority = request.signing_authority().substr(0, 64)};
}

void IdentityReports::Add(const v1::TenantUse& use) {
  const std::pair<std::int64_t, std::string> key{use.hour_unix_ms(), use.tenant()};
  if (uses_.size() >= kMaxUses && !uses_.contains(key)) return;
  v1::TenantUse& sum = uses_[key];
  sum.set_tenant(use.tenant());
  sum.set_hour_unix_ms(use.hour_unix_ms());
  sum.set_jobs(Sum(sum.jobs(), use.jobs()));
  sum.set_bytes(Sum(sum.bytes(), use.bytes()));
  sum.set_worker_seconds(sum.worker_seconds() + use.worker_seconds());
}

void IdentityReports::TakeUses(const v1::ReportNodeRequest& request, base::WallTime now) {
  if (request.uses().empty()) return;
  const std::int64_t now_ms = base::ToUnixMs(now);
  const base::MutexLock lock(mutex_);
  for (v1::TenantUse use : request.uses()) {
    if (!IsSound(use, now_ms)) continue;
    use.set_hour_unix_ms(use.hour_unix_ms() - use.hour_unix_ms() % kHourMs);
    Add(use);
  }
}

v1::AddUses IdentityReports::CollectUses() {
  v1::AddUses uses;
  const base::MutexLock lock(mutex_);
  for (auto& [key, use] : uses_) *uses.add_uses() = std::move(use);
  uses_.clear();
  return uses;
}

void IdentityReports::ReturnUses(const v1::AddUses& uses) {
  const base::MutexLock lock(mutex_);
  for (const v1::TenantUse& use : uses.uses()) Add(use);
}

template <typename IsFine>
std::vector<std::string> IdentityReports::Others(const StateMachine& state, IsFine is_fine) const {
  std::vector<std::string> others;
  const base::MutexLock lock(mutex_);
  for (const auto& [id, record] : state.nodes()) {
    if (!IsAlive(record.node())) continue;
    const auto report = nodes_.find(id);
    if (report == nodes_.end() || report->second.incarnation != record.node().incarnation() ||
        !is_fine(report->second))
      others.push_back(id);
  }
  return others;
}

std::vector<std::string> IdentityReports::WithoutTable(const StateMachine& state,
                                                       std::uint64_t epoch) const {
  return Others(state, [&](const LastReport& report) { return report.epoch >= epoch; });
}

std::vector<std::string> IdentityReports::WithoutCertificateOf(const StateMachine& state,
                                                               const std::string& authority) const {
  return Others(state, [&](const LastReport& report) { return report.authority == authority; });
}

}  // namespace onepiece::nodemanager
