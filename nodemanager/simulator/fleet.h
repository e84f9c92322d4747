// The simulated devices: the instances that they form, the queues of these, and how instances
// change their pool.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

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

/// Where the NodeManager wants an instance.
struct Role {
  int set = 0;  ///< Workflow set.
  int pool = kIdlePool;
  bool draining = false;
};

/// One device. An instance is known by its first device, and the record of that device holds what
/// the instance does.
struct Device {
  enum class State : std::uint8_t {
    kIdle,
    kMember,     ///< It belongs to an instance whose first device is another one.
    kGathering,  ///< It has its role, but too few further devices are idle.
    kLoading,    ///< It loads the weights of `pool`.
    kServing,
    kDraining,  ///< It is in no route and finishes what it computes.
    kFailed,    ///< It could not load the weights of `pool`.
    kDead,
  };
  struct Held {
    int job = 0, stage = 0;
    Time since = 0;
  };
  State state = State::kIdle;
  int set = 0;
  int pool = kIdlePool;
  std::optional<Role> target;            ///< Where it goes when it has finished.
  std::vector<int> members;              ///< The instance's other devices.
  int leader = -1;                       ///< Of a member: the instance's first device.
  std::vector<std::deque<Held>> queues;  ///< By application.
  std::size_t turn = 0;                  ///< The application that is served next.
  int queued = 0, running = 0;
  std::vector<Held> computed;  ///< What it computes now.
  std::vector<int> parked;     ///< Pools whose weights it keeps, the newest last.
  bool loaded = false;         ///< It has the weights of `pool`.
  std::uint32_t life = 0;      ///< Counts deaths and loads that were given up.
  std::uint64_t loads = 0, deaths = 0;
  std::uint64_t next_receiver = 0;  ///< Counts its messages, to pick the receiver of the next one.
  std::vector<Work> work;           ///< By Fleet::Flat(), since the process began.
  Time busy = 0, busy_until = 0;    ///< Worker time computed up to `busy_until`.
};

/// What an instance tells the NodeManager.
struct News {
  enum class Kind : std::uint8_t {
    kDrained,
    kServes,
    kLoadFailed,
    kJoined,  ///< The device is a member of another one's instance from now on.
    kFreed,   ///< It is an idle device of its own again.
    kLost,    ///< It has not reported for so long that it is dead.
    kReturned,
  };
  Kind kind = Kind::kServes;
  int device = 0;
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
/// instance that drains passes on what it has not begun. What a dead instance held is computed
/// again by another one.
///
/// Ownership: borrows `system`, `settings` and `events`, which must outlive it.
/// Threading: thread-compatible.
class Fleet {
 public:
  /// What the fleet must know of jobs.
  struct Jobs {
    std::function<int(int job)> app;
    std::function<int(int job)> set;
    std::function<double(int job)> units;
    /// How many seconds this job takes in that stage.
    std::function<double(int job, int stage)> seconds;
    /// False when the job is no longer worth computing. The fleet then drops it.
    std::function<bool(int job)> wanted;
  };
  /// The first devices form the instances of `placement`, which takes turns between the sets.
  /// REQUIRES: the placement fits.
  Fleet(const System& system, const v1::SimulationConfig& settings,
        const std::vector<int>& placement, Jobs jobs, EventQueue& events);

  /// A job whose branches have all arrived comes to a stage.
  void Deliver(int job, int stage, int sender, Time now);
  /// An instance has computed a job and begins with the next one.
  void Finish(int device, int job, int stage, Time now);
  /// An instance has loaded its weights and serves, or could not.
  void Loaded(int device, Time now);
  /// Takes an instance, or an idle device, to its role. Further devices that an instance of the
  /// pool needs come from the idle ones of the set that `may_join` does not forbid.
  void Follow(int device, const Role& role, Time now);
  void ForbidJoining(std::function<bool(int device)> forbidden) {
    forbidden_ = std::move(forbidden);
  }
  /// The device breaks, and takes its instance with it.
  void Die(int device, Time now);
  void Lost(int device, Time now);
  void Return(int device, Time now);

  /// What was told since the last call, in order.
  std::vector<News> TakeNews() { return std::exchange(news_, {}); }
  [[nodiscard]] bool has_news() const { return !news_.empty(); }
  [[nodiscard]] const std::vector<Device>& devices() const { return devices_; }
  /// How many devices of the set are idle.
  [[nodiscard]] int idle_devices(int set) const { return idle_[static_cast<std::size_t>(set)]; }
  [[nodiscard]] std::int64_t resident_bytes() const;
  /// The worker time that the device has computed up to `now`.
  [[nodiscard]] Time BusyAt(int device, Time now) const;
  /// Counts uses and resident bytes up to `now`, or to the horizon if that is earlier.
  void CloseBooks(Time now);
  [[nodiscard]] const PoolUse& use(int pool) const { return uses_[pool]; }
  [[nodiscard]] double resident_byte_s() const { return resident_byte_s_; }
  [[nodiscard]] std::int64_t resident_peak() const { return resident_peak_; }
  struct Counts {
    std::uint64_t deaths = 0;  ///< Of instances and idle devices.
    std::uint64_t again = 0;   ///< Stages of jobs that were given to another instance.
    std::uint64_t failed_loads = 0;
    std::uint64_t parked_loads = 0;  ///< Loads that found the weights in memory.
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }
  /// The index of a stage among the stages of all applications.
  [[nodiscard]] int Flat(int app, int stage) const { return offsets_[app] + stage; }

 private:
  void Place(const std::vector<int>& placement);
  int Receiver(int job, int stage, int sender);
  void Begin(int device, Time now);
  void PassOn(int device, int sender, Time now);
  void Switch(int device, Time now);
  void Load(int device, Time now);
  void Serve(int device, Time now);
  void StopServing(int device);
  bool Gather(int device);
  void Release(int device, std::size_t keep);
  void Free(int device, int set);
  void GatherAgain(Time now);
  void Park(int device);
  void Tell(News::Kind kind, int device) { news_.push_back({kind, device}); }
  [[nodiscard]] std::vector<int>& Serving(int set, int pool) {
    return serving_[static_cast<std::size_t>(set) * system_.pools.size() +
                    static_cast<std::size_t>(pool)];
  }
  [[nodiscard]] std::vector<Device::Held>& Waiting(int set, int pool) {
    return waiting_[static_cast<std::size_t>(set) * system_.pools.size() +
                    static_cast<std::size_t>(pool)];
  }
  void Count(int pool, int instances, Time now);
  void Touch(int device, Time now);

  const System& system_;
  const v1::SimulationConfig& settings_;
  Jobs jobs_;
  EventQueue& events_;
  Time horizon_;
  std::function<bool(int device)> forbidden_;
  std::vector<int> offsets_;
  int stages_ = 0;
  std::vector<Device> devices_;
  // By set and pool: the instances that others send to, each by its first device.
  std::vector<std::vector<int>> serving_;
  std::vector<std::vector<Device::Held>> waiting_;  // By set and pool: jobs that nobody serves.
  std::vector<std::uint64_t> proxy_receivers_;      // By set.
  std::vector<int> instances_;                      // By pool.
  std::vector<int> idle_;                           // By set.
  std::vector<News> news_;
  Counts counts_;
  std::vector<PoolUse> uses_;
  double resident_byte_s_ = 0;
  std::int64_t resident_peak_ = 0;
  Time counted_until_ = 0;
};

}  // namespace onepiece::simulator
