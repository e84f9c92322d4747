// One side of a comparison: a process that has loaded a component and runs it on request. All
// sides, C++ and Python alike, speak the same lines over their standard streams ("run N", "output
// FILE", "memory").
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace onepiece::bench {

/// The process ends with this object.
///
/// Threading: thread-confined.
class Side {
 public:
  /// Starts `command` (found in PATH) and waits until it is ready.
  ///
  /// Errors: UNAVAILABLE (it cannot start or ends), DEADLINE_EXCEEDED.
  static absl::StatusOr<std::unique_ptr<Side>> Start(const std::vector<std::string>& command);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  /// Returns the seconds of one run, the mean of `count` runs.
  absl::StatusOr<double> Run(int count);
  /// Returns the peak bytes of loading and running, without code and libraries.
  absl::StatusOr<double> PeakMemory();
  /// Returns the output of a run as F32.
  absl::StatusOr<std::vector<float>> Output(const std::string& scratch_file);

 private:
  Side() = default;
  absl::StatusOr<std::string> Ask(const std::string& line);
  absl::StatusOr<std::string> ReadLine();
  absl::StatusOr<double> AskNumber(const std::string& line);

  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::string buffer_;
};

/// Runs the process of a C++ side. `arguments` are SIDE ("ours" or "port") MODEL_DIR COMPONENT
/// INPUTS THREADS. Returns its exit code.
int RunSide(const std::vector<std::string>& arguments);

}  // namespace onepiece::bench
