// One turn of a measurement: every client puts its share of the values and then gets them. Internal
// to onepiece-bench-database.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/bench/database/store.h"

namespace onepiece::bench {

/// The results of one kind of operation.
struct Phase {
  double rate = 0;  ///< Operations a second of all clients together.
  double p50_us = 0, p99_us = 0;
  double cpu_us = 0;  ///< For an operation, by server and clients together.
};

struct Turn {
  Phase put, get;
  double memory_ratio = 0;  ///< Growth of the server in bytes for each byte that was put.
};

using Sessions = std::vector<std::unique_ptr<Session>>;

/// Clears the store afterwards. A put phase ends when the last values can be read.
///
/// Errors: that of the first operation that fails.
absl::StatusOr<Turn> RunTurn(Store& store, Sessions& sessions, const Value& value,
                             std::size_t values);

}  // namespace onepiece::bench
