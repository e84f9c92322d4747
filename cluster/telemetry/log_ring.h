// The last log lines of this process, for those who ask for them.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <stop_token>
#include <vector>

#include "cluster/base/clock.h"
#include "onepiece/v1/telemetry.pb.h"
#include "spdlog/sinks/sink.h"

namespace onepiece::telemetry {

/// A sink of spdlog. Lines that the logger's own level keeps out do not come here.
///
/// Threading  Thread-safe.
/// Blocking   Only WaitForNews() waits. Whoever logs waits for nobody who reads.
/// Bounds     kDefaultCapacity lines of kMaxTextBytes.
class LogRing final : public spdlog::sinks::sink {
 public:
  static constexpr std::size_t kDefaultCapacity = 1000;
  static constexpr std::size_t kMaxTextBytes = 4096;

  explicit LogRing(std::size_t capacity = kDefaultCapacity) : capacity_(capacity) {}

  void log(const spdlog::details::log_msg& message) override;
  void flush() override {}
  // Readers get what was said and format it themselves.
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

  /// How far one reader has come.
  struct Cursor {
    v1::LogLevel min_level = v1::LOG_INFO;
    std::uint64_t passed = 0;  ///< Lines of at least that level, since the process began.
  };
  /// Before the last `backlog` lines of at least `min_level`, as far as they are kept.
  [[nodiscard]] Cursor Begin(v1::LogLevel min_level, std::size_t backlog) const;
  struct News {
    std::vector<v1::LogLine> lines;  ///< Oldest first.
    std::uint64_t dropped = 0;       ///< Before these, gone before the reader came.
  };
  /// What has come since, at most `most` lines; moves the cursor.
  [[nodiscard]] News Take(Cursor& cursor, std::size_t most) const;
  /// Waits until Take() would give something, `stop` is requested or `deadline` (of the system's
  /// clock) passes.
  void WaitForNews(const Cursor& cursor, const std::stop_token& stop,
                   base::MonotonicTime deadline) const;

 private:
  // Lines of at least each level, v1::LOG_DEBUG first.
  using Counts = std::array<std::uint64_t, 4>;
  struct Entry {
    v1::LogLine line;
    Counts upto;  // This line included.
  };

  const std::size_t capacity_;
  mutable std::mutex mutex_;
  mutable std::condition_variable_any came_;
  // Guarded by mutex_.
  std::deque<Entry> entries_;
  std::uint64_t number_ = 0;
  Counts counts_{};
};

}  // namespace onepiece::telemetry
