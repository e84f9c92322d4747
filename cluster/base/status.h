// absl::Status with a machine-readable reason, and the two macros that pass a status up.
//
// Every expected error of the project is an absl::Status. A caller that must branch on more than
// the code reads the reason, an UPPER_SNAKE_CASE word such as RING_FULL; cluster/rpc carries it as
// google.rpc.ErrorInfo.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace onepiece::base {

/// What google.rpc.ErrorInfo holds besides the domain, which is always "onepiece".
struct ErrorReason {
  std::string reason;  ///< UPPER_SNAKE_CASE, stable across releases.
  std::map<std::string, std::string>
      metadata;  ///< Names the thing that is wrong: {"field","steps"}.
};

/// Makes an error with a reason. REQUIRES: code is not kOk.
absl::Status MakeError(absl::StatusCode code, std::string_view reason, std::string_view message,
                       std::map<std::string, std::string> metadata = {});

/// The reason that MakeError or the wire attached; an empty one where there is none.
ErrorReason GetReason(const absl::Status& status);

/// Attaches a reason to an existing error, replacing any it has.
void SetReason(absl::Status& status, const ErrorReason& reason);

/// The same error with "context: " before its message, code and reason kept.
absl::Status Annotate(const absl::Status& status, std::string_view context);

/// std::string_view of an absl::string_view; on Debian 12 they are different types.
inline std::string_view View(absl::string_view text) { return {text.data(), text.size()}; }
/// The other direction.
inline absl::string_view AbslView(std::string_view text) { return {text.data(), text.size()}; }
/// A status's message as std::string.
inline std::string Message(const absl::Status& status) {
  return std::string(View(status.message()));
}

}  // namespace onepiece::base

#define ONEPIECE_CONCAT_INNER(a, b) a##b
#define ONEPIECE_CONCAT(a, b) ONEPIECE_CONCAT_INNER(a, b)

/// Returns the status from the enclosing function when it is an error.
#define ONEPIECE_RETURN_IF_ERROR(expression)                                    \
  do {                                                                          \
    if (::absl::Status onepiece_status = (expression); !onepiece_status.ok()) { \
      return onepiece_status;                                                   \
    }                                                                           \
  } while (false)

/// Assigns the value of a StatusOr to `target`, or returns its error.
#define ONEPIECE_ASSIGN_OR_RETURN(target, expression) \
  ONEPIECE_ASSIGN_OR_RETURN_INNER(ONEPIECE_CONCAT(onepiece_result_, __LINE__), target, expression)
#define ONEPIECE_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                       \
  if (!result.ok()) return result.status();                         \
  target = std::move(result).value()
