// The logs of several processes as one stream.
//
// Threading  Thread-safe; one thread for each process followed.
// Blocking   The destructor cancels the calls and waits for the threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "onepiece/v1/node_manager.pb.h"
#include "onepiece/v1/telemetry.pb.h"

namespace onepiece::gui {

struct LogEntry {
  std::string node_id;
  v1::LogLine line;
};

class LogTail {
 public:
  static constexpr std::size_t kMaxWaiting =
      20'000;  ///< Lines not taken; then the oldest are dropped, counted.
  static constexpr std::size_t kMaxProcesses = 64;

  LogTail(v1::LogLevel min_level, int backlog, std::string user_agent);
  ~LogTail();
  LogTail(const LogTail&) = delete;
  LogTail& operator=(const LogTail&) = delete;

  /// Follows the first kMaxProcesses of these; those that are no longer named are left, new ones
  /// begin with the backlog.
  void Follow(const std::vector<v1::Node>& nodes);
  struct News {
    std::vector<LogEntry> entries;  ///< By time, as far as they have come.
    std::uint64_t dropped = 0;      ///< By servers or here, since the last Take.
    std::vector<std::pair<std::string, std::string>> unreachable;  ///< Node id and why.
  };
  News Take();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace onepiece::gui
