// A thread of control that runs only while it is resumed: the deterministic harness schedules these
// in one thread of the system.
#pragma once

#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <functional>
#include <utility>

namespace onepiece::ring {

/// Ownership: destroy it only when done().
///
/// Threading: not thread-safe. All fibers belong to one thread.
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

  /// Runs it until it yields or ends. REQUIRES: it is not done(), and the caller is outside of it.
  void Resume() { inside_ = std::move(inside_).resume(); }
  /// Returns to the caller of Resume. REQUIRES: the caller is inside of it.
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
