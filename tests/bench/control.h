// What the processes of one measurement share: a block of memory for rendezvous, start, stop and
// results, and how they are started and pinned. Internal to onepiece-bench.
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

/// CLOCK_MONOTONIC, the same in every process of the machine.
inline std::int64_t NowNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

/// Ends this process with a message on stderr: a measurement that cannot go on has no result.
[[noreturn]] void Die(const std::string& message);

/// Binds this process, and every thread that it will start, to one core (modulo the cores there
/// are).
void PinTo(int core);

/// A word that processes wait on: spins are for measurements, this is for everything around them.
class SharedFlag {
 public:
  void Set(std::uint32_t value = 1);
  [[nodiscard]] std::uint32_t Get() const { return word_.load(); }
  /// Sleeps until the flag is not 0. Dies when that takes longer than any rendezvous should.
  void Await() const;
  /// Sleeps for `limit`, or until somebody sets the flag; not at all if it is not `value` now.
  void SleepWhile(std::uint32_t value, Nanoseconds limit) const;

 private:
  std::atomic<std::uint32_t> word_{0};
};

/// Lives in memory that all processes of a measurement map. Zero is its initial state.
struct Control {
  static constexpr std::size_t kSlots = 48;
  static constexpr std::size_t kSlotBytes = 4064;

  /// Bytes that one process leaves for another, once.
  struct Slot {
    SharedFlag written;
    std::uint32_t length = 0;
    std::array<char, kSlotBytes> bytes;
  };
  /// Two lines that two processes play ping-pong with.
  struct alignas(128) Line {
    std::atomic<std::uint64_t> word{0};
  };

  SharedFlag stop;      ///< Producers end their loop.
  SharedFlag finished;  ///< `result` is complete.
  double result = 0;
  alignas(128) SharedFlag doorbell;
  std::array<Line, 2> lines;
  std::array<Slot, kSlots> slots;

  void Publish(std::size_t slot, std::string_view bytes);
  /// Waits for Publish of the same slot.
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

/// The processes of one measurement. Killed by the destructor if they still run. Thread-confined.
class Children {
 public:
  Children() = default;
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  /// Starts this program again with `arguments`.
  absl::Status Start(std::vector<std::string> arguments);
  /// Waits until all have ended well.
  /// Errors: UNAVAILABLE (one failed), DEADLINE_EXCEEDED.
  absl::Status Join(Nanoseconds limit);

 private:
  std::vector<pid_t> running_;
};

}  // namespace onepiece::bench
