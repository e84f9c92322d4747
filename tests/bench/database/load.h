// One turn of a measurement: every client puts its share of the values, then gets them. Internal to
// onepiece-bench-database.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "tests/bench/database/store.h"

namespace onepiece::bench {

/// Of one kind of operation.
struct Phase {
  double rate = 0;  ///< Operations a second, of all clients.
  double p50_us = 0, p99_us = 0;
  double cpu_us = 0;  ///< Of an operation, server and clients together.
};

struct Turn {
  Phase put, get;
  double memory_ratio = 0;  ///< Bytes that the server grew by for each byte that was put.
};

struct TurnOptions {
  int clients = 2;
  std::size_t values = 0;
};

/// Clears the store afterwards. Errors: of the first operation that fails.
absl::StatusOr<Turn> RunTurn(Store& store, const Value& value, const TurnOptions& options);

}  // namespace onepiece::bench
