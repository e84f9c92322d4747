#include "nodemanager/simulator/simulation.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "nodemanager/simulator/control.h"
#include "nodemanager/simulator/events.h"
#include "nodemanager/simulator/fleet.h"
#include "nodemanager/simulator/random.h"

namespace onepiece::simulator {
namespace {

using Kind = Event::Kind;

struct Job {
  enum class State : std::uint8_t { kOutside, kRejected, kInside, kFailed, kDone };
  State state = State::kOutside;
  int app = 0;
  int set = 0;  // The workflow set that has admitted it.
  double units = 1;
  Time asked = 0, ended = 0;
  std::array<std::uint8_t, 16> branches{};  // By stage: how many branches have arrived.
  std::array<float, 16> way{};              // By stage: seconds of the longest way to its end.
  Time entered = 0;
};

class Simulation {
 public:
  Simulation(const System& system, const v1::SimulationConfig& settings,
             const std::vector<Arrival>& arrivals, const SimulationOptions& options)
      : system_(system),
        settings_(settings),
        arrivals_(arrivals),
        options_(options),
        horizon_(FromSeconds(settings.duration_s())),
        fleet_(system, settings, options.placement, AskAboutJobs(), events_) {
    double slo_s = 0;
    for (const App& app : system.apps) slo_s = std::max(slo_s, app.slo_s);
    end_ = horizon_ + FromSeconds(10 * slo_s);
    jobs_.reserve(arrivals.size());
  }

  absl::StatusOr<SimulationResult> Run() {
    ONEPIECE_ASSIGN_OR_RETURN(control_,
                              Control::Create(system_, settings_, options_.policy, fleet_));
    events_.Add({.at = 0, .kind = Kind::kReport});
    if (control_->moves()) events_.Add({.at = control_->decide_interval(), .kind = Kind::kDecide});
    for (int device = 0; device < system_.devices; ++device) NextDeath(device, 0);
    NextArrival();
    Time now = 0;
    while (!events_.empty() && events_.next_at() <= end_) {
      const Event event = events_.Pop();
      now = event.at;
      control_->Advance(now);
      Handle(event);
      control_->Settle(now);
      if ((++handled_ & 0xFFFF) == 0 && options_.progress &&
          !options_.progress(std::min(1.0, ToSeconds(now) / settings_.duration_s()))) {
        return base::MakeError(absl::StatusCode::kCancelled, "INTERRUPTED",
                               "the simulation was interrupted");
      }
    }
    fleet_.CloseBooks(std::max(now, horizon_));
    return Conclude();
  }

 private:
  Fleet::Jobs AskAboutJobs() {
    return {.app = [this](int job) { return jobs_[job].app; },
            .set = [this](int job) { return jobs_[job].set; },
            .units = [this](int job) { return jobs_[job].units; },
            .seconds = [this](int job, int stage) { return Seconds(job, stage); },
            .wanted = [this](int job) { return IsWanted(job); }};
  }

  // What a job draws depends only on the seed, the job's number and the stage of the profile. So
  // all policies see the same jobs, and fused stages draw the same as separate ones.
  [[nodiscard]] double Seconds(int job, int stage) const {
    const Stage& spec = system_.apps[jobs_[job].app].stages[stage];
    double seconds = 0;
    for (const Part& part : spec.parts) {
      Random random(settings_.seed(), static_cast<std::uint64_t>(job) + 1,
                    static_cast<std::uint64_t>(part.index) + 1);
      seconds += part.seconds * random.Factor(part.variation) /
                 (part.parallel ? system_.pools[spec.pool].devices : 1);
    }
    return seconds * jobs_[job].units;
  }

  bool IsWanted(int job) {
    if (jobs_[job].state != Job::State::kInside) return false;
    if (settings_.deadline_s() == 0 || now_ <= Deadline(jobs_[job])) return true;
    EndJob(job, Job::State::kFailed);
    return false;
  }

  [[nodiscard]] Time Deadline(const Job& job) const {
    constexpr double kForEver = 1e8;
    return job.asked + FromSeconds(settings_.deadline_s() > 0 ? settings_.deadline_s() : kForEver);
  }

  void NextArrival() {
    if (jobs_.size() >= arrivals_.size()) return;
    const Arrival& next = arrivals_[jobs_.size()];
    const Time at = FromSeconds(next.time_s);
    if (at >= horizon_) return;
    events_.Add({.at = at, .kind = Kind::kAsk, .job = static_cast<int>(jobs_.size())});
    jobs_.push_back({.app = next.app, .units = next.units, .asked = at});
  }

  void NextDeath(int device, Time now) {
    if (settings_.mtbf_s() <= 0) return;
    Random random(settings_.seed(), static_cast<std::uint64_t>(device) + 1,
                  2'000'000 + deaths_drawn_++);
    const Time at = now + FromSeconds(random.Exponential(settings_.mtbf_s()));
    if (at < horizon_) events_.Add({.at = at, .kind = Kind::kDie, .device = device});
  }

