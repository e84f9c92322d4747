#include "cluster/cli/time_arguments.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cluster/terminal/exit_code.h"
#include "google/protobuf/util/time_util.h"

namespace onepiece::cli {
namespace {

/// Days too, which absl::ParseDuration() does not know.
bool ReadSpan(const std::string& text, absl::Duration& span) {
  double days = 0;
  if (text.ends_with('d') && absl::SimpleAtod(text.substr(0, text.size() - 1), &days)) {
    if (!(days >= 0 && days <= 100'000)) return false;
    span = days * absl::Hours(24);
    return true;
  }
  return absl::ParseDuration(text, &span);
}

}  // namespace

absl::StatusOr<google::protobuf::Timestamp> ParseTime(const std::string& flag,
                                                      const std::string& text) {
  using google::protobuf::util::TimeUtil;
  absl::Time time;
  std::string ignored;
  absl::Duration ago;
  for (const char* format : {"%Y-%m-%dT%H:%M:%E*S%Ez", "%Y-%m-%dT%H:%M:%E*SZ",
                             "%Y-%m-%dT%H:%M:%E*S", "%Y-%m-%d %H:%M:%E*S", "%Y-%m-%d"}) {
    if (absl::ParseTime(format, text, absl::UTCTimeZone(), &time, &ignored))
      return TimeUtil::NanosecondsToTimestamp(absl::ToUnixNanos(time));
  }
  if (ReadSpan(text, ago) && ago >= absl::ZeroDuration())
    return TimeUtil::NanosecondsToTimestamp(absl::ToUnixNanos(absl::Now() - ago));
  return terminal::UsageError(absl::StrCat(flag,
                                           ": a time (2026-01-31T12:00:00Z) or how long ago (15m), "
                                           "not \"",
                                           text, "\""));
}

absl::StatusOr<absl::Duration> ParseSpan(const std::string& flag, const std::string& text) {
  absl::Duration span;
  if (ReadSpan(text, span) && span > absl::ZeroDuration() && span < absl::InfiniteDuration())
    return span;
  return terminal::UsageError(
      absl::StrCat(flag, ": a span of time above 0 (90s, 15m, 2h, 30d), not \"", text, "\""));
}

absl::StatusOr<std::int64_t> ParseSinceUnixMs(const std::string& text) {
  if (text.empty()) return std::int64_t{0};
  const auto time = ParseTime("--since", text);
  if (!time.ok()) return time.status();
  return google::protobuf::util::TimeUtil::TimestampToMilliseconds(*time);
}

}  // namespace onepiece::cli
