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

// The share of a proxy that is asked for more grows after this long: until its next report, and
// with the answer to it.
constexpr double kShareFollowsS = 1;

}  // namespace

Bucket::Bucket(std::string pool, const Size& size, base::MonotonicTime now)
    : pool_(std::move(pool)), size_(size), level_(size.depth), filled_at_(now) {}

void Bucket::Resize(const Size& size, base::MonotonicTime now) {
  Refill(now);
  size_ = size;
  level_ = std::min(level_, size_.depth);
}

void Bucket::Refill(base::MonotonicTime now) {
  const double past_s = base::ToSeconds(now - filled_at_);
  level_ = std::min(size_.depth, level_ + size_.rate * past_s);
  promises_.Work(size_.pool_rate * past_s);
  filled_at_ = now;
}

void Bucket::SetOthers(double seconds, base::MonotonicTime now) {
  Refill(now);
  promises_.SetOthers(seconds);
}

void Bucket::Lower(double most, base::MonotonicTime now) {
  Refill(now);
  backlog_until_ = most < 0 && size_.rate > 0 ? now + base::FromSeconds(-most / size_.rate) : now;
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
  const double most = std::max(size_.depth / static_cast<double>(tenants.size()), size_.job);
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

double Bucket::OwnWait(double wait_s) const {
  if (size_.rate >= size_.pool_rate) return wait_s;
  // A small share is no reason to tell a client to stay away: it grows when it is asked for. But a
  // queue that is too long is everybody's.
  const double backlog_s = base::ToSeconds(backlog_until_ - filled_at_);
  return std::min(wait_s, std::max(kShareFollowsS, backlog_s));
}

double Bucket::WaitFor(double part) const {
  const double own = (part * size_.depth - level_) / size_.rate;
  const double wait = own > 0 ? OwnWait(own) : 0;
  // With the whole share, and no promises of others, the own level says all.
  if (size_.rate >= size_.pool_rate && promises_.others() <= 0) return wait;
  const double pool_level = size_.pool_depth - promises_.total();
  return std::max(wait, (part * size_.pool_depth - pool_level) / size_.pool_rate);
}

Bucket::Answer Bucket::Ask(Place place, std::span<const Place> tenants, int priority,
                           base::MonotonicTime now) {
  Refill(now);
  Share(tenants);
  if (size_.rate <= 0) return {Verdict::kEmpty, kNobodyWorksWait};
  const double part = priority > 0 ? -1 : priority < 0 ? 0.5 : 0;
  const double wait = WaitFor(part);
  if (level_ <= part * size_.depth || wait > 0) return {Verdict::kEmpty, wait};
  // A full bucket loses its incoming tokens, so it refuses nobody for its share.
  const double own_floor = std::min(part, 0.0) * size_.depth;
  const double own = accounts_[place];
  if (own > own_floor || tenants.size() < 2 || IsFull()) return {};
  const double own_wait = (own_floor - own) * static_cast<double>(tenants.size());
  return {Verdict::kShare, OwnWait(std::min(own_wait, size_.depth - level_) / size_.rate)};
}

void Bucket::Take(Place place, double seconds) {
  level_ -= seconds;
  accounts_[place] -= seconds;
  promises_.Add(seconds);
}

void Bucket::GiveBack(Place place, double seconds) {
  const double given = std::min(seconds, size_.depth - level_);
  level_ += given;
  accounts_[place] += given;
}

}  // namespace onepiece::admission
