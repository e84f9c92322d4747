#include "nodemanager/simulator/fleet.h"

#include <algorithm>
#include <utility>

#include "cluster/base/check.h"
#include "nodemanager/simulator/random.h"

namespace onepiece::simulator {

using State = Device::State;

namespace {

// As `dead_after_ms` of the NodeManager.
constexpr double kDeadAfterS = 3;

}  // namespace

Fleet::Fleet(const System& system, const v1::SimulationConfig& settings,
             const std::vector<int>& placement, Jobs jobs, EventQueue& events)
    : system_(system),
      settings_(settings),
      jobs_(std::move(jobs)),
      events_(events),
      horizon_(FromSeconds(settings.duration_s())),
      devices_(static_cast<std::size_t>(system.devices)),
      serving_(system.pools.size() * static_cast<std::size_t>(settings.workflow_sets())),
      waiting_(serving_.size()),
      proxy_receivers_(static_cast<std::size_t>(settings.workflow_sets())),
      instances_(system.pools.size()),
      idle_(static_cast<std::size_t>(settings.workflow_sets())),
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
  const int sets = settings_.workflow_sets();
  for (int d = 0; d < system_.devices; ++d) {
    devices_[d].set = d % sets;
    ++idle_[devices_[d].set];
  }
  int first = 0;
  for (std::size_t p = 0; p < placement.size(); ++p) {
    for (int i = 0; i < placement[p]; ++i) {
      ONEPIECE_CHECK(first + system_.pools[p].devices <= system_.devices);
      const int next = first + system_.pools[p].devices;
      // All devices of an instance are of its set.
      for (int d = first; d < next; ++d) {
        --idle_[devices_[d].set];
        devices_[d].set = i % sets;
        ++idle_[devices_[d].set];
      }
      devices_[first].pool = static_cast<int>(p);
      --idle_[devices_[first].set];
      devices_[first].state = State::kGathering;
      ONEPIECE_CHECK(Gather(first));
      Count(static_cast<int>(p), 1, 0);
      devices_[first].loaded = true;
      Serve(first, 0);
      first = next;
    }
  }
  news_.clear();
}

void Fleet::Deliver(int job, int stage, int sender, Time now) {
  const int app = jobs_.app(job), set = jobs_.set(job);
  const int pool = system_.apps[app].stages[stage].pool;
  if (Serving(set, pool).empty()) {
    Waiting(set, pool).push_back({.job = job, .stage = stage, .since = now});
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
  const int set = jobs_.set(job);
  const std::vector<int>& candidates = Serving(set, spec.pool);
  std::uint64_t& next = sender == kProxy ? proxy_receivers_[static_cast<std::size_t>(set)]
                                         : devices_[sender].next_receiver;
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
    device.computed.push_back(held);
    const double seconds = jobs_.seconds(held.job, held.stage);
    Work& work = device.work[Flat(jobs_.app(held.job), held.stage)];
    work.queued_s += ToSeconds(now - held.since);
    events_.Add({.at = now + FromSeconds(seconds),
                 .kind = Event::Kind::kFinish,
                 .job = held.job,
                 .stage = held.stage,
                 .device = index,
                 .life = device.life});
  }
}

void Fleet::Finish(int index, int job, int stage, Time now) {
  Touch(index, now);
  Device& device = devices_[index];
  --device.running;
  device.computed.erase(std::ranges::find_if(device.computed, [&](const Device::Held& held) {
    return held.job == job && held.stage == stage;
  }));
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
  if (device.state != State::kDraining || device.running > 0) return Begin(index, now);
  if (device.target) return Switch(index, now);
  Tell(News::Kind::kDrained, index);
}

void Fleet::Serve(int index, Time now) {
  Device& device = devices_[index];
  device.state = State::kServing;
  std::vector<int>& serving = Serving(device.set, device.pool);
  serving.insert(std::ranges::lower_bound(serving, index), index);
  // Jobs that found no instance go to the first one that serves.
  const auto waiting = std::exchange(Waiting(device.set, device.pool), {});
  for (const Device::Held& held : waiting) {
    device.queues[jobs_.app(held.job)].push_back(held);
    ++device.queued;
  }
  Tell(News::Kind::kServes, index);
  Begin(index, now);
}

