// Spans say what a process did for a job, and when (docs/operation.md, "Traces").
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "onepiece/v1/telemetry.pb.h"

namespace onepiece::telemetry {

/// Keeps the last spans of this process. New spans replace the oldest ones.
///
/// Ownership: borrows `clock`, which must outlive it.
/// Threading: may be used from any thread. Find() looks at every span, so it is for questions of
/// people and not for the path of a job.
class Spans {
 public:
  static constexpr std::size_t kDefaultCapacity = 65536;

  explicit Spans(std::string node, base::Clock& clock = base::SystemClock(),
                 std::size_t capacity = kDefaultCapacity);

  /// Records `span` under `uid`, and sets its uid and node fields. Attributes beyond 16, and bytes
  /// of a value beyond 256, are dropped.
  void Record(const base::Uid& uid, v1::Span span);
  /// Returns the spans of one job, sorted by start.
  [[nodiscard]] std::vector<v1::Span> Find(const base::Uid& uid) const;
  [[nodiscard]] base::Clock& clock() const { return clock_; }

 private:
  const std::string node_;
  base::Clock& clock_;
  const std::size_t capacity_;
  mutable base::Mutex mutex_;
  // Oldest record first.
  std::deque<std::pair<base::Uid, v1::Span>> spans_ ABSL_GUARDED_BY(mutex_);
};

/// Records the time from its construction to its destruction.
///
/// Threading: used by one thread.
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

/// Writes spans of any processes as Chrome trace events (JSON object format), for about:tracing or
/// Perfetto. Each node is a process row, and each stage and operation is a thread row. Times are
/// relative to the first span.
std::string WriteChromeTrace(std::span<const v1::Span> spans);

}  // namespace onepiece::telemetry
