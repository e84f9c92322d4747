// The simulated devices: the instances that they form, the queues of these, and how instances
// change their pool.
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

/// The proxy as a sender.
inline constexpr int kProxy = -1;
/// The pool of a device that serves no pool.
inline constexpr int kIdlePool = -1;

/// What an instance has done in one stage of one application, since the beginning.
struct Work {
  std::uint64_t jobs = 0;
  double units = 0, compute_s = 0, squares_s2 = 0, queued_s = 0, transfer_s = 0;
};

/// One device. An instance is known by its first device, and the record of that device holds what
/// the instance does.
struct Device {
  enum class State : std::uint8_t {
    kIdle,
    kMember,   ///< It belongs to an instance whose first device is another one.
    kLoading,  ///< It loads the weights of `pool`.
    kServing,
    kDraining,  ///< It is in no route and finishes what it computes.
  };
  struct Held {
    int job = 0, stage = 0;
    Time since = 0;
  };
  State state = State::kIdle;
  int pool = kIdlePool;
  int target = kIdlePool;                ///< Where it goes when it has drained.
  std::vector<int> members;              ///< The instance's other devices.
  std::vector<std::deque<Held>> queues;  ///< By application.
  std::size_t turn = 0;                  ///< The application that is served next.
  int queued = 0, running = 0;
  std::uint64_t next_receiver = 0;  ///< Counts its messages, to pick the receiver of the next one.
  std::vector<Work> work;           ///< By Fleet::Flat().
  Time busy = 0, busy_until = 0;    ///< Worker time computed up to `busy_until`.
  Time since = 0;                   ///< When it came to its present state.
};

/// Where a pool's time went, up to the horizon.
struct PoolUse {
  double instance_s = 0;  ///< Time of instances that load, serve or drain.
  double busy_s = 0;      ///< Time that their workers computed.
  std::uint64_t jobs = 0;
};

/// The instances of a simulated cluster. They behave as in the product: each instance has a queue
/// of its own. A sender goes round the instances of a stage one by one. The branches of a job meet
/// at the instance that the job's number names. An instance is fair between applications. An
/// instance that drains passes on what it has not begun.
///
/// Ownership: borrows `system` and `events`, which must outlive it.
/// Threading: thread-compatible.
class Fleet {
 public:
  /// What the fleet must know of jobs.
  struct Jobs {
    std::function<int(int job)> app;
    std::function<double(int job)> units;
    /// How many seconds this job takes in that stage.
    std::function<double(int job, int stage)> seconds;
    /// False when the job is no longer worth computing. The fleet then drops it.
    std::function<bool(int job)> wanted;
  };
  /// Counts uses up to `horizon`.
  /// REQUIRES: the placement fits.
  Fleet(const System& system, const std::vector<int>& placement, Jobs jobs, EventQueue& events,
        Time horizon);

  /// A job whose branches have all arrived comes to a stage.
  void Deliver(int job, int stage, int sender, Time now);
  /// An instance has computed a job and begins with the next one.
  void Finish(int device, int job, int stage, Time now);
  /// An instance has loaded its weights and serves.
  void Loaded(int device, Time now);
  /// Takes an instance, or an idle device, to a pool or to kIdlePool. Further devices that an
  /// instance of the pool needs come from the idle ones.
  /// Errors: FAILED_PRECONDITION (NOT_MOVABLE, TOO_FEW_DEVICES).
  absl::Status Move(int device, int pool, Time now);

  [[nodiscard]] const std::vector<Device>& devices() const { return devices_; }
  /// The instances that serve the pool, each by its first device.
  [[nodiscard]] const std::vector<int>& serving(int pool) const { return serving_[pool]; }
  /// How many instances of the pool load, serve or drain.
  [[nodiscard]] int instances(int pool) const { return instances_[pool]; }
  [[nodiscard]] int idle_devices() const { return idle_; }
  [[nodiscard]] int moving() const { return moving_; }
  [[nodiscard]] std::int64_t resident_bytes() const;
  /// The worker time that the device has computed up to `now`.
  [[nodiscard]] Time BusyAt(int device, Time now) const;
  /// Counts uses and resident bytes up to `now`, or to the horizon if that is earlier.
  void CloseBooks(Time now);
  [[nodiscard]] const PoolUse& use(int pool) const { return uses_[pool]; }
  [[nodiscard]] double resident_byte_s() const { return resident_byte_s_; }
  [[nodiscard]] std::int64_t resident_peak() const { return resident_peak_; }
  [[nodiscard]] std::uint64_t moves() const { return moves_; }
  /// The index of a stage among the stages of all applications.
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
  std::vector<std::vector<Device::Held>> waiting_;  // By pool: jobs that no instance serves.
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