void Fleet::StopServing(int index) {
  std::vector<int>& serving = Serving(devices_[index].set, devices_[index].pool);
  serving.erase(std::ranges::find(serving, index));
}

void Fleet::PassOn(int index, int sender, Time now) {
  Device& device = devices_[index];
  device.queued = 0;
  for (auto& queue : device.queues) {
    const auto held = std::exchange(queue, {});
    for (const Device::Held& one : held) {
      if (jobs_.wanted(one.job)) Deliver(one.job, one.stage, sender, now);
    }
  }
}

void Fleet::Follow(int index, const Role& role, Time now) {
  Device& device = devices_[index];
  if (device.state == State::kDead || device.state == State::kMember) return;
  const bool stays = device.pool == role.pool && (device.set == role.set || role.draining);
  if (stays && !role.draining) {
    device.target.reset();
    // A drain that is taken back has unloaded nothing.
    if (device.state == State::kDraining)
      return device.loaded ? Serve(index, now) : Load(index, now);
    // Told again, it tries again.
    if (device.state == State::kFailed) return Load(index, now);
    if (device.state == State::kServing) Tell(News::Kind::kServes, index);
    return;
  }
  if (device.state == State::kServing) {
    // It leaves the receivers first. Otherwise PassOn() could deliver its jobs to itself.
    StopServing(index);
    device.state = State::kDraining;
    PassOn(index, index, now);
  } else if (device.state != State::kIdle && device.state != State::kDraining) {
    ++device.life;  // A load under way is given up.
    device.state = State::kDraining;
  }
  if (!role.draining) device.target = role;
  if (device.running > 0) return;
  if (device.target) return Switch(index, now);
  Tell(News::Kind::kDrained, index);
}

// Takes idle devices until the instance has as many as an instance of its pool needs.
bool Fleet::Gather(int index) {
  Device& device = devices_[index];
  const std::size_t beside = static_cast<std::size_t>(system_.pools[device.pool].devices) - 1;
  std::vector<int> found;
  for (int other = 0; other < system_.devices && device.members.size() + found.size() < beside;
       ++other) {
    if (other == index || devices_[other].state != State::kIdle ||
        devices_[other].set != device.set || (forbidden_ && forbidden_(other)))
      continue;
    found.push_back(other);
  }
  if (device.members.size() + found.size() < beside) return false;
  for (const int other : found) {
    devices_[other].state = State::kMember;
    devices_[other].leader = index;
    device.members.push_back(other);
    --idle_[device.set];
    Tell(News::Kind::kJoined, other);
  }
  return true;
}

void Fleet::Free(int index, int set) {
  Device& device = devices_[index];
  device.state = State::kIdle;
  device.set = set;
  device.pool = kIdlePool;
  device.leader = -1;
  ++idle_[set];
}

void Fleet::Release(int index, std::size_t keep) {
  Device& device = devices_[index];
  while (device.members.size() > keep) {
    const int released = device.members.back();
    device.members.pop_back();
    Free(released, device.set);
    Tell(News::Kind::kFreed, released);
  }
}

// Keeps the weights of the pool that the instance leaves, as far as there is room for them.
void Fleet::Park(int index) {
  Device& device = devices_[index];
  if (!device.loaded || device.pool == kIdlePool || settings_.parked_bytes() == 0) return;
  std::erase(device.parked, device.pool);
  device.parked.push_back(device.pool);
  std::int64_t bytes = 0;
  for (const int pool : device.parked) bytes += system_.pools[pool].weights_bytes;
  while (bytes > settings_.parked_bytes()) {
    bytes -= system_.pools[device.parked.front()].weights_bytes;
    device.parked.erase(device.parked.begin());
  }
}

