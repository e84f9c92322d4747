#include "nodemanager/simulator/control.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/numbers.h"
#include "cluster/base/seconds.h"
#include "cluster/base/status.h"
#include "nodemanager/simulator/random.h"

namespace onepiece::simulator {
namespace {

base::Uid UidOf(int job) {
  std::array<std::uint8_t, 16> bytes{};
  for (std::size_t i = 0; i < 4; ++i)
    bytes[15 - i] = static_cast<std::uint8_t>(static_cast<std::uint32_t>(job) >> (8 * i));
  bytes[0] = 1;  // Not nil.
  return base::Uid(bytes);
}

// How long a client waits that is not told when to ask again.
constexpr Time kDefaultRetry = 1'000'000'000;

Time RetryAfter(const absl::Status& status) {
  for (const auto& [key, value] : base::GetReason(status).metadata) {
    std::int64_t ms = 0;
    if (key == "retry_after_ms" && absl::SimpleAtoi(value, &ms) && ms > 0) return ms * 1'000'000;
  }
  return kDefaultRetry;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Control>> Control::Create(const System& system,
                                                         const v1::SimulationConfig& settings,
                                                         const std::string& policy, Fleet& fleet) {
  v1::ElasticityConfig wanted = settings.elasticity();
  wanted.set_policy(policy);
  ONEPIECE_ASSIGN_OR_RETURN(const v1::ElasticityConfig elasticity,
                            nodemanager::CompleteElasticity(wanted));
  ONEPIECE_ASSIGN_OR_RETURN(auto made, nodemanager::MakePolicy(elasticity));
  return std::unique_ptr<Control>(
      new Control(system, settings, elasticity, std::move(made), fleet));
}

Control::Control(const System& system, const v1::SimulationConfig& settings,
                 const v1::ElasticityConfig& elasticity,
                 std::unique_ptr<nodemanager::Policy> policy, Fleet& fleet)
    : system_(system),
      settings_(settings),
      fleet_(fleet),
      policy_(std::move(policy)),
      leader_(system, settings, elasticity, fleet, clock_),
      // 30 reports a window are fresh enough for LoadWindow. More would only slow the simulation
      // down.
      report_interval_(FromSeconds(std::max(0.5, elasticity.window_s() / 30))),
      decide_interval_(FromSeconds(elasticity.interval_s())),
      moves_(policy_->name() != "static"),
      busy_(static_cast<std::size_t>(system.devices)),
      reported_(static_cast<std::size_t>(system.devices)) {
  for (int set = 0; set < settings.workflow_sets(); ++set) {
    for (int number = 0; number < settings.proxies(); ++number) {
      Proxy& proxy = proxies_.emplace_back();
      proxy.set = set;
      proxy.name = Leader::ProxyName(set, number);
      proxy.asked.resize(system.apps.size());
      if (settings.admission())
        proxy.monitor =
            std::make_unique<admission::RequestMonitor>(admission::RequestMonitorOptions{}, clock_);
    }
  }
}

void Control::Advance(Time now) {
  clock_.Advance(base::Duration(now - now_));
  now_ = now;
}

Control::Answer Control::Admit(const Asking& asking) {
  // A client keeps to one proxy of each set.
  Random random(settings_.seed(), static_cast<std::uint64_t>(asking.job) + 1, 11);
  const auto first =
      static_cast<int>(random.Next() % static_cast<std::uint64_t>(settings_.workflow_sets()));
  const auto number =
      static_cast<int>(random.Next() % static_cast<std::uint64_t>(settings_.proxies()));
  if (!settings_.admission()) {
    ++ProxyOf(first, number).asked[asking.app];
    return {.set = first};
  }
  const App& app = system_.apps[asking.app];
  admission::AdmissionRequest request{
      .uid = UidOf(asking.job),
      .app_id = app.id,
      .deadline = clock_.WallNow() + base::Duration(asking.deadline - now_)};
  for (const Stage& stage : app.stages) {
    request.stages.push_back(
        {.stage = leader_.stage_name(stage), .units = asking.units * stage.units});
    for (const int before : stage.after)
      request.stages.back().after.push_back(leader_.stage_name(app.stages[before]));
  }
  Answer answer{.retry = kDefaultRetry};
  for (int turn = 0; turn < settings_.workflow_sets(); ++turn) {
    const int set = (first + turn) % settings_.workflow_sets();
    Proxy& proxy = ProxyOf(set, number);
    const absl::Status admitted = proxy.monitor->Admit(request);
    if (!admitted.ok()) {
      const Time retry = RetryAfter(admitted);
      answer.retry = turn == 0 ? retry : std::min(answer.retry, retry);
      continue;
    }
    proxy.monitor->Keep(request.uid);
    if (admitted_by_.size() <= static_cast<std::size_t>(asking.job))
      admitted_by_.resize(static_cast<std::size_t>(asking.job) + 1);
    admitted_by_[asking.job] = static_cast<int>(&proxy - proxies_.data());
    return {.set = set};
  }
  return answer;
}

void Control::End(int job) {
  if (settings_.admission()) proxies_[admitted_by_[job]].monitor->End(UidOf(job));
}

void Control::HearNews(Time now) {
  // What has begun to serve says so with a first report, so that its workers are known.
  std::vector<int> begun;
  for (int i = 0; i < system_.devices; ++i) {
    const Device& device = fleet_.devices()[i];
    if (device.state == Device::State::kServing &&
        leader_.window().Last(leader_.name(i)) == nullptr)
      begun.push_back(i);
  }
  leader_.Settle(now);
  for (const int device : begun) ReportInstance(device, now);
}

void Control::Report(Time now) {
  Settle(now);
  for (int i = 0; i < system_.devices; ++i) ReportInstance(i, now);
  for (Proxy& proxy : proxies_) ReportProxy(proxy);
  // Phases that last too long end now.
  leader_.Settle(now);
  for (Proxy& proxy : proxies_) {
    if (proxy.monitor)
      proxy.monitor->Update(MakeCapacity(leader_.state(), leader_.telemetry(),
                                         Leader::SetName(proxy.set), proxy.name));
  }
}

void Control::Decide(Time now) {
  const std::string detail = leader_.Decide(*policy_, now);
  if (!detail.empty()) detail_ = detail;
}

void Control::ReportInstance(int index, Time now) {
  const Device& device = fleet_.devices()[index];
  const Time busy = fleet_.BusyAt(index, now);
  // The marks move on before the return below. Otherwise the first report at the next pool would
  // count what the device did at the last one.
  const Time did = busy - std::exchange(busy_[index], busy);
  // Nobody asks how busy an idle device is.
  const double elapsed = static_cast<double>(now - std::exchange(reported_[index], now));
  const bool silent = device.pool == kIdlePool || device.state == Device::State::kDead;
  if (silent) return leader_.window().Forget(leader_.name(index));
  const bool serves = device.state == Device::State::kServing;
  v1::NodeLoad load;
  const int workers = system_.pools[device.pool].workers;
  load.set_workers(workers);
  load.set_utilization_source(v1::WORKERS);
  if (elapsed > 0)
    load.set_utilization(std::min(1.0, static_cast<double>(did) / elapsed / workers));
  load.set_queued_jobs(device.queued);
  load.set_running_jobs(device.running);
  load.set_held_jobs(device.queued + device.running);
  load.set_sample_unix_ms(base::ToUnixMs(clock_.WallNow()));
  for (std::size_t a = 0; a < system_.apps.size(); ++a) {
    const App& app = system_.apps[a];
    for (std::size_t s = 0; s < app.stages.size(); ++s) {
      const Work& work = device.work[fleet_.Flat(static_cast<int>(a), static_cast<int>(s))];
      if (work.jobs == 0) continue;
      v1::StageLoad& stage = *load.add_stages();
      stage.set_app_id(app.id);
      stage.set_stage(leader_.stage_name(app.stages[s]));
      stage.set_jobs(work.jobs);
      stage.set_units(work.units);
      stage.set_compute_s(work.compute_s);
      stage.set_compute_squares_s2(work.squares_s2);
      stage.set_queued_s(work.queued_s);
      stage.set_transfer_s(work.transfer_s);
      stage.set_load_s(system_.pools[app.stages[s].pool].load_s);
    }
  }
  // An instance that loads or drains serves no pool, so its time is not part of a pool's
  // utilisation.
  leader_.window().Add(leader_.name(index), leader_.incarnation(index),
                       serves ? leader_.pool_id(device.pool) : "", load, clock_.Now());
}

void Control::ReportProxy(Proxy& proxy) {
  v1::NodeLoad load;
  load.set_sample_unix_ms(base::ToUnixMs(clock_.WallNow()));
  if (proxy.monitor) {
    for (const v1::Demand& demand : proxy.monitor->demands()) *load.add_demands() = demand;
    for (const v1::PoolDebt& debt : proxy.monitor->debts()) *load.add_debts() = debt;
  } else {
    for (std::size_t a = 0; a < system_.apps.size(); ++a) {
      v1::Demand& demand = *load.add_demands();
      demand.set_app_id(system_.apps[a].id);
      demand.set_admitted(proxy.asked[a]);
    }
  }
  leader_.window().Add(proxy.name, 1, "", load, clock_.Now());
}

}  // namespace onepiece::simulator
