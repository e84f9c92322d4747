#include "cluster/admission/bucket.h"

#include <algorithm>
#include <utility>

#include "cluster/base/seconds.h"

namespace onepiece::admission {
namespace {

// The wait, in seconds, for a pool without workers. An instance may come meanwhile.
constexpr double kNobodyWorksWait = 1;
// Less than a nanosecond of a worker is not worth sharing out.
constexpr double kNothing = 1e-9;

}  // namespace

Bucket::Bucket(std::string pool, const Size& size, base::MonotonicTime now)
    : pool_(std::move(pool)),
      rate_(size.rate),
      depth_(size.depth),
      job_(size.job),
      trials_(size.trials),
      level_(size.depth),
      filled_at_(now) {}

void Bucket::Resize(const Size& size, base::MonotonicTime now) {
  Refill(now);
  rate_ = size.rate;
  depth_ = size.depth;
  job_ = size.job;
  trials_ = size.trials;
  level_ = std::min(level_, depth_);
}

void Bucket::Refill(base::MonotonicTime now) {
  level_ = std::min(depth_, level_ + rate_ * base::ToSeconds(now - filled_at_));
  filled_at_ = now;
}

void Bucket::Lower(double most, base::MonotonicTime now) {
  Refill(now);
  if (level_ <= most) return;
  const double gone = level_ - most;
  level_ = most;
  double saved = 0;
  for (const double account : accounts_) saved += std::max(0.0, account);
  // Nobody owes what is left of `gone`: those who pay for a wrong estimate are all tenants.
  const double kept = saved > gone ? 1 - gone / saved : 0;
  for (double& account : accounts_) account *= account > 0 ? kept : 1;
}

void Bucket::Share(std::span<const Place> tenants) {
  const double most = std::max(depth_ / static_cast<double>(tenants.size()), job_);
  double spare = level_;
  for (const Place place : tenants) {
    accounts_[place] = std::min(accounts_[place], most);
    spare -= accounts_[place];
  }
  // Each round shares out everything or fills at least one account, so the loop ends.
  while (spare > kNothing) {
    const auto open =
        std::ranges::count_if(tenants, [&](const Place place) { return accounts_[place] < most; });
    if (open == 0) return;
    const double part = spare / static_cast<double>(open);
    for (const Place place : tenants) {
      if (accounts_[place] >= most) continue;
      const double given = std::min(part, most - accounts_[place]);
      accounts_[place] = given < part ? most : accounts_[place] + given;
      spare -= given;
    }
  }
}

Bucket::Answer Bucket::Ask(Place place, std::span<const Place> tenants, int priority,
                           base::MonotonicTime now) {
  Refill(now);
  Share(tenants);
  if (rate_ <= 0) return {Verdict::kEmpty, kNobodyWorksWait};
  const double floor = priority > 0 ? -depth_ : priority < 0 ? depth_ / 2 : 0;
  if (level_ <= floor) return {Verdict::kEmpty, (floor - level_) / rate_};
  // A full bucket loses its incoming tokens, so it refuses nobody for its share.
  const double own_floor = std::min(floor, 0.0);
  const double own = accounts_[place];
  if (own > own_floor || tenants.size() < 2 || IsFull()) return {};
  const double own_wait = (own_floor - own) * static_cast<double>(tenants.size());
  return {Verdict::kShare, std::min(own_wait, depth_ - level_) / rate_};
}

void Bucket::Take(Place place, double seconds) {
  level_ -= seconds;
  accounts_[place] -= seconds;
}

void Bucket::GiveBack(Place place, double seconds) {
  const double given = std::min(seconds, depth_ - level_);
  level_ += given;
  accounts_[place] += given;
}

}  // namespace onepiece::admission
