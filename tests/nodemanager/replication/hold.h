// A reader that keeps the state from changing, for tests.
#pragma once

#include <future>
#include <thread>

#include "nodemanager/state/state_machine.h"

namespace onepiece::nodemanager {

/// Holds the state of an Applier or a ReplicatedLog, as a slow reader does, until it is destroyed.
class Hold {
 public:
  template <typename Readable>
  explicit Hold(const Readable& readable)
      : thread_([&readable, this] {
          readable.Read([this](const StateMachine&, const auto&...) {
            held_.set_value();
            release_.get_future().wait();
          });
        }) {
    held_.get_future().wait();
  }
  ~Hold() { release_.set_value(); }

 private:
  std::promise<void> held_, release_;
  std::jthread thread_;
};

}  // namespace onepiece::nodemanager
