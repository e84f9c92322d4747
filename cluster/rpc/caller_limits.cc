#include "cluster/rpc/caller_limits.h"

#include <spdlog/spdlog.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"

namespace onepiece::rpc {
namespace {

constexpr base::Duration kSayRefusalPeriod = std::chrono::seconds(10);

}  // namespace

void CallerLimits::Follow(const v1::CallerLimits& limits) {
  const base::MutexLock lock(mutex_);
  calls_per_s_ = limits.calls_per_s() > 0 ? limits.calls_per_s() : kCallsPerS;
  calls_burst_ = limits.calls_burst() > 0 ? limits.calls_burst() : kCallsBurst;
  calls_under_way_ = limits.calls_under_way() > 0 ? limits.calls_under_way() : kCallsUnderWay;
}

absl::Status CallerLimits::Admit(const std::string& caller, const std::string& shown) {
  const base::MonotonicTime now = clock_.Now();
  const base::MutexLock lock(mutex_);
  Account& account = callers_.Of(caller, now);
  if (account.under_way >= calls_under_way_) {
    return Refuse(account, "TOO_MANY_CALLS_UNDER_WAY",
                  absl::StrCat(shown, " has ", account.under_way,
                               " calls under way: wait until some have ended"),
                  now);
  }
  const base::Duration wait = account.bucket.Take(calls_per_s_, calls_burst_, now);
  if (wait == base::Duration::zero()) return absl::OkStatus();
  const double ms = std::ceil(base::ToSeconds(wait) * 1000);
  return Refuse(account, "TOO_MANY_CALLS",
                absl::StrCat(shown, " makes more than ", calls_per_s_, " calls/s: try again in ",
                             ms, " ms"),
                now);
}

absl::Status CallerLimits::Refuse(Account& account, std::string_view reason,
                                  const std::string& message, base::MonotonicTime now) {
  ++refused_;
  if (now >= account.next_say) {
    account.next_say = now + kSayRefusalPeriod;
    spdlog::warn("op=refuse_call reason={} detail=\"{}\"", reason, message);
  }
  return base::MakeError(absl::StatusCode::kResourceExhausted, reason, message);
}

CallerLimits::UnderWay CallerLimits::Begin(const std::string& caller) {
  const base::MutexLock lock(mutex_);
  Account& account = callers_.Of(caller, clock_.Now());
  ++account.under_way;
  return {*this, &account == &callers_.others() ? "" : caller};
}

CallerLimits::UnderWay::~UnderWay() {
  if (limits_ != nullptr) limits_->End(caller_);
}

void CallerLimits::End(const std::string& caller) {
  const base::MutexLock lock(mutex_);
  // An account with calls under way is never swept.
  Account* account = caller.empty() ? &callers_.others() : callers_.Find(caller);
  if (account != nullptr) --account->under_way;
}

}  // namespace onepiece::rpc
