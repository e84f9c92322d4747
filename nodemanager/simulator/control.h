// The control plane of a simulation: the NodeManager's leader, and the proxies with the product's
// own request monitor, on a virtual clock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/admission/request_monitor.h"
#include "cluster/base/clock.h"
#include "nodemanager/policy/policy.h"
#include "nodemanager/simulator/leader.h"

namespace onepiece::simulator {

/// A job that asks to be admitted.
struct Asking {
  int job = 0, app = 0;
  double units = 1;
  Time deadline = 0;
};

/// What the leader and the proxies of a simulated cluster do: reports, admission, decisions, moves.
///
/// Ownership: borrows `system`, `settings` and `fleet`, which must outlive it.
/// Threading: thread-compatible.
class Control {
 public:
  /// Errors: those of CompleteElasticity() and MakePolicy().
  static absl::StatusOr<std::unique_ptr<Control>> Create(const System& system,
                                                         const v1::SimulationConfig& settings,
                                                         const std::string& policy, Fleet& fleet);

  /// Brings the clock to `now`.
  void Advance(Time now);
  /// Where a job was admitted, or how long its client waits before it asks again.
  struct Answer {
    std::optional<int> set;
    Time retry = 0;
  };
  /// Asks a proxy of each workflow set in turn, beginning with one that the job's number names.
  Answer Admit(const Asking& asking);
  /// Tells the request monitor that the job has ended.
  void End(int job);
  /// Takes a report from every instance and from the proxies. The proxies learn what the pools can
  /// do.
  void Report(Time now);
  /// Acts on what instances have told. Call it after every event.
  void Settle(Time now) {
    if (fleet_.has_news()) HearNews(now);
  }
  /// Starts the moves that the policy wants now.
  void Decide(Time now);

  [[nodiscard]] Time report_interval() const { return report_interval_; }
  [[nodiscard]] Time decide_interval() const { return decide_interval_; }
  /// False when the policy never moves anything.
  [[nodiscard]] bool moves() const { return moves_; }
  [[nodiscard]] const Leader& leader() const { return leader_; }
  [[nodiscard]] const std::string& detail() const { return detail_; }

 private:
  struct Proxy {
    int set = 0;
    std::string name;
    std::unique_ptr<admission::RequestMonitor> monitor;
    std::vector<std::uint64_t> asked;  // Jobs by application, counted when admission is off.
  };
  Control(const System& system, const v1::SimulationConfig& settings,
          const v1::ElasticityConfig& elasticity, std::unique_ptr<nodemanager::Policy> policy,
          Fleet& fleet);
  [[nodiscard]] Proxy& ProxyOf(int set, int number) {
    return proxies_[static_cast<std::size_t>(set) * static_cast<std::size_t>(settings_.proxies()) +
                    static_cast<std::size_t>(number)];
  }
  void HearNews(Time now);
  void ReportInstance(int device, Time now);
  void ReportProxy(Proxy& proxy);

  const System& system_;
  const v1::SimulationConfig& settings_;
  Fleet& fleet_;
  base::ManualClock clock_;
  Time now_ = 0;
  std::unique_ptr<nodemanager::Policy> policy_;
  Leader leader_;
  std::vector<Proxy> proxies_;    // By set and number.
  std::vector<int> admitted_by_;  // By job: the proxy.
  Time report_interval_ = 0, decide_interval_ = 0;
  bool moves_ = false;
  std::string detail_;
  std::vector<Time> busy_, reported_;  // By device: Fleet::BusyAt() at its last report, and when.
};

}  // namespace onepiece::simulator
