// SIGTERM and SIGINT as something a main() can wait for.
#pragma once

#include <optional>

#include "cluster/base/clock.h"

namespace onepiece::base {

/// Blocks SIGTERM, SIGINT and SIGHUP in the calling thread and all threads started later, and
/// ignores SIGPIPE. Call first in main(). Thread-confined.
class ShutdownSignals {
 public:
  ShutdownSignals();
  /// Waits for one of the signals and returns its number.
  int Wait();
  /// The same with a limit on the system's clock; nullopt when it passes.
  std::optional<int> WaitFor(Duration limit);
};

}  // namespace onepiece::base
