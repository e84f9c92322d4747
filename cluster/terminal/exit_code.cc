#include "cluster/terminal/exit_code.h"

#include "cluster/base/status.h"

namespace onepiece::terminal {

std::string ExitCodesHelp() {
  return "Exit codes:\n"
         "  0 ok                    5 permission\n"
         "  1 failure              69 cluster unavailable\n"
         "  2 usage                75 deadline, or retry later\n"
         "  3 not found            78 bad configuration\n"
         "  4 precondition        130 interrupted\n"
         "\nEnvironment: ONEPIECE_DATA_DIR, ONEPIECE_NODEMANAGER, ONEPIECE_PROXIES, "
         "ONEPIECE_BIN_DIR,\n"
         "ONEPIECE_RESOURCE_DIR, ONEPIECE_TIME_SCALE (multiplies every timeout), "
         "ONEPIECE_LOG_LEVEL. Flags go before "
         "variables.";
}

int ExitCodeOf(const absl::Status& status) {
  const std::string reason = base::GetReason(status).reason;
  if (reason == "INTERRUPTED") return kInterrupted;
  if (reason == "BAD_CONFIG" || reason == "BAD_WORKFLOW") return kBadConfig;
  if (reason == "DEADLINE_TOO_SHORT") return kRetryLater;
  if (reason == "DISK_FULL" || reason == "START_FAILED") return kFailure;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return kUsage;
    case absl::StatusCode::kNotFound:
      return kNotFound;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kAlreadyExists:
      return kPrecondition;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kPermission;
    case absl::StatusCode::kUnavailable:
      return kUnavailable;
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
      return kRetryLater;
    default:
      return kFailure;
  }
}

absl::Status UsageError(std::string_view message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "USAGE", message);
}

}  // namespace onepiece::terminal
