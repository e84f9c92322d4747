// The control plane of a simulation. It runs the product's own telemetry window, policy and request
// monitor on a virtual clock.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/admission/request_monitor.h"
#include "cluster/base/clock.h"
#include "nodemanager/load/load_window.h"
#include "nodemanager/policy/policy.h"
#include "nodemanager/simulator/fleet.h"

namespace onepiece::simulator {

/// A job that asks to be admitted.
struct Asking {
  int job = 0, app = 0;
  double units = 1;
  Time deadline = 0;
};

/// What the leader and the only proxy of a simulated cluster do: reports, admission, decisions.
///
/// Ownership: borrows `system` and `fleet`, which must outlive it.
/// Threading: thread-compatible.
class Control {
 public:
  /// Errors: those of CompleteElasticity() and MakePolicy().
  static absl::StatusOr<std::unique_ptr<Control>> Create(const System& system,
                                                         const v1::SimulationConfig& settings,
                                                         const std::string& policy,
                                                         const Fleet& fleet);

  /// Brings the clock to `now`.
  void Advance(Time now);
  /// Asks the request monitor to admit the job. Returns nullopt when the job is admitted, and
  /// otherwise how long its client waits before it asks again.
  std::optional<Time> Admit(const Asking& asking);
  /// Tells the request monitor that the job has ended.
  void End(int job);
  /// Takes a report from every instance and from the proxy. The proxy learns what the pools can do.
  void Report(Time now);

  struct Wanted {
    int device = 0;
    int pool = 0;
  };
  /// Returns the moves that the policy wants now.
  std::vector<Wanted> Decide(Time now);
  /// Records that a move has begun, for later decisions.
  void Moved(int device, int from, int to, Time now);

  [[nodiscard]] Time report_interval() const { return report_interval_; }
  [[nodiscard]] Time decide_interval() const { return decide_interval_; }
  [[nodiscard]] bool moves() const { return moves_; }
  [[nodiscard]] const std::string& detail() const { return detail_; }

 private:
  Control(const System& system, const Fleet& fleet, v1::ElasticityConfig elasticity,
          std::unique_ptr<nodemanager::Policy> policy, bool admission);
  void ReportInstance(int device, Time now);
  void ReportProxy();
  [[nodiscard]] v1::Capacity MakeCapacity() const;
  void AddCosts(int pool, v1::Capacity& capacity) const;
  [[nodiscard]] nodemanager::PolicyView MakeView() const;
  void CountMoves(nodemanager::PolicyView& view) const;
  [[nodiscard]] nodemanager::SetView MakeSet() const;

  const System& system_;
  const Fleet& fleet_;
  v1::ElasticityConfig elasticity_;
  std::unique_ptr<nodemanager::Policy> policy_;
  base::ManualClock clock_;
  Time now_ = 0;
  base::MonotonicTime start_;
  nodemanager::LoadWindow window_;
  bool admission_;
  admission::RequestMonitor monitor_;
  Time report_interval_ = 0, decide_interval_ = 0;
  bool moves_ = false;
  std::string detail_;
  std::vector<std::string> names_;    // By device.
  std::vector<Time> busy_;            // By device: Fleet::BusyAt() at its last report.
  std::vector<std::uint64_t> asked_;  // Jobs by application, counted when admission is off.
  std::vector<nodemanager::PastMove> past_;
  std::vector<std::vector<base::MonotonicTime>> changes_;  // By pool, within a cooldown.
  std::vector<std::optional<int>> origins_;  // By device: the pool that its last move took it from.
};

}  // namespace onepiece::simulator
