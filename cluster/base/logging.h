// Logging through spdlog, set up once by each program.
//
// Text on a terminal; elsewhere one JSON object a line: ts, level, node, op, message. Call sites
// use the spdlog functions themselves (spdlog::info("…{}", x)); "uid=… stage=…" go into the
// message.
#pragma once

#include <string_view>

namespace onepiece::base {

/// Sends the process's logs to stderr under the name `node`. The level is $ONEPIECE_LOG_LEVEL
/// (trace … error, default info). Call once, before other threads start.
void InitLogging(std::string_view node);

/// Logs `line` like spdlog::warn. For code that includes LibTorch: LibTorch 2 brings headers of
/// another fmt than spdlog is built with, so the two cannot be included together.
void LogWarning(std::string_view line);

}  // namespace onepiece::base
