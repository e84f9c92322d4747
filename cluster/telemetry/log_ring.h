// Keeps the last log lines of this process, for callers that ask for them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <stop_token>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "onepiece/v1/telemetry.pb.h"
#include "spdlog/sinks/sink.h"

namespace onepiece::telemetry {

/// A sink of spdlog. Lines below the logger's own level do not reach it. It keeps a bounded number
/// of lines, kDefaultCapacity unless told otherwise, of at most kMaxTextBytes each.
///
/// Threading: may be used from any thread.
/// Blocking: only WaitForNews() waits. A thread that logs never waits for a reader.
class LogRing final : public spdlog::sinks::sink {
 public:
  static constexpr std::size_t kDefaultCapacity = 1000;
  static constexpr std::size_t kMaxTextBytes = 4096;

  explicit LogRing(std::size_t capacity = kDefaultCapacity) : capacity_(capacity) {}

  void log(const spdlog::details::log_msg& message) override;
  void flush() override {}
  // Readers get the bare text and format it themselves.
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

  /// How far one reader has come.
  struct Cursor {
    v1::LogLevel min_level = v1::LOG_INFO;
    std::uint64_t passed = 0;  ///< Passed lines of at least that level, since the process started.
  };
  /// Returns a cursor before the last `backlog` lines of at least `min_level`. Lines that are no
  /// longer kept do not count.
  [[nodiscard]] Cursor Begin(v1::LogLevel min_level, std::size_t backlog) const;
  struct News {
    std::vector<v1::LogLine> lines;  ///< Oldest first.
    std::uint64_t dropped = 0;       ///< Lines before these that were gone before the reader came.
  };
  /// Returns the lines since the cursor, at most `most`, and moves the cursor.
  [[nodiscard]] News Take(Cursor& cursor, std::size_t most) const;
  /// Waits until Take() would return something, until `stop` is requested, or until `deadline` (on
  /// the system's clock) passes.
  void WaitForNews(const Cursor& cursor, const std::stop_token& stop,
                   base::MonotonicTime deadline) const;

 private:
  // How many lines had at least each level, v1::LOG_DEBUG first.
  using Counts = std::array<std::uint64_t, 4>;
  struct KeptLine {
    v1::LogLine line;
    Counts upto;  // Up to and including this line.
  };

  const std::size_t capacity_;
  mutable base::Mutex mutex_;
  mutable base::CondVar came_;
  std::deque<KeptLine> entries_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t number_ ABSL_GUARDED_BY(mutex_) = 0;
  Counts counts_ ABSL_GUARDED_BY(mutex_){};
};

}  // namespace onepiece::telemetry
