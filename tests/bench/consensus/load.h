// The same clients serve every kind of server. They make unary gRPC calls with bytes that are
// prepared beforehand. Internal to onepiece-bench-consensus.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"

namespace onepiece::bench {

/// The form of a write.
struct WriteCall {
  std::string method;  ///< "/package.Service/Method".
  /// The request, serialised, of the `sequence`-th write of a client.
  std::function<std::string(int client, std::uint64_t sequence)> request;
};

struct Load {
  double commits_per_s = 0;
  double p50_ms = 0, p99_ms = 0;
};

/// `clients` clients, each with one write in flight, over at most 16 connections to `address`. A
/// refused write (RESOURCE_EXHAUSTED) is retried immediately, and its time includes the retries.
///
/// Blocking: warm_up + window.
///
/// Errors: that of the first write that fails in another way.
absl::StatusOr<Load> RunLoad(const std::string& address, const WriteCall& write, int clients,
                             base::Duration warm_up, base::Duration window);

/// Asks each of `addresses` for a write every 20 ms, until one answers OK. Returns the time from
/// `start` to that answer. Calls `begin` when all connections are up.
///
/// Errors: DEADLINE_EXCEEDED after 60 s.
absl::StatusOr<base::Duration> TimeToFirstWrite(const std::vector<std::string>& addresses,
                                                const WriteCall& write,
                                                const std::function<void()>& begin);

}  // namespace onepiece::bench
