// Turns Ctrl-C and SIGTERM into a stop token.
#pragma once

#include <stop_token>
#include <thread>

#include "cluster/base/shutdown.h"

namespace onepiece::terminal {

/// Turns the first Ctrl-C or SIGTERM into a stop request. A second signal ends the process
/// immediately with exit code 130.
///
/// Threading: construct it before any other thread starts, because it blocks the signals for all
/// threads that start later.
class Interrupt {
 public:
  Interrupt();
  [[nodiscard]] std::stop_token token() const { return source_.get_token(); }

 private:
  base::ShutdownSignals signals_;
  std::stop_source source_;
  std::jthread thread_;
};

}  // namespace onepiece::terminal
