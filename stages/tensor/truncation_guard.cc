#include "stages/tensor/truncation_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>

namespace onepiece::tensor {
namespace {

constexpr std::size_t kSlots = 4096;

/// Read by the signal handler, so it holds atomics alone. A slot is free while `end` is 0.
struct Slot {
  std::atomic<std::uintptr_t> begin{0}, end{0};
  std::atomic<bool> taken{false}, damaged{false};
};

struct Guards {
  std::array<Slot, kSlots> slots;
  struct sigaction before {};
  std::uintptr_t page = 4096;
};
constinit Guards guards;

/// Lets zeros read from `address` to the end of its mapping. Everything behind the first page that
/// is missing is missing too.
bool Replace(std::uintptr_t address) {
  for (Slot& slot : guards.slots) {
    const std::uintptr_t end = slot.end.load(std::memory_order_acquire);
    if (end == 0 || address >= end || address < slot.begin.load(std::memory_order_relaxed))
      continue;
    const std::uintptr_t page = address / guards.page * guards.page;
    slot.damaged.store(true, std::memory_order_release);
    return ::mmap(reinterpret_cast<void*>(page), end - page, PROT_READ,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
  }
  return false;
}

void OnBus(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  const bool replaced = Replace(reinterpret_cast<std::uintptr_t>(info->si_addr));
  errno = saved;
  if (replaced) return;  // The instruction is repeated, and reads zeros.
  const auto other = guards.before.sa_flags & (SA_SIGINFO | SA_RESETHAND);
  if (other == SA_SIGINFO) {
    // It may be another plug-in's guard.
    guards.before.sa_sigaction(signal, info, context);
  } else {
    // The instruction is repeated, and meets what was there before as if nobody had stood between.
    // A handler that is to run once would otherwise run for ever.
    ::sigaction(signal, &guards.before, nullptr);
  }
}

void InstallOnce() {
  static const bool installed = [] {
    guards.page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction action {};
    action.sa_sigaction = &OnBus;
    action.sa_flags = SA_SIGINFO;
    ::sigemptyset(&action.sa_mask);
    return ::sigaction(SIGBUS, &action, &guards.before) == 0;
  }();
  (void)installed;
}

}  // namespace

TruncationGuard::TruncationGuard(std::span<const std::byte> mapping) : slot_(kSlots) {
  InstallOnce();
  for (std::size_t i = 0; i < kSlots; ++i) {
    Slot& slot = guards.slots[i];
    if (slot.taken.exchange(true)) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(mapping.data());
    slot.damaged.store(false);
    slot.begin.store(begin, std::memory_order_relaxed);
    slot.end.store(begin + mapping.size(), std::memory_order_release);
    slot_ = i;
    return;
  }
}

TruncationGuard::~TruncationGuard() {
  if (slot_ == kSlots) return;
  guards.slots[slot_].end.store(0);
  guards.slots[slot_].taken.store(false);
}

bool TruncationGuard::damaged() const {
  return slot_ != kSlots && guards.slots[slot_].damaged.load(std::memory_order_acquire);
}

}  // namespace onepiece::tensor
