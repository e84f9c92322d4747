// A thread of control that runs only while it is resumed: the deterministic harness schedules these
// in one thread of the system.
#pragma once

#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <functional>
#include <utility>

namespace onepiece::ring {

/// Not thread-safe: all fibers belong to one thread.
///
/// Ownership: Destroy it only when done().
class Fiber {
 public:
  explicit Fiber(std::function<void()> body)
      : body_(std::move(body)),
        inside_(std::allocator_arg, Stacks(), [this](boost::context::fiber&& resumer) {
          resumer_ = std::move(resumer);
          body_();
          done_ = true;
          return std::move(resumer_);
        }) {}
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs it until it yields or ends. REQUIRES: not done(), called from outside of it.
  void Resume() { inside_ = std::move(inside_).resume(); }
  /// Goes back to whoever resumed it. REQUIRES: called from inside of it.
  void Yield() { resumer_ = std::move(resumer_).resume(); }
  [[nodiscard]] bool done() const { return done_; }

 private:
  static boost::context::pooled_fixedsize_stack& Stacks() {
    static boost::context::pooled_fixedsize_stack stacks(std::size_t{256} << 10);
    return stacks;
  }

  const std::function<void()> body_;
  boost::context::fiber resumer_;
  bool done_ = false;
  boost::context::fiber inside_;
};

}  // namespace onepiece::ring
