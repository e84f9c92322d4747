#include "cluster/telemetry/log_ring.h"

#include <algorithm>
#include <chrono>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/utf8.h"

namespace onepiece::telemetry {
namespace {

constexpr std::string_view kCut = "…";

v1::LogLevel LevelOf(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace:
    case spdlog::level::debug:
      return v1::LOG_DEBUG;
    case spdlog::level::info:
      return v1::LOG_INFO;
    case spdlog::level::warn:
      return v1::LOG_WARNING;
    default:
      return v1::LOG_ERROR;
  }
}

std::size_t Index(v1::LogLevel level) { return static_cast<std::size_t>(level - v1::LOG_DEBUG); }

}  // namespace

void LogRing::log(const spdlog::details::log_msg& message) {
  const std::string_view text(message.payload.data(), message.payload.size());
  KeptLine entry;
  entry.line.set_level(LevelOf(message.level));
  entry.line.set_unix_ns(message.time.time_since_epoch() / std::chrono::nanoseconds(1));
  if (text.size() <= kMaxTextBytes) {
    entry.line.set_text(base::ToUtf8(text, kMaxTextBytes));
  } else {
    entry.line.set_text(base::ToUtf8(text, kMaxTextBytes - kCut.size()).append(kCut));
  }
  {
    const base::MutexLock lock(mutex_);
    entry.line.set_number(++number_);
    for (std::size_t i = 0; i <= Index(entry.line.level()); ++i) ++counts_[i];
    entry.upto = counts_;
    if (entries_.size() >= capacity_) entries_.pop_front();
    entries_.push_back(std::move(entry));
  }
  came_.NotifyAll();
}

LogRing::Cursor LogRing::Begin(v1::LogLevel min_level, std::size_t backlog) const {
  const std::size_t level = Index(min_level);
  const base::MutexLock lock(mutex_);
  std::uint64_t kept = 0;
  for (const KeptLine& entry : entries_) kept += entry.line.level() >= min_level ? 1 : 0;
  return {.min_level = min_level,
          .passed = counts_[level] - std::min<std::uint64_t>(kept, backlog)};
}

LogRing::News LogRing::Take(Cursor& cursor, std::size_t most) const {
  const std::size_t level = Index(cursor.min_level);
  News news;
  const base::MutexLock lock(mutex_);
  auto entry = std::ranges::partition_point(
      entries_, [&](const KeptLine& e) { return e.upto[level] <= cursor.passed; });
  for (; entry != entries_.end() && news.lines.size() < most; ++entry) {
    if (entry->line.level() < cursor.min_level) continue;
    news.dropped += entry->upto[level] - cursor.passed - 1;
    cursor.passed = entry->upto[level];
    news.lines.push_back(entry->line);
  }
  // No line of the reader's level is left, so all since its cursor were dropped.
  if (news.lines.empty() && most > 0) {
    news.dropped = counts_[level] - cursor.passed;
    cursor.passed = counts_[level];
  }
  return news;
}

void LogRing::WaitForNews(const Cursor& cursor, const std::stop_token& stop,
                          base::MonotonicTime deadline) const {
  base::MutexLock lock(mutex_);
  base::SystemClock().WaitUntil(came_, lock, stop, deadline,
                                [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                                  return counts_[Index(cursor.min_level)] > cursor.passed;
                                });
}

}  // namespace onepiece::telemetry
