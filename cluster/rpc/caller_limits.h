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
  static constexpr std::size_t kMaxCallers = 1 << 16;

  explicit CallerLimits(const base::Clock& clock, std::size_t max_callers = kMaxCallers)
      : clock_(clock), callers_(max_callers) {}

  void Follow(const v1::CallerLimits& limits);
  /// Decides about a call that begins.
  ///
  /// Errors: RESOURCE_EXHAUSTED (TOO_MANY_CALLS, TOO_MANY_CALLS_UNDER_WAY), which says what to do.
  /// They call the caller `shown`.
  absl::Status Admit(const std::string& caller, const std::string& shown);

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
    UnderWay(CallerLimits& limits, std::string caller)
        : limits_(&limits), caller_(std::move(caller)) {}
    CallerLimits* limits_ = nullptr;
    std::string caller_;  // Empty: it is among the others of the table.
  };
  /// Counts a call whose handler begins. Calls that begin in one moment may be a few more than the
  /// limit, because Admit() came before.
  [[nodiscard]] UnderWay Begin(const std::string& caller);

  [[nodiscard]] std::int64_t refused() const { return refused_.load(); }

 private:
  struct Account {
    TokenBucket bucket;
    std::int64_t under_way = 0;
    base::MonotonicTime next_say = base::MonotonicTime::min();
    [[nodiscard]] bool IsIdle(base::MonotonicTime now) const {
      return under_way == 0 && bucket.IsFull(now);
    }
  };
  absl::Status Refuse(Account& account, std::string_view reason, const std::string& message,
                      base::MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(const std::string& caller);

  const base::Clock& clock_;
  std::atomic<std::int64_t> refused_{0};
  base::Mutex mutex_;
  double calls_per_s_ ABSL_GUARDED_BY(mutex_) = kCallsPerS;
  double calls_burst_ ABSL_GUARDED_BY(mutex_) = kCallsBurst;
  int calls_under_way_ ABSL_GUARDED_BY(mutex_) = kCallsUnderWay;
  BoundedTable<Account> callers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::rpc