void Fleet::Switch(int index, Time now) {
  Device& device = devices_[index];
  const Role role = *std::exchange(device.target, std::nullopt);
  if (device.pool != kIdlePool) Count(device.pool, -1, now);
  if (device.state == State::kIdle) --idle_[device.set];
  Park(index);
  const std::size_t keep = role.pool == kIdlePool || role.set != device.set
                               ? 0
                               : static_cast<std::size_t>(system_.pools[role.pool].devices) - 1;
  Release(index, keep);
  device.loaded = false;
  if (role.pool == kIdlePool) {
    Free(index, role.set);
  } else {
    device.set = role.set;
    device.pool = role.pool;
    Count(role.pool, 1, now);
    device.state = State::kGathering;
    if (Gather(index)) Load(index, now);
  }
  GatherAgain(now);
}

// Instances that wait for further devices take what has become idle.
void Fleet::GatherAgain(Time now) {
  for (int index = 0; index < system_.devices; ++index) {
    if (devices_[index].state == State::kGathering && Gather(index)) Load(index, now);
  }
}

void Fleet::Load(int index, Time now) {
  Device& device = devices_[index];
  device.state = State::kLoading;
  const bool parked = std::erase(device.parked, device.pool) > 0;
  counts_.parked_loads += parked ? 1 : 0;
  events_.Add({.at = now + (parked ? 0 : FromSeconds(system_.pools[device.pool].load_s)),
               .kind = Event::Kind::kLoaded,
               .device = index,
               .life = device.life});
}

void Fleet::Loaded(int index, Time now) {
  Device& device = devices_[index];
  Random random(settings_.seed(), static_cast<std::uint64_t>(index) + 1, 1'000 + ++device.loads);
  if (random.Uniform() < settings_.load_failures()) {
    ++counts_.failed_loads;
    device.state = State::kFailed;
    return Tell(News::Kind::kLoadFailed, index);
  }
  device.loaded = true;
  Serve(index, now);
}

void Fleet::Die(int index, Time now) {
  if (devices_[index].state == State::kMember) index = devices_[index].leader;
  Device& device = devices_[index];
  if (device.state == State::kDead) return;
  ++counts_.deaths;
  ++device.deaths;
  ++device.life;
  Touch(index, now);
  if (device.state == State::kIdle) --idle_[device.set];
  if (device.pool != kIdlePool) Count(device.pool, -1, now);
  // Senders learn of it only when the NodeManager does. What they send meanwhile is held too.
  if (device.state != State::kServing) device.pool = kIdlePool;
  device.state = State::kDead;
  device.running = 0;
  for (const Device::Held& held : std::exchange(device.computed, {})) {
    device.queues[jobs_.app(held.job)].push_front(held);
    ++device.queued;
  }
  device.target.reset();
  device.loaded = false;
  device.parked.clear();
  std::ranges::fill(device.work, Work());
  events_.Add({.at = now + FromSeconds(kDeadAfterS), .kind = Event::Kind::kLost, .device = index});
  events_.Add({.at = now + FromSeconds(std::max(kDeadAfterS, settings_.repair_s())),
               .kind = Event::Kind::kReturn,
               .device = index});
}

void Fleet::Lost(int index, Time now) {
  Device& device = devices_[index];
  if (device.pool != kIdlePool) StopServing(index);
  device.pool = kIdlePool;
  counts_.again += static_cast<std::uint64_t>(device.queued);
  Tell(News::Kind::kLost, index);
  PassOn(index, kProxy, now);
}

void Fleet::Return(int index, Time now) {
  Release(index, 0);
  Free(index, devices_[index].set);
  Tell(News::Kind::kReturned, index);
  GatherAgain(now);
}

std::int64_t Fleet::resident_bytes() const {
  std::int64_t bytes = 0;
  for (std::size_t p = 0; p < instances_.size(); ++p)
    bytes += system_.pools[p].weights_bytes * system_.pools[p].devices * instances_[p];
  for (const Device& device : devices_) {
    for (const int pool : device.parked)
      bytes += system_.pools[pool].weights_bytes *
               (1 + static_cast<std::int64_t>(device.members.size()));
  }
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
