// How often one caller may call, and how many of its calls may be under way.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/rpc/bounded_table.h"
#include "cluster/rpc/token_bucket.h"
#include "onepiece/v1/cluster_config.pb.h"

namespace onepiece::rpc {

/// Decides which calls a server answers. The limits are the cluster's (v1::CallerLimits). The door
/// asks for each call, and says who the caller is; nodes are not asked about.
///
/// Ownership: borrows the clock.
/// Threading: thread-safe.
class CallerLimits {
 public:
  static constexpr double kCallsPerS = 1000, kCallsBurst = 2000;
  static constexpr int kCallsUnderWay = 1000;
  /// Of those that are no streams. Each holds a thread, and these are half of
  /// ServerOptions::max_threads.
  static constexpr int kUnaryUnderWay = 128;
  /// Of a caller that shows nothing, on one connection. Its calls are answered at once.
  static constexpr int kStrangersCallsUnderWay = 10;
  static constexpr std::size_t kMaxCallers = 1 << 16;

  explicit CallerLimits(const base::Clock& clock, std::size_t max_callers = kMaxCallers)
      : clock_(clock), principals_(max_callers), strangers_(max_callers) {}

  void Follow(const v1::CallerLimits& limits);
  /// Whose call it is.
  struct Caller {
    std::string account;       ///< Under which it is counted.
    std::string name;          ///< What refusals call it.
    bool is_stranger = false;  ///< It shows nothing; the account is one connection's.
    bool is_stream = false;    ///< The call is one.
  };
  /// Decides about a call whose head has come. From now on it counts as under way, until its
  /// handler has ended. Nobody tells when a call ends whose request never comes: a principal's is
  /// forgotten after one or two minutes, a stranger's when its connection has been silent for 10
  /// minutes.
  ///
  /// Errors: RESOURCE_EXHAUSTED (TOO_MANY_CALLS, TOO_MANY_CALLS_UNDER_WAY), which says what to do.
  absl::Status Admit(const Caller& caller);

  /// A call that is under way, until it is destroyed. It may be empty.
  ///
  /// Ownership: borrows the limits.
  /// Threading: used by one thread at a time.
  class UnderWay {
   public:
    UnderWay() = default;
    UnderWay(UnderWay&& other) noexcept
        : limits_(std::exchange(other.limits_, nullptr)), caller_(std::move(other.caller_)) {}
    UnderWay& operator=(UnderWay&& other) noexcept {
      std::swap(limits_, other.limits_);
      std::swap(caller_, other.caller_);
      return *this;
    }
    ~UnderWay();

   private:
    friend class CallerLimits;
    UnderWay(CallerLimits& limits, Caller caller) : limits_(&limits), caller_(std::move(caller)) {}
    CallerLimits* limits_ = nullptr;
    Caller caller_;  // Without an account: it is among the others of the table.
  };
  /// The handler of an admitted call begins.
  [[nodiscard]] UnderWay Begin(const Caller& caller);

  [[nodiscard]] std::int64_t refused() const { return refused_.load(); }

 private:
  struct Calls {
    std::int64_t running = 0;              // Their handlers do.
    std::int64_t waiting = 0, waited = 0;  // For their requests: since Account::turned, and before.
    [[nodiscard]] std::int64_t sum() const { return running + waiting + waited; }
    void BeginOne();
  };
  struct Account {
    TokenBucket bucket;
    Calls streams, others;
    base::MonotonicTime turned = base::MonotonicTime::min();
    base::MonotonicTime next_say = base::MonotonicTime::min();
    Calls& Of(bool is_stream) { return is_stream ? streams : others; }
    [[nodiscard]] std::int64_t calls() const { return streams.sum() + others.sum(); }
    [[nodiscard]] bool IsIdle(base::MonotonicTime now) const;
    /// Forgets who has waited too long.
    void Turn(bool is_stranger, base::MonotonicTime now);
  };
  using Accounts = BoundedTable<Account>;
  absl::Status Refuse(Account& account, std::string_view reason, const std::string& message,
                      base::MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(const Caller& caller);
  // Strangers have a table of their own, so that they never take the principals' places.
  Accounts& AccountsOf(bool is_stranger) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return is_stranger ? strangers_ : principals_;
  }

  const base::Clock& clock_;
  std::atomic<std::int64_t> refused_{0};
  base::Mutex mutex_;
  double calls_per_s_ ABSL_GUARDED_BY(mutex_) = kCallsPerS;
  double calls_burst_ ABSL_GUARDED_BY(mutex_) = kCallsBurst;
  int calls_under_way_ ABSL_GUARDED_BY(mutex_) = kCallsUnderWay;
  Accounts principals_ ABSL_GUARDED_BY(mutex_), strangers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::rpc
