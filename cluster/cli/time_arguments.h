// Times and spans of time on the command line.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/timestamp.pb.h"

namespace onepiece::cli {

/// Parses a time in RFC 3339 or its beginning (UTC when it names no zone), or how long ago: "90s",
/// "15m", "2h", "30d".
///
/// Errors: INVALID_ARGUMENT, which names `flag`.
absl::StatusOr<google::protobuf::Timestamp> ParseTime(const std::string& flag,
                                                      const std::string& text);
/// Parses a span of time above 0: "90s", "15m", "1h30m", "30d".
///
/// Errors: INVALID_ARGUMENT, which names `flag`.
absl::StatusOr<absl::Duration> ParseSpan(const std::string& flag, const std::string& text);

/// Parses the beginning that `--since` names, in milliseconds since 1970. Empty: 0.
///
/// Errors: as ParseTime().
absl::StatusOr<std::int64_t> ParseSinceUnixMs(const std::string& text);

}  // namespace onepiece::cli
