#include "cluster/terminal/interrupt.h"

#include <unistd.h>

#include <chrono>

#include "cluster/terminal/exit_code.h"

namespace onepiece::terminal {

Interrupt::Interrupt()
    : thread_([this](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          if (!signals_.WaitFor(std::chrono::milliseconds(100)).has_value()) continue;
          if (source_.stop_requested()) _exit(kInterrupted);
          source_.request_stop();
        }
      }) {}

}  // namespace onepiece::terminal
