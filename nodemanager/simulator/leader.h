// The NodeManager of a simulated cluster: the product's own state machine, assigner, plan engine
// and views (nodemanager/state, assignment, plans) on the virtual clock.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "nodemanager/assignment/assigner.h"
#include "nodemanager/load/load_window.h"
#include "nodemanager/plans/plans.h"
#include "nodemanager/policy/policy.h"
#include "nodemanager/simulator/fleet.h"
#include "nodemanager/state/state_machine.h"

namespace onepiece::simulator {

/// Turns what instances tell into commands, and the state that follows into roles of instances, as
/// the controller of the NodeManager and its watchers do together. There is one replica, and every
/// node goes by the newest routing table at once. Each device that is no member of another one's
/// instance is a node.
///
/// Ownership: borrows `system`, `settings`, `fleet` and `clock`, which must outlive it.
/// Threading: thread-compatible.
class Leader {
 public:
  /// REQUIRES: `elasticity` is complete.
  Leader(const System& system, const v1::SimulationConfig& settings,
         const v1::ElasticityConfig& elasticity, Fleet& fleet, base::Clock& clock);

  /// Takes the fleet's news, and goes on until nothing more follows from them now.
  void Settle(Time now);
  /// Starts the moves that the policy wants, and says why nothing moves.
  std::string Decide(const nodemanager::Policy& policy, Time now);

  [[nodiscard]] const nodemanager::StateMachine& state() const { return machine_; }
  nodemanager::LoadWindow& window() { return window_; }
  [[nodiscard]] nodemanager::Telemetry telemetry() const;
  [[nodiscard]] const std::string& name(int device) const { return names_[device]; }
  [[nodiscard]] std::uint64_t incarnation(int device) const { return incarnations_[device]; }
  /// The pool's id as the product forms it.
  [[nodiscard]] const std::string& pool_id(int pool) const { return pool_ids_[pool]; }
  /// The name of the stage in the workflow. Stages of one pool have one name.
  [[nodiscard]] const std::string& stage_name(const Stage& stage) const {
    return stage_names_[stage.pool];
  }
  static std::string SetName(int set);
  static std::string ProxyName(int set, int proxy);
  [[nodiscard]] std::uint64_t moves() const { return moves_; }
  /// Moves that came back or failed.
  [[nodiscard]] std::uint64_t reverts() const;

 private:
  void Found();
  void NamePools();
  [[nodiscard]] v1::Workflow WorkflowOf(const App& app) const;
  v1::CommandResult Apply(v1::Command command);
  void Register(int device);
  /// Puts the device where it is now, with or without an instance of a pool.
  void Put(int device);
  void Hear(const News& news);
  void TellState(int device, bool drained, bool load_failed);
  void FollowState(Time now);
  [[nodiscard]] bool IsMoving(int device) const;
  void DropImpossible(nodemanager::PolicyDecision& decision) const;
  void NoteEndedMoves();

  const System& system_;
  const v1::SimulationConfig& settings_;
  const v1::ElasticityConfig elasticity_;
  Fleet& fleet_;
  base::Clock& clock_;
  nodemanager::StateMachine machine_;
  nodemanager::Assigner assigner_;
  nodemanager::StampAges ages_;
  nodemanager::LoadWindow window_;
  std::vector<std::string> pool_ids_, stage_names_;   // By pool.
  std::map<std::string, int> pools_;                  // By id.
  std::map<std::string, int> sets_;                   // By name.
  std::vector<std::string> names_;                    // By device.
  std::map<std::string, int> devices_;                // By name.
  std::vector<std::uint64_t> incarnations_, epochs_;  // By device: of the assignment it follows.
  std::uint64_t next_incarnation_ = 0;
  std::uint64_t followed_revision_ = 0;
  std::uint64_t moves_ = 0;
  std::map<std::string, std::uint64_t> reverts_;  // By plan.
};

}  // namespace onepiece::simulator
