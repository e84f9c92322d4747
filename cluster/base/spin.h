// For loops that wait for another processor.
#pragma once

namespace onepiece::base {

/// Tells the processor that this loop waits: it saves power and leaves the memory alone for a
/// moment, some tens of nanoseconds. The thread keeps its processor.
inline void RelaxProcessor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace onepiece::base
