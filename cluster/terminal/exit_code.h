// The exit codes of every OnePiece command (docs/operation.md), and which error means which code.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace onepiece::terminal {

enum ExitCode : int {
  kOk = 0,
  kFailure = 1,
  kUsage = 2,
  kNotFound = 3,
  kPrecondition = 4,
  kPermission = 5,
  kUnavailable = 69,
  kRetryLater = 75,
  kBadConfig = 78,
  kInterrupted = 130,
};

/// Returns the table of exit codes, for --help.
std::string ExitCodesHelp();

/// Returns the exit code that stands for an error.
int ExitCodeOf(const absl::Status& status);

/// Returns INVALID_ARGUMENT (USAGE): the arguments do not fit together.
absl::Status UsageError(std::string_view message);

}  // namespace onepiece::terminal
