// Reads the logs of several processes as one stream.
//
// Threading: may be used from any thread. It has one thread for each process that it follows.
// Blocking: the destructor cancels the calls and waits for the threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "onepiece/v1/node_manager.pb.h"
#include "onepiece/v1/telemetry.pb.h"

namespace onepiece::session {

struct LogEntry {
  std::string node_id;
  v1::LogLine line;
};

class LogTail {
 public:
  /// The largest number of lines that wait for Take(). Beyond it the oldest are dropped and
  /// counted.
  static constexpr std::size_t kMaxWaiting = 20'000;
  static constexpr std::size_t kMaxProcesses = 64;

  LogTail(v1::LogLevel min_level, int backlog, std::string user_agent);
  ~LogTail();
  LogTail(const LogTail&) = delete;
  LogTail& operator=(const LogTail&) = delete;

  /// Follows the first kMaxProcesses of `nodes`. It stops following processes that are no longer
  /// named. New ones begin with the backlog.
  void Follow(const std::vector<v1::Node>& nodes);
  struct News {
    std::vector<LogEntry> entries;  ///< The lines that have come, sorted by time.
    std::uint64_t dropped = 0;      ///< Lines dropped by servers or here since the last Take().
    std::vector<std::pair<std::string, std::string>> unreachable;  ///< Node id and why.
  };
  News Take();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace onepiece::session
