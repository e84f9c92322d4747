// The control plane of a simulation: the product's own telemetry window, policy and request monitor
// on a virtual clock.
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

/// A job that asks to be let in.
struct Asking {
  int job = 0, app = 0;
  double units = 1;
  Time deadline = 0;
};

/// Threading  Thread-compatible. Borrows `system` and `fleet`.
class Control {
 public:
  /// Errors: as CompleteElasticity and MakePolicy.
  static absl::StatusOr<std::unique_ptr<Control>> Create(const System& system,
                                                         const v1::SimulationConfig& settings,
                                                         const std::string& policy,
                                                         const Fleet& fleet);

  /// Brings the clock to `now`.
  void Advance(Time now);
  /// nullopt: it is in; else it may ask again after so long.
  std::optional<Time> Admit(const Asking& asking);
  void End(int job);
  /// All instances and the proxy report; the proxy learns what the pools can do.
  void Report(Time now);

  struct Wanted {
    int device = 0;
    int pool = 0;
  };
  /// What the policy would move now.
  std::vector<Wanted> Decide(Time now);
  /// A move was begun.
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
  std::vector<std::string> names_;    // Of devices.
  std::vector<Time> busy_;            // Of devices, at their last report.
  std::vector<std::uint64_t> asked_;  // By application, while everything enters.
  std::vector<nodemanager::PastMove> past_;
  std::vector<std::optional<base::MonotonicTime>> changed_;  // By pool.
};

}  // namespace onepiece::simulator
