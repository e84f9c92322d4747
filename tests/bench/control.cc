#include "tests/bench/control.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "cluster/base/clock.h"

namespace onepiece::bench {
namespace {

constexpr Nanoseconds kRendezvousLimit = std::chrono::seconds(10);
constexpr Nanoseconds kPoll = std::chrono::milliseconds(50);

std::uint32_t* Word(const std::atomic<std::uint32_t>& word) {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  return const_cast<std::uint32_t*>(reinterpret_cast<const std::uint32_t*>(&word));
}

std::string ErrorText(int error) { return std::generic_category().message(error); }

}  // namespace

void Die(const std::string& message) {
  std::fprintf(stderr, "onepiece-bench: %s\n", message.c_str());
  // Does not call exit(), because threads of the peers' libraries may still run.
  std::fflush(stderr);
  _exit(EXIT_FAILURE);
}

void PinTo(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core % static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))), &cores);
  // A container may forbid the core. Then the measurement is not pinned.
  if (sched_setaffinity(0, sizeof(cores), &cores) != 0) {
    std::fprintf(stderr, "onepiece-bench: not pinned to core %d: %s\n", core,
                 ErrorText(errno).c_str());
  }
}

void SharedFlag::Set(std::uint32_t value) {
  word_.store(value);
  syscall(SYS_futex, Word(word_), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void SharedFlag::SleepWhile(std::uint32_t value, Nanoseconds limit) const {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const timespec relative{.tv_sec = seconds.count(), .tv_nsec = (limit - seconds).count()};
  syscall(SYS_futex, Word(word_), FUTEX_WAIT, value, &relative, nullptr, 0);
}

void SharedFlag::Await() const {
  const std::int64_t deadline = NowNs() + base::Scaled(kRendezvousLimit).count();
  while (Get() == 0) {
    if (NowNs() >= deadline) Die("the other process of the measurement does not answer");
    SleepWhile(0, kPoll);
  }
}

void Control::Publish(std::size_t slot, std::string_view bytes) {
  if (slot >= kSlots || bytes.size() > kSlotBytes) Die("too much for the control block");
  std::memcpy(slots[slot].bytes.data(), bytes.data(), bytes.size());
  slots[slot].length = static_cast<std::uint32_t>(bytes.size());
  slots[slot].written.Set();
}

std::string Control::Await(std::size_t slot) const {
  if (slot >= kSlots) Die("no such slot in the control block");
  slots[slot].written.Await();
  return {slots[slot].bytes.data(), slots[slot].length};
}

ControlBlock::ControlBlock() : ControlBlock(memfd_create("onepiece-bench", 0)) {}

ControlBlock::ControlBlock(int file) : file_(file) {
  if (file_ < 0 || ftruncate(file_, sizeof(Control)) != 0)
    Die("control block: " + ErrorText(errno));
  void* memory = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory == MAP_FAILED) Die("control block: " + ErrorText(errno));
  control_ = static_cast<Control*>(memory);
}

ControlBlock::~ControlBlock() {
  munmap(control_, sizeof(Control));
  close(file_);
}

absl::Status Children::Start(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "onepiece-bench");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv.data(), environ);
  if (error != 0) return absl::UnavailableError("cannot start a process: " + ErrorText(error));
  running_.push_back(pid);
  return absl::OkStatus();
}

absl::Status Children::Join(Nanoseconds limit) {
  const int slice_ms = 2;
  const std::int64_t deadline = NowNs() + limit.count();
  while (!running_.empty()) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    if (ended > 0) {
      std::erase(running_, ended);
      if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return absl::UnavailableError("a process of the measurement failed");
      }
      continue;
    }
    if (NowNs() >= deadline) {
      return absl::DeadlineExceededError("a measurement did not end in time");
    }
    const timespec slice{.tv_sec = 0, .tv_nsec = slice_ms * 1'000'000};
    nanosleep(&slice, nullptr);
  }
  return absl::OkStatus();
}

Children::~Children() {
  for (const pid_t pid : running_) kill(pid, SIGKILL);
  for (const pid_t pid : running_) waitpid(pid, nullptr, 0);
}

}  // namespace onepiece::bench
