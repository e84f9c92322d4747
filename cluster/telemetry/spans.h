// Traces: what a process did for a job and when (DESIGN §13, `onepiece get UID --trace`).
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "onepiece/v1/telemetry.pb.h"

namespace onepiece::telemetry {

/// The last spans of this process; the oldest give way.
///
/// Ownership  Borrows `clock`, which outlives it.
/// Threading  Thread-safe. Find() looks at every span: it is for people who ask, not for a job's
/// path.
class Spans {
 public:
  static constexpr std::size_t kDefaultCapacity = 65536;

  explicit Spans(std::string node, base::Clock& clock = base::SystemClock(),
                 std::size_t capacity = kDefaultCapacity);

  /// Records `span` under `uid`; its uid and node fields are set here. Attributes beyond 16, and
  /// the part of a value beyond 256 bytes, are dropped.
  void Record(const base::Uid& uid, v1::Span span);
  /// The spans of one job, oldest start first.
  [[nodiscard]] std::vector<v1::Span> Find(const base::Uid& uid) const;
  [[nodiscard]] base::Clock& clock() const { return clock_; }

 private:
  const std::string node_;
  base::Clock& clock_;
  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::deque<std::pair<base::Uid, v1::Span>> spans_;  // Guarded by mutex_; oldest record first.
};

/// Records the time from its construction to its destruction. Thread-confined.
class ScopedSpan {
 public:
  ScopedSpan(Spans& spans, const base::Uid& uid, std::string_view operation,
             std::string_view stage = {});
  ~ScopedSpan();
  ScopedSpan(const ScopedSpan&) = delete;
  ScopedSpan& operator=(const ScopedSpan&) = delete;
  void Set(std::string_view attribute, std::string_view value);

 private:
  Spans& spans_;
  const base::Uid uid_;
  v1::Span span_;
};

/// Spans of any processes as Chrome trace events (JSON object format), for about:tracing or
/// Perfetto: one process row per node, one thread row per stage and operation, times relative to
/// the first span.
std::string WriteChromeTrace(std::span<const v1::Span> spans);

}  // namespace onepiece::telemetry
