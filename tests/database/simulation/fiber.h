// A thread of a simulated process: code that waits, without a thread of the system.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace onepiece::simulation {

/// Runs a function on a stack of its own, which can stop in the middle and go on later. So the
/// product's code that blocks runs in a simulation as it is.
///
/// Ownership: owns its stack.
/// Threading: all fibers belong to one thread.
class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  /// REQUIRES: done(), or it was never resumed.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Goes on until the fiber suspends itself or is done. Not to be called by a fiber.
  void Resume();
  /// Ends the fiber where it stands: what is on its stack is destroyed.
  void Unwind();
  [[nodiscard]] bool done() const { return done_; }

  /// Stops the running fiber until somebody resumes it.
  static void Suspend();

 private:
  struct Unwound {};
  static void Main();
  void Switch();

  std::function<void()> body_;
  std::unique_ptr<std::byte[]> stack_;
  ucontext_t here_{};
  bool begun_ = false, done_ = false, unwinding_ = false;
  void* sanitizer_ = nullptr;  // What the address or thread sanitizer knows of this fiber.
};

}  // namespace onepiece::simulation
