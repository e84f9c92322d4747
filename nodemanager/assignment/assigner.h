// The assigner decides which stage each instance serves.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// Plans which stage each instance serves.
///
/// Each workflow set is assigned by itself. An instance belongs to a pool (pools.h), and serves all
/// applications of the pool with the model of each:
/// - An instance stays where its placement says. Without a placement it stays in the pool of its
///   assignment, as long as that pool exists. Otherwise it is free.
/// - A free instance goes to the pool with the smallest ratio of instances to min_instances that is
///   not full. Of equal ones that gets it which has the smaller part of its instances on the same
///   host (then: in the same zone), or else the first in workflow order. An instance that its
///   configuration pins serves stages of that name only, and a pool that needs a device is served
///   only by instances that have it.
/// - A pool below its minimum then takes idle instances, from the hosts and zones first where it
///   has fewest.
/// - A pool that is still empty takes an instance from the pool with the highest such ratio that
///   has at least two, and from the host where that pool has most. The placements of taken
///   instances change with them.
/// - A pinned instance whose pool is gone goes to another pool of the stage, and is pinned there.
///   If there is none, it is free and its pin ends.
///
/// Some instances are left alone: those that a plan moves (while they drain, even their assignment
/// stays), those whose placement is pinned or removed, and those that could not load their model.
/// An instance that could not load its model does not count, so another one is tried. After two
/// failures the model is to blame. Both then count, and no third instance is spent.
///
/// It remembers what it has read and answered, and computes only those workflow sets anew in which
/// something has changed that matters here. So a report that only says READY costs one look at the
/// revision of each node.
///
/// Threading: thread-compatible.
/// Invariants: the answer is a pure function of the state. What it remembers only makes it faster.
class Assigner {
 public:
  /// Returns the changes that bring every live instance to the stage that it shall serve. There are
  /// no assignments in it when nothing has to change.
  /// REQUIRES: the states of all calls are of one log, each as old as the last one or newer.
  v1::Assign Plan(const StateMachine& state);
  /// How many times a workflow set was computed anew.
  [[nodiscard]] std::uint64_t computed_sets() const { return computed_sets_; }

 private:
  // What was read of an instance.
  struct Facts {
    std::uint64_t revision = 0;  // Of the record that was read last.
    std::string inputs;          // All of the record that matters here, as bytes.
    std::uint64_t changed = 0;   // The round in which `inputs` changed last.
    std::uint64_t seen = 0;      // The round in which it was alive last.
    std::string pool, stage;     // Of its assignment: the pool's id, and the stage as bytes.
  };
  // What a set was planned for. When nothing in it has changed, the answer has not either.
  struct Stamp {
    // A member that has changed or is new has a higher number than all members had. If none has,
    // members can only have left, and then there are fewer.
    std::size_t members = 0;
    std::uint64_t newest = 0;  // The highest Facts::changed of the members.
    // The same for workflows.
    std::size_t workflows = 0;
    std::uint64_t newest_workflow = 0;
    // Pool, minimum, maximum, device and its memory.
    std::vector<std::tuple<std::string, int, int, std::string, std::int64_t>> limits;
    std::vector<std::pair<std::string, bool>> moves;  // Nodes of plans, and whether they drain.
    bool operator==(const Stamp&) const = default;
  };
  struct Set {
    Stamp stamp;
    google::protobuf::RepeatedPtrField<v1::NodeAssignment> answer;
  };

  void Read(const v1::NodeRecord& record, Facts& facts) const;
  std::map<std::string, Stamp> ReadAll(const StateMachine& state);
  void Compute(const StateMachine& state, const std::string& workflow_set, Set& set) const;

  std::uint64_t round_ = 0, computed_sets_ = 0;
  std::map<std::string, Facts> facts_;  // By node id.
  std::map<std::string, Set> sets_;
};

}  // namespace onepiece::nodemanager
