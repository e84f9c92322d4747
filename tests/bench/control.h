// The block of memory that the processes of one measurement share for rendezvous, start, stop and
// results, and functions that start and pin the processes. Internal to onepiece-bench.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace onepiece::bench {

using Nanoseconds = std::chrono::nanoseconds;

/// Returns CLOCK_MONOTONIC, which is the same in every process of the machine.
inline std::int64_t NowNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

/// Ends this process with a message on stderr, because a measurement that cannot continue has no
/// result.
[[noreturn]] void Die(const std::string& message);

/// Binds this process, and every thread that it will start, to one core (modulo the number of
/// cores).
void PinTo(int core);

/// A word that processes wait on. Measurements spin; everything around them uses this word.
class SharedFlag {
 public:
  void Set(std::uint32_t value = 1);
  [[nodiscard]] std::uint32_t Get() const { return word_.load(); }
  /// Sleeps until the flag is not 0. Ends the process if that takes longer than any rendezvous
  /// should.
  void Await() const;
  /// Sleeps for `limit` or until somebody sets the flag. Returns at once if the flag is not `value`
  /// now.
  void SleepWhile(std::uint32_t value, Nanoseconds limit) const;

 private:
  std::atomic<std::uint32_t> word_{0};
};

/// The shared state. It lives in memory that all processes of a measurement map. All zeros is its
/// initial state.
struct Control {
  static constexpr std::size_t kSlots = 48;
  static constexpr std::size_t kSlotBytes = 4064;

  /// Bytes that one process leaves for another once.
  struct Slot {
    SharedFlag written;
    std::uint32_t length = 0;
    std::array<char, kSlotBytes> bytes;
  };
  /// The two cache lines of the ping-pong of two processes.
  struct alignas(128) Line {
    std::atomic<std::uint64_t> word{0};
  };

  SharedFlag stop;      ///< Producers end their loop.
  SharedFlag finished;  ///< `result` is complete.
  SharedFlag drained;   ///< The receiver has the end mark of every sender.
  double result = 0;
  alignas(128) SharedFlag doorbell;
  std::array<Line, 2> lines;
  std::array<Slot, kSlots> slots;

  void Publish(std::size_t slot, std::string_view bytes);
  /// Waits until somebody publishes the same slot.
  [[nodiscard]] std::string Await(std::size_t slot) const;
};

/// A Control in an anonymous file that children inherit.
class ControlBlock {
 public:
  ControlBlock();
  /// In a child: maps what `file` refers to.
  explicit ControlBlock(int file);
  ~ControlBlock();
  ControlBlock(const ControlBlock&) = delete;
  ControlBlock& operator=(const ControlBlock&) = delete;
  [[nodiscard]] Control& operator*() const { return *control_; }
  [[nodiscard]] Control* operator->() const { return control_; }
  [[nodiscard]] int file() const { return file_; }

 private:
  int file_ = -1;
  Control* control_ = nullptr;
};

/// The processes of one measurement. The destructor kills those that still run.
///
/// Threading: thread-confined.
class Children {
 public:
  Children() = default;
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  /// Starts this program again with `arguments`.
  absl::Status Start(std::vector<std::string> arguments);
  /// Waits until all have succeeded.
  ///
  /// Errors: UNAVAILABLE (one failed), DEADLINE_EXCEEDED.
  absl::Status Join(Nanoseconds limit);

 private:
  std::vector<pid_t> running_;
};

}  // namespace onepiece::bench
