// One side of a comparison: a process that has a component loaded and runs it when told to. All
// sides speak the same lines over their standard streams ("run N", "output FILE", "memory"), C++
// and Python alike.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace onepiece::bench {

/// Not thread-safe. The process ends with this object.
class Side {
 public:
  /// Starts `command` (found in PATH) and waits until it is ready.
  /// Errors: UNAVAILABLE (it cannot start or ends), DEADLINE_EXCEEDED.
  static absl::StatusOr<std::unique_ptr<Side>> Start(const std::vector<std::string>& command);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  /// Seconds of one run, the mean of `count`.
  absl::StatusOr<double> Run(int count);
  /// Bytes that loading and running took at most, code and libraries aside.
  absl::StatusOr<double> PeakMemory();
  /// The output of a run as F32.
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

/// The process of a C++ side: `arguments` are SIDE ("ours" or "port") MODEL_DIR COMPONENT INPUTS
/// THREADS. Returns its exit code.
int RunSide(const std::vector<std::string>& arguments);

}  // namespace onepiece::bench
