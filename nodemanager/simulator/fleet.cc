#include "nodemanager/simulator/fleet.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/check.h"
#include "cluster/base/status.h"
#include "nodemanager/simulator/random.h"

namespace onepiece::simulator {

using State = Device::State;

Fleet::Fleet(const System& system, const std::vector<int>& placement, Jobs jobs, EventQueue& events,
             Time horizon)
    : system_(system),
      jobs_(std::move(jobs)),
      events_(events),
      horizon_(horizon),
      devices_(static_cast<std::size_t>(system.devices)),
      serving_(system.pools.size()),
      waiting_(system.pools.size()),
      instances_(system.pools.size()),
      idle_(system.devices),
      uses_(system.pools.size()) {
  for (const App& app : system.apps) {
    offsets_.push_back(stages_);
    stages_ += static_cast<int>(app.stages.size());
  }
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    Device& device = devices_[d];
    device.queues.resize(system.apps.size());
    // Each sender begins its round at a place of its own. Senders that all begin with the first
    // instance keep step for ever and meet at every instance.
    device.next_receiver = Random(0, d + 1, 3).Next();
    device.work.resize(static_cast<std::size_t>(stages_));
  }
  Place(placement);
}

void Fleet::Place(const std::vector<int>& placement) {
  int first = 0;
  for (std::size_t p = 0; p < placement.size(); ++p) {
    for (int i = 0; i < placement[p]; ++i) {
      ONEPIECE_CHECK(first + system_.pools[p].devices <= system_.devices);
      devices_[first].pool = static_cast<int>(p);
      Gather(first, static_cast<int>(p));
      Count(static_cast<int>(p), 1, 0);
      Serve(first, 0);
      first += system_.pools[p].devices;
    }
  }
}

void Fleet::Deliver(int job, int stage, int sender, Time now) {
  const int app = jobs_.app(job);
  const int pool = system_.apps[app].stages[stage].pool;
  if (serving_[pool].empty()) {
    waiting_[pool].push_back({.job = job, .stage = stage, .since = now});
    return;
  }
  const int device = Receiver(job, stage, sender);
  devices_[device].queues[app].push_back({.job = job, .stage = stage, .since = now});
  ++devices_[device].queued;
  Begin(device, now);
}

// The branches of a job must meet at one instance, so the job's number picks it. All else goes
// round.
int Fleet::Receiver(int job, int stage, int sender) {
  const Stage& spec = system_.apps[jobs_.app(job)].stages[stage];
  const std::vector<int>& candidates = serving_[spec.pool];
  std::uint64_t& next = sender == kProxy ? proxy_receiver_ : devices_[sender].next_receiver;
  const std::uint64_t turn =
      spec.after.size() > 1 ? Random(0, static_cast<std::uint64_t>(job), 7).Next() : next++;
  return candidates[turn % candidates.size()];
}

void Fleet::Begin(int index, Time now) {
  Device& device = devices_[index];
  if (device.state != State::kServing) return;
  Touch(index, now);
  // Applications take turns, so that none waits behind all jobs of another.
  while (device.queued > 0 && device.running < system_.pools[device.pool].workers) {
    while (device.queues[device.turn].empty())
      device.turn = (device.turn + 1) % device.queues.size();
    std::deque<Device::Held>& queue = device.queues[device.turn];
    device.turn = (device.turn + 1) % device.queues.size();
    const Device::Held held = queue.front();
    queue.pop_front();
    --device.queued;
    if (!jobs_.wanted(held.job)) continue;
    ++device.running;
    const double seconds = jobs_.seconds(held.job, held.stage);
    Work& work = device.work[Flat(jobs_.app(held.job), held.stage)];
    work.queued_s += ToSeconds(now - held.since);
    events_.Add({.at = now + FromSeconds(seconds),
                 .kind = Event::Kind::kFinish,
                 .job = held.job,
                 .stage = held.stage,
                 .device = index});
  }
}

void Fleet::Finish(int index, int job, int stage, Time now) {
  Touch(index, now);
  Device& device = devices_[index];
  --device.running;
  const int app = jobs_.app(job);
  const Stage& spec = system_.apps[app].stages[stage];
  const double seconds = jobs_.seconds(job, stage);
  Work& work = device.work[Flat(app, stage)];
  ++work.jobs;
  work.units += jobs_.units(job) * spec.units;
  work.compute_s += seconds;
  work.squares_s2 += seconds * seconds;
  for (const int before : spec.after)
    work.transfer_s += system_.apps[app].stages[before].transfer_s;
  ++uses_[device.pool].jobs;
  if (device.state == State::kDraining && device.running == 0) {
    Switch(index, device.target, now);
  } else {
    Begin(index, now);
  }
}

void Fleet::Serve(int index, Time now) {
  Device& device = devices_[index];
  device.state = State::kServing;
  device.since = now;
  std::vector<int>& serving = serving_[device.pool];
  serving.insert(std::ranges::lower_bound(serving, index), index);
  // Jobs that found no instance go to the first one that serves.
  const auto waiting = std::exchange(waiting_[device.pool], {});
  for (const Device::Held& held : waiting) {
    device.queues[jobs_.app(held.job)].push_back(held);
    ++device.queued;
  }
  Begin(index, now);
}