  [[nodiscard]] bool IsVoid(const Event& event) const {
    return (event.kind == Kind::kFinish || event.kind == Kind::kLoaded) &&
           event.life != fleet_.devices()[event.device].life;
  }

  void Handle(const Event& event) {
    now_ = event.at;
    if (IsVoid(event)) return;
    switch (event.kind) {
      case Kind::kAsk:
        return Ask(event.job);
      case Kind::kDeliver:
        return Arrive(event);
      case Kind::kFinish:
        return Finish(event);
      case Kind::kLoaded:
        return fleet_.Loaded(event.device, now_);
      case Kind::kEnd:
        return EndJob(event.job,
                      now_ <= Deadline(jobs_[event.job]) ? Job::State::kDone : Job::State::kFailed);
      case Kind::kReport:
        control_->Report(now_);
        if (now_ < horizon_ || inside_ > 0)
          events_.Add({.at = now_ + control_->report_interval(), .kind = Kind::kReport});
        return;
      case Kind::kDie:
        fleet_.Die(event.device, now_);
        return NextDeath(event.device, now_ + FromSeconds(settings_.repair_s()));
      case Kind::kLost:
        return fleet_.Lost(event.device, now_);
      case Kind::kReturn:
        return fleet_.Return(event.device, now_);
      case Kind::kDecide:
        control_->Decide(now_);
        if (now_ < horizon_)
          events_.Add({.at = now_ + control_->decide_interval(), .kind = Kind::kDecide});
        return;
    }
  }

  void Ask(int number) {
    // Only the next arrival is in the queue. The first request of a job brings in the one after it.
    if (jobs_[number].asked == now_) NextArrival();
    Job& job = jobs_[number];
    const Control::Answer answer = control_->Admit(
        {.job = number, .app = job.app, .units = job.units, .deadline = Deadline(job)});
    if (answer.set) {
      job.set = *answer.set;
      job.state = Job::State::kInside;
      job.entered = now_;
      ++inside_;
      ++accepted_;
      const App& app = system_.apps[job.app];
      for (std::size_t s = 0; s < app.stages.size(); ++s) {
        if (app.stages[s].after.empty()) fleet_.Deliver(number, static_cast<int>(s), kProxy, now_);
      }
      return;
    }
    ++refusals_;
    const double patience =
        settings_.has_retry_s() ? settings_.retry_s() : system_.apps[job.app].slo_s;
    const Time again = now_ + std::max<Time>(answer.retry, 1'000'000);
    if (again > job.asked + FromSeconds(patience)) {
      job.state = Job::State::kRejected;
      return;
    }
    events_.Add({.at = again, .kind = Kind::kAsk, .job = number});
  }

  void Arrive(const Event& event) {
    Job& job = jobs_[event.job];
    const Stage& stage = system_.apps[job.app].stages[event.stage];
    if (++job.branches[event.stage] < stage.after.size()) return;
    if (IsWanted(event.job)) fleet_.Deliver(event.job, event.stage, event.device, now_);
  }

  void Finish(const Event& event) {
    Job& job = jobs_[event.job];
    const App& app = system_.apps[job.app];
    const Stage& stage = app.stages[event.stage];
    float before = 0;
    for (const int other : stage.after) before = std::max(before, job.way[other]);
    job.way[event.stage] =
        before + static_cast<float>(Seconds(event.job, event.stage) + stage.transfer_s);
    fleet_.Finish(event.device, event.job, event.stage, now_);
    if (job.state != Job::State::kInside) return;
    const Time arrives = now_ + FromSeconds(stage.transfer_s);
    for (const int next : stage.next) {
      events_.Add({.at = arrives,
                   .kind = Kind::kDeliver,
                   .job = event.job,
                   .stage = next,
                   .device = event.device});
    }
    // The last stage makes the result.
    if (event.stage + 1 == static_cast<int>(app.stages.size()))
      events_.Add({.at = arrives, .kind = Kind::kEnd, .job = event.job});
  }

  void EndJob(int number, Job::State state) {
    Job& job = jobs_[number];
    if (job.state != Job::State::kInside) return;
    job.state = state;
    job.ended = now_;
    --inside_;
    control_->End(number);
  }

  static Percentiles PercentilesOf(std::vector<double> values) {
    Percentiles all;
    if (values.empty()) return all;
    std::ranges::sort(values);
    for (const double value : values) all.mean += value;
    all.mean /= static_cast<double>(values.size());
    // Returns the smallest value that at least `percent` per cent of the values do not exceed.
    const auto at = [&](std::size_t percent) {
      return values[(values.size() * percent + 99) / 100 - 1];
    };
    all.p50 = at(50);
    all.p95 = at(95);
    all.p99 = at(99);
    all.max = values.back();
    return all;
  }

