// Devices, the instances that they make up, their queues, and how instances change their role.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nodemanager/simulator/events.h"
#include "nodemanager/simulator/system.h"

namespace onepiece::simulator {

/// The sender of what comes from outside.
inline constexpr int kProxy = -1;
inline constexpr int kIdlePool = -1;

/// What an instance has done in one stage of one application, since the beginning.
struct Work {
  std::uint64_t jobs = 0;
  double units = 0, compute_s = 0, squares_s2 = 0, queued_s = 0, transfer_s = 0;
};

/// An instance is known by its first device; what it says of itself is in that device's record.
struct Device {
  enum class State : std::uint8_t {
    kIdle,
    kMember,   ///< Of an instance whose first device is another.
    kLoading,  ///< Gets the weights of `pool`.
    kServing,
    kDraining,  ///< In no route; what it computes ends first.
  };
  struct Held {
    int job = 0, stage = 0;
    Time since = 0;
  };
  State state = State::kIdle;
  int pool = kIdlePool;
  int target = kIdlePool;                ///< While it drains.
  std::vector<int> members;              ///< Devices beside the first one.
  std::vector<std::deque<Held>> queues;  ///< By application.
  std::size_t turn = 0;                  ///< Application that is served next.
  int queued = 0, running = 0;
  std::uint64_t next_receiver = 0;  ///< Where its next message goes, to whichever stage.
  std::vector<Work> work;           ///< By flat stage.
  Time busy = 0, busy_until = 0;    ///< Worker time computed, and up to when it is counted.
  Time since = 0;                   ///< When it came to where it is.
};

/// Where a pool's time went, up to the horizon.
struct PoolUse {
  double instance_s = 0;  ///< Of instances that load, serve or drain.
  double busy_s = 0;      ///< Of their workers.
  std::uint64_t jobs = 0;
};

/// As in the product: every instance has its own queue, senders go round the instances of a stage
/// one by one, branches of a job meet where its number says, an instance is fair between
/// applications, and one that drains passes on what it has not begun.
///
/// Threading  Thread-compatible. Borrows all that it is given.
class Fleet {
 public:
  /// What the fleet must know of jobs.
  struct Jobs {
    std::function<int(int job)> app;
    std::function<double(int job)> units;
    /// Seconds that this job takes in that stage.
    std::function<double(int job, int stage)> seconds;
    /// False: it is not worth computing any more, and is dropped.
    std::function<bool(int job)> wanted;
  };
  /// `horizon`: uses are counted up to then. REQUIRES: the placement fits.
  Fleet(const System& system, const std::vector<int>& placement, Jobs jobs, EventQueue& events,
        Time horizon);

  /// A complete job comes to a stage.
  void Deliver(int job, int stage, int sender, Time now);
  /// An instance has computed; it begins with what is next.
  void Finish(int device, int job, int stage, Time now);
  void Loaded(int device, Time now);
  /// Takes an instance, or an idle device, to a pool or kIdlePool; further devices that the pool's
  /// instances need come from the idle ones. Errors: FAILED_PRECONDITION (NOT_MOVABLE,
  /// TOO_FEW_DEVICES).
  absl::Status Move(int device, int pool, Time now);

  [[nodiscard]] const std::vector<Device>& devices() const { return devices_; }
  /// Instances that serve the pool, by their first device.
  [[nodiscard]] const std::vector<int>& serving(int pool) const { return serving_[pool]; }
  /// That load, serve or drain.
  [[nodiscard]] int instances(int pool) const { return instances_[pool]; }
  [[nodiscard]] int idle_devices() const { return idle_; }
  [[nodiscard]] int moving() const { return moving_; }
  [[nodiscard]] std::int64_t resident_bytes() const;
  [[nodiscard]] Time BusyAt(int device, Time now) const;
  /// Uses and mean of resident_bytes up to `now` or the horizon.
  void CloseBooks(Time now);
  [[nodiscard]] const PoolUse& use(int pool) const { return uses_[pool]; }
  [[nodiscard]] double resident_byte_s() const { return resident_byte_s_; }
  [[nodiscard]] std::int64_t resident_peak() const { return resident_peak_; }
  [[nodiscard]] std::uint64_t moves() const { return moves_; }
  /// Of a stage among those of all applications.
  [[nodiscard]] int Flat(int app, int stage) const { return offsets_[app] + stage; }

 private:
  void Place(const std::vector<int>& placement);
  int Receiver(int job, int stage, int sender);
  void Begin(int device, Time now);
  void PassOn(int device, Time now);
  void Switch(int device, int pool, Time now);
  void Serve(int device, Time now);
  void StopServing(int device);
  void Gather(int device, int pool);
  void Count(int pool, int instances, Time now);
  void Touch(int device, Time now);

  const System& system_;
  Jobs jobs_;
  EventQueue& events_;
  Time horizon_;
  std::vector<int> offsets_;
  int stages_ = 0;
  std::vector<Device> devices_;
  std::vector<std::vector<int>> serving_;
  std::vector<std::vector<Device::Held>> waiting_;  // By pool: for lack of an instance.
  std::uint64_t proxy_receiver_ = 0;
  std::vector<int> instances_;
  int idle_ = 0, moving_ = 0;
  std::uint64_t moves_ = 0;
  std::vector<PoolUse> uses_;
  double resident_byte_s_ = 0;
  std::int64_t resident_peak_ = 0;
  Time counted_until_ = 0;
};

}  // namespace onepiece::simulator
