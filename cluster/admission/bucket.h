// The request monitor's arithmetic for one pool: its tokens, and which tenant they belong to.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "cluster/admission/promises.h"
#include "cluster/base/clock.h"

namespace onepiece::admission {

/// The number of tenants that are told apart. All others share one place.
inline constexpr std::size_t kMaxTenants = 64;
/// The index of a tenant, 0 to kMaxTenants, which is the same in every bucket.
using Place = std::size_t;

/// A bucket of tokens, in worker seconds. Tokens come in at `rate` up to `depth`.
///
/// Each tenant has an account, and the level is the sum of the accounts. The incoming tokens are
/// shared equally by the accounts that are not full, so a share that one tenant does not use goes
/// to the others (max-min fairness). What a tenant takes comes off its own account and off the
/// level.
///
/// The bucket is one proxy's part of a pool. What all proxies have promised of the pool comes
/// before a new job too: nothing is admitted while that is more than the whole pool's depth.
///
/// Threading: needs external synchronisation. It has no clock, and `now` must never go back.
/// Invariants: level() <= depth. A job is admitted while the level is above 0, and the level then
/// falls by the job's cost. Over any time t, at most rate × t + depth + one job comes out, and
/// `depth` more for priorities above 0.
class Bucket {
 public:
  struct Size {
    double rate = 0;   ///< Worker seconds per second. 0 means that nobody works.
    double depth = 0;  ///< Worker seconds. Above 0 if the rate is.
    double job = 0;    ///< An account may save up this much even when `depth` is less.
    int trials = 1;    ///< The largest number of jobs of unknown cost that are under way.
    /// Those of the whole pool, of which this proxy has a share: at least `rate` and `depth`.
    double pool_rate = 0, pool_depth = 0;
  };
  enum class Verdict { kTake, kEmpty, kShare };
  struct Answer {
    Verdict verdict = Verdict::kTake;
    double wait_s = 0;  ///< Until the answer may change, if nobody else takes tokens.
  };

  /// Begins full.
  Bucket(std::string pool, const Size& size, base::MonotonicTime now);

  /// Changes the size and keeps the level, up to the new depth.
  void Resize(const Size& size, base::MonotonicTime now);
  /// Lowers the level to `most` when it is above it. `most` may be below 0. What goes is taken from
  /// the tenants that have saved up tokens, in proportion.
  void Lower(double most, base::MonotonicTime now);
  /// Answers whether the tenant at `place` may have tokens. `tenants` are the places that have an
  /// account, including this one.
  Answer Ask(Place place, std::span<const Place> tenants, int priority, base::MonotonicTime now);
  void Take(Place place, double seconds);
  /// Takes back tokens that the tenant at `place` did not use.
  void GiveBack(Place place, double seconds);
  /// A job that took `seconds` has ended.
  void End(double seconds) { promises_.End(seconds); }
  /// Takes what the other proxies have promised, in worker seconds.
  void SetOthers(double seconds, base::MonotonicTime now);
  /// These count jobs of unknown cost: whether one more may begin, that one begins, that one ended.
  [[nodiscard]] bool MayTry() const { return trying_ < size_.trials; }
  void Try() { ++trying_; }
  void EndTry() { --trying_; }
  /// Adds the tokens that have come in since the last call.
  void Refill(base::MonotonicTime now);

  /// Returns the seconds for which the pool is busy with work that was admitted too early, here or
  /// by another proxy, as of the last Refill().
  [[nodiscard]] double DebtWait() const { return size_.rate > 0 ? WaitFor(0) : 0; }
  /// Returns the work that was admitted here and that the pool still has to do, as of the last
  /// Refill().
  [[nodiscard]] double promised() const { return promises_.own(); }
  /// Returns true when the bucket holds nothing that must be remembered.
  [[nodiscard]] bool IsIdle() const { return IsFull() && trying_ == 0; }
  [[nodiscard]] bool Owes(Place place) const { return accounts_[place] < 0; }
  void ForgetTenant(Place place) { accounts_[place] = 0; }
  [[nodiscard]] const std::string& pool() const { return pool_; }
  [[nodiscard]] double level() const { return level_; }

 private:
  [[nodiscard]] bool IsFull() const { return level_ >= size_.depth; }
  void Share(std::span<const Place> tenants);
  // The time until own tokens and the pool's are above `part` of their depths. REQUIRES: rate > 0.
  [[nodiscard]] double WaitFor(double part) const;
  // A wait of this proxy's share alone.
  [[nodiscard]] double OwnWait(double wait_s) const;

  const std::string pool_;
  Size size_;
  int trying_ = 0;
  double level_ = 0;
  Promises promises_;
  base::MonotonicTime backlog_until_{};  // When the queue will be short enough, as last reported.
  base::MonotonicTime filled_at_;
  std::array<double, kMaxTenants + 1> accounts_{};
};

}  // namespace onepiece::admission