  [[nodiscard]] SimulationResult Conclude() const {
    SimulationResult result{.offered = jobs_.size(),
                            .accepted = accepted_,
                            .rejected = jobs_.size() - accepted_,
                            .in_flight = inside_,
                            .refusals = refusals_,
                            .duration_s = settings_.duration_s(),
                            .moves = control_->leader().moves(),
                            .reverts = control_->leader().reverts(),
                            .deaths = fleet_.counts().deaths,
                            .given_again = fleet_.counts().again,
                            .failed_loads = fleet_.counts().failed_loads,
                            .parked_loads = fleet_.counts().parked_loads,
                            .policy_detail = control_->detail(),
                            .events = handled_};
    std::vector<double> latencies, queued;
    std::uint64_t ended = 0;
    for (const Job& job : jobs_) {
      result.failed += job.state == Job::State::kFailed ? 1 : 0;
      if (job.state != Job::State::kDone) continue;
      ++result.done;
      ended += job.ended <= horizon_ ? 1 : 0;
      latencies.push_back(ToSeconds(job.ended - job.asked));
      // What a job took beyond its longest way, it spent in queues.
      const std::size_t last = system_.apps[job.app].stages.size() - 1;
      queued.push_back(
          std::max(0.0, ToSeconds(job.ended - job.entered) - static_cast<double>(job.way[last])));
      result.in_time += latencies.back() <= system_.apps[job.app].slo_s ? 1 : 0;
    }
    result.throughput = static_cast<double>(ended) / settings_.duration_s();
    result.latency = PercentilesOf(std::move(latencies));
    result.queued = PercentilesOf(std::move(queued));
    if (result.offered > 0)
      result.attainment = static_cast<double>(result.in_time) / static_cast<double>(result.offered);
    AddUses(result);
    return result;
  }

  void AddUses(SimulationResult& result) const {
    for (std::size_t p = 0; p < system_.pools.size(); ++p) {
      const Pool& pool = system_.pools[p];
      const PoolUse& use = fleet_.use(static_cast<int>(p));
      const double worker_s = use.instance_s * pool.workers;
      result.pools.push_back({.id = pool.id,
                              .devices = pool.devices,
                              .mean_instances = use.instance_s / settings_.duration_s(),
                              .utilization = worker_s > 0 ? use.busy_s / worker_s : 0,
                              .device_s = use.instance_s * pool.devices,
                              .jobs = use.jobs});
      result.reserved_device_s += use.instance_s * pool.devices;
      result.busy_device_s += use.busy_s / pool.workers * pool.devices;
    }
    if (result.done > 0)
      result.reserved_per_job = result.reserved_device_s / static_cast<double>(result.done);
    result.resident_bytes_mean = fleet_.resident_byte_s() / settings_.duration_s();
    result.resident_bytes_peak = static_cast<double>(fleet_.resident_peak());
  }

  const System& system_;
  const v1::SimulationConfig& settings_;
  const std::vector<Arrival>& arrivals_;
  const SimulationOptions& options_;
  Time horizon_, end_ = 0, now_ = 0;
  EventQueue events_;
  std::vector<Job> jobs_;
  Fleet fleet_;
  std::unique_ptr<Control> control_;
  std::uint64_t accepted_ = 0, refusals_ = 0, inside_ = 0, handled_ = 0, deaths_drawn_ = 0;
};

absl::Status CheckSets(const System& system, const v1::SimulationConfig& settings,
                       const std::vector<int>& placement) {
  for (std::size_t p = 0; p < system.pools.size(); ++p) {
    if (placement[p] >= settings.workflow_sets()) continue;
    return base::MakeError(
        absl::StatusCode::kInvalidArgument, "BAD_SETTING",
        absl::StrCat("workflow_sets is ", settings.workflow_sets(), ", but pool '",
                     system.pools[p].id, "' begins with ", placement[p],
                     " instances: ", "each set needs one of every pool"));
  }
  for (const App& app : system.apps) {
    for (const Stage& stage : app.stages) {
      const auto same = std::ranges::count(app.stages, stage.pool, &Stage::pool);
      if (same == 1) continue;
      return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_PROFILE",
                             absl::StrCat("profile: ", same, " stages of ", app.id, " name pool '",
                                          system.pools[stage.pool].id,
                                          "': a pool serves one stage of an application"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SimulationResult> Simulate(const System& system,
                                          const v1::SimulationConfig& settings,
                                          const std::vector<Arrival>& arrivals,
                                          const SimulationOptions& options) {
  ONEPIECE_RETURN_IF_ERROR(CheckSets(system, settings, options.placement));
  return Simulation(system, settings, arrivals, options).Run();
}

}  // namespace onepiece::simulator
