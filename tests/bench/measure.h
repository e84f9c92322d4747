// Starts, runs and reads the processes of one measurement. Internal to onepiece-bench.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/bench/port.h"

namespace onepiece::bench {

enum class Kind : std::uint8_t {
  kStream,   ///< Messages a second: producers send as fast as they can.
  kLatency,  ///< Microseconds one way, half of a round trip, one message at a time; median.
  kWakeUp,   ///< Microseconds until a receiver that slept has one message; median.
  kIdle,     ///< Percent of one core that a waiting receiver uses.
};

struct Measurement {
  std::string port;  ///< The measured port, by the name that OpenPort takes.
  Kind kind = Kind::kStream;
  std::size_t message_bytes = 64;
  int producers = 1;
  Mode mode;
  Nanoseconds window =
      std::chrono::milliseconds(150);  ///< The time of the measurement, after a warm-up.
};

/// Runs the processes of one measurement, and returns its number.
absl::StatusOr<double> Measure(const Measurement& measurement);

/// Does the work of a process of a measurement. Measure made the `arguments`. Returns the exit
/// code.
int RunChild(const std::vector<std::string>& arguments);

/// REQUIRES: values is not empty.
double Median(std::vector<double> values);

}  // namespace onepiece::bench
