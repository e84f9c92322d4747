// The reasons why a database cannot keep a result that is written into its memory.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "cluster/base/status.h"

namespace onepiece::values {

/// The database's whole budget is smaller than the result.
inline constexpr char kBudgetExceeded[] = "RESULT_BUDGET_EXCEEDED";
/// The database has no room to keep the result now.
inline constexpr char kMemoryFull[] = "RESULT_MEMORY_FULL";
/// The database has no room for the record of a job that it does not know.
inline constexpr char kRecordsFull[] = "RECORDS_FULL";

/// Returns whether a put failed for one of these reasons. A database ends the job of a result for
/// which it has no room when that comes by message.
inline bool HasNoRoom(const absl::Status& put) {
  const std::string reason = base::GetReason(put).reason;
  return reason == kBudgetExceeded || reason == kMemoryFull || reason == kRecordsFull;
}

}  // namespace onepiece::values