void Fleet::StopServing(int index) {
  std::vector<int>& serving = serving_[devices_[index].pool];
  serving.erase(std::ranges::find(serving, index));
}

void Fleet::PassOn(int index, Time now) {
  Device& device = devices_[index];
  device.queued = 0;
  for (auto& queue : device.queues) {
    const auto held = std::exchange(queue, {});
    for (const Device::Held& one : held) {
      if (jobs_.wanted(one.job)) Deliver(one.job, one.stage, index, now);
    }
  }
}

absl::Status Fleet::Move(int index, int pool, Time now) {
  Device& device = devices_[index];
  if (device.state != State::kIdle && device.state != State::kServing) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "NOT_MOVABLE",
                           absl::StrCat("device ", index, " is on its way"));
  }
  if (device.pool == pool) return absl::OkStatus();
  const int has = device.state == State::kIdle ? 0 : 1 + static_cast<int>(device.members.size());
  if (pool != kIdlePool && system_.pools[pool].devices > has + idle_) {
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "TOO_FEW_DEVICES",
        absl::StrCat("an instance of ", system_.pools[pool].id, " needs ",
                     system_.pools[pool].devices, " devices, ", idle_, " are idle"));
  }
  ++moves_;
  ++moving_;
  if (device.state == State::kIdle) {
    Switch(index, pool, now);
    return absl::OkStatus();
  }
  // It leaves the receivers first. Otherwise PassOn() could deliver its jobs to itself.
  StopServing(index);
  device.state = State::kDraining;
  device.target = pool;
  device.since = now;
  // The instance takes its further devices before it has drained, so that no other takes them
  // meanwhile.
  if (pool != kIdlePool) Gather(index, pool);
  PassOn(index, now);
  if (device.running == 0) Switch(index, pool, now);
  return absl::OkStatus();
}

// Takes idle devices until the instance has as many as an instance of that pool needs.
void Fleet::Gather(int index, int pool) {
  Device& device = devices_[index];
  const std::size_t beside = static_cast<std::size_t>(system_.pools[pool].devices) - 1;
  if (device.state == State::kIdle) --idle_;
  for (int other = 0; other < system_.devices && device.members.size() < beside; ++other) {
    if (other == index || devices_[other].state != State::kIdle) continue;
    devices_[other].state = State::kMember;
    device.members.push_back(other);
    --idle_;
  }
  ONEPIECE_CHECK(device.members.size() >= beside);
}

void Fleet::Switch(int index, int pool, Time now) {
  Device& device = devices_[index];
  if (device.pool != kIdlePool) Count(device.pool, -1, now);
  if (pool != kIdlePool) Gather(index, pool);
  const std::size_t keep =
      pool == kIdlePool ? 0 : static_cast<std::size_t>(system_.pools[pool].devices) - 1;
  while (device.members.size() > keep) {
    Device& released = devices_[device.members.back()];
    released.state = State::kIdle;
    released.since = now;
    device.members.pop_back();
    ++idle_;
  }
  device.pool = pool;
  device.target = kIdlePool;
  device.since = now;
  if (pool == kIdlePool) {
    device.state = State::kIdle;
    ++idle_;
    --moving_;
    return;
  }
  Count(pool, 1, now);
  device.state = State::kLoading;
  events_.Add({.at = now + FromSeconds(system_.pools[pool].load_s),
               .kind = Event::Kind::kLoaded,
               .device = index});
}

void Fleet::Loaded(int index, Time now) {
  --moving_;
  Serve(index, now);
}

std::int64_t Fleet::resident_bytes() const {
  std::int64_t bytes = 0;
  for (std::size_t p = 0; p < instances_.size(); ++p)
    bytes += system_.pools[p].weights_bytes * system_.pools[p].devices * instances_[p];
  return bytes;
}

void Fleet::CloseBooks(Time now) {
  Count(0, 0, now);
  for (int index = 0; index < system_.devices; ++index) Touch(index, now);
}

// Adds up the time since the last change before it changes the number of instances. Nothing after
// the horizon counts.
void Fleet::Count(int pool, int instances, Time now) {
  const Time until = std::min(now, horizon_);
  const double elapsed = ToSeconds(until - counted_until_);
  for (std::size_t p = 0; p < instances_.size(); ++p)
    uses_[p].instance_s += instances_[p] * elapsed;
  resident_byte_s_ += static_cast<double>(resident_bytes()) * elapsed;
  counted_until_ = until;
  instances_[pool] += instances;
  resident_peak_ = std::max(resident_peak_, resident_bytes());
}

Time Fleet::BusyAt(int index, Time now) const {
  const Device& device = devices_[index];
  return device.busy + device.running * (now - device.busy_until);
}

void Fleet::Touch(int index, Time now) {
  Device& device = devices_[index];
  const Time until = std::min(now, horizon_);
  if (until > device.busy_until && device.running > 0)
    uses_[device.pool].busy_s += device.running * ToSeconds(until - device.busy_until);
  device.busy = BusyAt(index, now);
  device.busy_until = now;
}

}  // namespace onepiece::simulator
