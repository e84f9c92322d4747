// The interface through which the console acknowledges and silences alerts. The thread that
// evaluates the rules implements it (gui/app/recording_service.h).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace onepiece::gui {

/// Passes what operators say of alerts to the thread that evaluates the alert rules.
///
/// Threading: thread-safe.
/// Blocking: each call may wait for a tick of the recorder: milliseconds, or seconds on a bad disk.
/// Do not call it on the GUI thread; use ShownCluster::Work.
class AlertDesk {
 public:
  virtual ~AlertDesk() = default;
  /// Records that `who` has seen the alert.
  ///
  /// Errors: NOT_FOUND when there is no such alert now; it may be over.
  virtual absl::Status Acknowledge(const std::string& id, const std::string& who) = 0;
  /// Silences the alert until `until_ms`, in milliseconds since 1970.
  ///
  /// Errors: INVALID_ARGUMENT when `until_ms` is not in the future or `reason` is empty; NOT_FOUND
  /// as above.
  virtual absl::Status Silence(const std::string& id, std::int64_t until_ms,
                               const std::string& reason) = 0;
};

}  // namespace onepiece::gui
