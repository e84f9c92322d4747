// The same clients for every kind of server: unary gRPC calls with bytes that are made beforehand.
// Internal to onepiece-bench-consensus.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"

namespace onepiece::bench {

/// How a write is asked for.
struct WriteCall {
  std::string method;  ///< "/package.Service/Method".
  /// The request, serialised, of the `sequence`-th write of a client.
  std::function<std::string(int client, std::uint64_t sequence)> request;
};

struct Load {
  double commits_per_s = 0;
  double p50_ms = 0, p99_ms = 0;
};

/// `clients` clients, each with one write in flight, over at most 16 connections to `address`.
/// A write that is refused (RESOURCE_EXHAUSTED) is asked for again at once, and takes so much
/// longer. Blocks for warm_up + window.
/// Errors: of the first write that fails otherwise.
absl::StatusOr<Load> RunLoad(const std::string& address, const WriteCall& write, int clients,
                             base::Duration warm_up, base::Duration window);

/// Asks every one of `addresses` for a write, again and again every 20 ms, until one has answered
/// OK. Returns the time from `start` to that answer. `begin` is called when all connections stand.
/// Errors: DEADLINE_EXCEEDED after 60 s.
absl::StatusOr<base::Duration> TimeToFirstWrite(const std::vector<std::string>& addresses,
                                                const WriteCall& write,
                                                const std::function<void()>& begin);

}  // namespace onepiece::bench
