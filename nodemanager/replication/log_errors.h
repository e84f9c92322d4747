// The errors of a replicated log that several of its classes return. Private to this folder.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"

namespace onepiece::nodemanager {

inline absl::Status OutcomeUnknown(std::string_view why) {
  return base::MakeError(absl::StatusCode::kUnavailable, "OUTCOME_UNKNOWN",
                         absl::StrCat("the command may still be applied (", std::string(why),
                                      "): ask again with the same request_id"));
}

inline absl::Status NotInTime() {
  return base::MakeError(absl::StatusCode::kDeadlineExceeded, "OUTCOME_UNKNOWN",
                         "no majority answered in time; the command may still be applied: ask "
                         "again with the same request_id");
}

inline absl::Status LogBusy() {
  return base::MakeError(absl::StatusCode::kResourceExhausted, "LOG_BUSY",
                         "too many commands wait to be chosen: try again later");
}

}  // namespace onepiece::nodemanager
