// Who takes what people say of alerts: the thread that evaluates the rules, wherever it is.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace onepiece::gui {

/// Threading: thread-safe. Blocking: may wait for a tick of the recorder (milliseconds; seconds on
/// a bad disk): not on the GUI thread, see Store::Work.
class AlertDesk {
 public:
  virtual ~AlertDesk() = default;
  /// `who` has seen it. NOT_FOUND: it is over.
  virtual absl::Status Acknowledge(const std::string& id, const std::string& who) = 0;
  /// INVALID_ARGUMENT without an end in the future or without a reason; NOT_FOUND.
  virtual absl::Status Silence(const std::string& id, std::int64_t until_ms,
                               const std::string& reason) = 0;
};

}  // namespace onepiece::gui
