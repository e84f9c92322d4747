#include "cluster/rpc/caller_limits.h"

#include <spdlog/spdlog.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"

namespace onepiece::rpc {
namespace {

constexpr base::Duration kSayRefusalPeriod = std::chrono::seconds(10);
// How long a call is remembered that was admitted and whose handler did not begin: its request has
// not come, or the call has ended before. Two periods at most.
constexpr base::Duration kWaitPeriod = std::chrono::minutes(1);
constexpr base::Duration kStrangersMemory = std::chrono::minutes(10);

}  // namespace

void CallerLimits::Follow(const v1::CallerLimits& limits) {
  const base::MutexLock lock(mutex_);
  calls_per_s_ = limits.calls_per_s() > 0 ? limits.calls_per_s() : kCallsPerS;
  calls_burst_ = limits.calls_burst() > 0 ? limits.calls_burst() : kCallsBurst;
  calls_under_way_ = limits.calls_under_way() > 0 ? limits.calls_under_way() : kCallsUnderWay;
}

void CallerLimits::Account::Turn(bool is_stranger, base::MonotonicTime now) {
  // A stranger that goes on would make the server forget its calls, and begin more and more.
  if (is_stranger && now < turned + kStrangersMemory) {
    if (now >= turned + kWaitPeriod) turned = now;
    return;
  }
  if (now < turned + kWaitPeriod) return;
  for (Calls* calls : {&streams, &others}) {
    calls->waited = now < turned + 2 * kWaitPeriod ? calls->waiting : 0;
    calls->waiting = 0;
  }
  turned = now;
}

void CallerLimits::Calls::BeginOne() {
  ++running;
  if (waiting > 0) {
    --waiting;
  } else if (waited > 0) {
    --waited;
  }
}

bool CallerLimits::Account::IsIdle(base::MonotonicTime now) const {
  const bool runs = streams.running + others.running > 0;
  const bool waits = calls() > 0 && now < turned + kStrangersMemory;
  return !runs && !waits && bucket.IsFull(now);
}

absl::Status CallerLimits::Admit(const Caller& caller) {
  const base::MonotonicTime now = clock_.Now();
  const base::MutexLock lock(mutex_);
  Account& account = AccountsOf(caller.is_stranger).Of(caller.account, now);
  account.Turn(caller.is_stranger, now);
  const int most = caller.is_stranger ? kStrangersCallsUnderWay : calls_under_way_;
  Calls& calls = account.Of(caller.is_stream);
  if (account.calls() >= most || (!caller.is_stream && calls.sum() >= kUnaryUnderWay)) {
    return Refuse(account, "TOO_MANY_CALLS_UNDER_WAY",
                  absl::StrCat(caller.name, " has ", account.calls(),
                               " calls under way: wait until some have ended"),
                  now);
  }
  const base::Duration wait = account.bucket.Take(calls_per_s_, calls_burst_, now);
  if (wait == base::Duration::zero()) {
    ++calls.waiting;
    return absl::OkStatus();
  }
  const double ms = std::ceil(base::ToSeconds(wait) * 1000);
  return Refuse(account, "TOO_MANY_CALLS",
                absl::StrCat(caller.name, " makes more than ", calls_per_s_,
                             " calls/s: try again in ", ms, " ms"),
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

CallerLimits::UnderWay CallerLimits::Begin(const Caller& caller) {
  const base::MutexLock lock(mutex_);
  Accounts& accounts = AccountsOf(caller.is_stranger);
  Account& account = accounts.Of(caller.account, clock_.Now());
  account.Of(caller.is_stream).BeginOne();
  Caller counted = caller;
  if (&account == &accounts.others()) counted.account.clear();
  return {*this, std::move(counted)};
}

CallerLimits::UnderWay::~UnderWay() {
  if (limits_ != nullptr) limits_->End(caller_);
}

void CallerLimits::End(const Caller& caller) {
  const base::MutexLock lock(mutex_);
  Accounts& accounts = AccountsOf(caller.is_stranger);
  // An account with calls under way is never swept.
  Account* account = caller.account.empty() ? &accounts.others() : accounts.Find(caller.account);
  if (account != nullptr) --account->Of(caller.is_stream).running;
}

}  // namespace onepiece::rpc
