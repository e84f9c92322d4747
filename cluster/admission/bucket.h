// The tokens of one pool, and which tenant they belong to: the arithmetic of the request monitor.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "cluster/base/clock.h"

namespace onepiece::admission {

/// Tenants that are told apart; all others have one place together.
inline constexpr std::size_t kMaxTenants = 64;
/// Of a tenant, the same in every bucket: 0 to kMaxTenants.
using Place = std::size_t;

/// Tokens in worker seconds. They come in at `rate` up to `depth`. Each tenant has an account: what
/// comes in is shared equally by the accounts that are not full, so that a share that somebody does
/// not use is the others' (max-min fairness); what a tenant takes comes off its own account and off
/// the level, which is the sum of the accounts.
///
/// Threading  Thread-compatible. No clock of its own; `now` never goes back.
/// Invariant  level() <= depth. A job is let in above 0 and the level then falls by what it costs:
///            over any time t no more than rate × t + depth + one job comes out (priorities above
///            0: and `depth` again).
class Bucket {
 public:
  struct Size {
    double rate = 0;   ///< Worker seconds a second; 0: nobody works.
    double depth = 0;  ///< Worker seconds, above 0 where the rate is.
    double job = 0;    ///< An account may save up this much even when `depth` is less.
    int trials = 1;    ///< Jobs of unknown cost that may be under way.
  };
  enum class Verdict { kTake, kEmpty, kShare };
  struct Answer {
    Verdict verdict = Verdict::kTake;
    double wait_s = 0;  ///< Until another answer may come, when nobody else takes any.
  };

  /// Full.
  Bucket(std::string pool, const Size& size, base::MonotonicTime now);

  /// Keeps the level, which never exceeds the depth.
  void Resize(const Size& size, base::MonotonicTime now);
  /// Nothing comes out before `until`.
  void CloseUntil(base::MonotonicTime until) { closed_until_ = until; }
  /// May the tenant at `place` have tokens? `tenants`: the places that have an account, this one
  /// among them.
  Answer Ask(Place place, std::span<const Place> tenants, int priority, base::MonotonicTime now);
  void Take(Place place, double seconds);
  /// Tokens that the tenant at `place` took in vain.
  void GiveBack(Place place, double seconds);
  /// One more job of unknown cost may begin; does; has ended.
  [[nodiscard]] bool MayTry() const { return trying_ < trials_; }
  void Try() { ++trying_; }
  void EndTry() { --trying_; }
  /// Takes in what has come in since the last call.
  void Refill(base::MonotonicTime now);

  /// How long the work that was let in too early keeps the pool busy (s); as of the last Refill.
  [[nodiscard]] double DebtWait() const { return level_ < 0 && rate_ > 0 ? -level_ / rate_ : 0; }
  /// Nothing is worth being remembered.
  [[nodiscard]] bool IsIdle() const { return IsFull() && trying_ == 0; }
  [[nodiscard]] bool Owes(Place place) const { return accounts_[place] < 0; }
  void ForgetTenant(Place place) { accounts_[place] = 0; }
  [[nodiscard]] const std::string& pool() const { return pool_; }
  [[nodiscard]] double level() const { return level_; }

 private:
  [[nodiscard]] bool IsFull() const { return level_ >= depth_; }
  void Share(std::span<const Place> tenants);

  const std::string pool_;
  double rate_ = 0, depth_ = 0, job_ = 0;
  int trials_ = 1, trying_ = 0;
  double level_ = 0;
  base::MonotonicTime filled_at_, closed_until_;
  std::array<double, kMaxTenants + 1> accounts_{};
};

}  // namespace onepiece::admission
