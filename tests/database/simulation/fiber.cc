#include "tests/database/simulation/fiber.h"

#include <utility>
#include <vector>

#include "cluster/base/check.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ONEPIECE_FIBER_ASAN
#elif __has_feature(thread_sanitizer)
#define ONEPIECE_FIBER_TSAN
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define ONEPIECE_FIBER_ASAN
#elif defined(__SANITIZE_THREAD__)
#define ONEPIECE_FIBER_TSAN
#endif
#if defined(ONEPIECE_FIBER_ASAN)
#include <sanitizer/common_interface_defs.h>
#elif defined(ONEPIECE_FIBER_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace onepiece::simulation {
namespace {

constexpr std::size_t kStackBytes = std::size_t{512} << 10;

Fiber* current = nullptr;
ucontext_t scheduler;
// Stacks for the next fibers: a new one costs page faults.
std::vector<std::unique_ptr<std::byte[]>> spare;
#if defined(ONEPIECE_FIBER_ASAN)
const void* scheduler_stack = nullptr;
std::size_t scheduler_bytes = 0;
#elif defined(ONEPIECE_FIBER_TSAN)
void* scheduler_fiber = nullptr;
#endif

// Says to the sanitizer that the stack in use is another one from now on.
void Entered([[maybe_unused]] void* known) {
#if defined(ONEPIECE_FIBER_ASAN)
  __sanitizer_finish_switch_fiber(known, &scheduler_stack, &scheduler_bytes);
#endif
}

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)) {}

Fiber::~Fiber() {
  ONEPIECE_CHECK(done_ || !begun_);
  if (stack_ != nullptr) spare.push_back(std::move(stack_));
#if defined(ONEPIECE_FIBER_TSAN)
  if (sanitizer_ != nullptr) __tsan_destroy_fiber(sanitizer_);
#endif
}

void Fiber::Main() {
  Entered(nullptr);
  try {
    current->body_();
  } catch (const Unwound&) {
  }
  current->body_ = nullptr;
  current->done_ = true;
#if defined(ONEPIECE_FIBER_ASAN)
  __sanitizer_start_switch_fiber(nullptr, scheduler_stack, scheduler_bytes);
#elif defined(ONEPIECE_FIBER_TSAN)
  __tsan_switch_to_fiber(scheduler_fiber, 0);
#endif
  setcontext(&scheduler);
}

void Fiber::Switch() {
#if defined(ONEPIECE_FIBER_ASAN)
  void* mine = nullptr;
  __sanitizer_start_switch_fiber(&mine, stack_.get(), kStackBytes);
#elif defined(ONEPIECE_FIBER_TSAN)
  scheduler_fiber = __tsan_get_current_fiber();
  if (sanitizer_ == nullptr) sanitizer_ = __tsan_create_fiber(0);
  __tsan_switch_to_fiber(sanitizer_, 0);
#endif
  swapcontext(&scheduler, &here_);
#if defined(ONEPIECE_FIBER_ASAN)
  __sanitizer_finish_switch_fiber(mine, nullptr, nullptr);
#endif
}

void Fiber::Resume() {
  ONEPIECE_CHECK(current == nullptr && !done_);
  if (!begun_) {
    begun_ = true;
    if (spare.empty()) {
      stack_ = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
    } else {
      stack_ = std::move(spare.back());
      spare.pop_back();
    }
    getcontext(&here_);
    here_.uc_stack.ss_sp = stack_.get();
    here_.uc_stack.ss_size = kStackBytes;
    here_.uc_link = nullptr;
    makecontext(&here_, &Fiber::Main, 0);
  }
  current = this;
  Switch();
  current = nullptr;
}

void Fiber::Unwind() {
  if (!begun_ || done_) return;
  unwinding_ = true;
  Resume();
  ONEPIECE_CHECK(done_);
}

void Fiber::Suspend() {
  Fiber* const self = current;
  ONEPIECE_CHECK(self != nullptr);
#if defined(ONEPIECE_FIBER_ASAN)
  __sanitizer_start_switch_fiber(&self->sanitizer_, scheduler_stack, scheduler_bytes);
#elif defined(ONEPIECE_FIBER_TSAN)
  __tsan_switch_to_fiber(scheduler_fiber, 0);
#endif
  swapcontext(&self->here_, &scheduler);
  Entered(self->sanitizer_);
  if (self->unwinding_) throw Unwound();
}

}  // namespace onepiece::simulation
