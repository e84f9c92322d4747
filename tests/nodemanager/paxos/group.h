// A group of replicas in memory, with one queue of messages, one true clock, and disks that survive
// a stop.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nodemanager/paxos/replica.h"

namespace onepiece::paxos {

/// Does to `disk` what a replica's database does with a batch of writes.
void ApplyWrites(const Writes& writes, DurableState& disk);
std::shared_ptr<const std::string> Command(const std::string& text);
inline Time At(std::int64_t ms) { return Time(std::chrono::milliseconds(ms)); }

/// The replicas of a Group: kN1 has the seat "n1".
inline constexpr ReplicaId kN1{1}, kN2{2}, kN3{3}, kN4{4}, kN5{5};
/// The replica after `id` in a group of three.
inline ReplicaId After(ReplicaId id) { return ReplicaId{id.value % 3 + 1}; }
/// The replica that is neither `one` nor `other` in a group of three.
inline ReplicaId Besides(ReplicaId one, ReplicaId other) {
  return ReplicaId{6 - one.value - other.value};
}

/// Delivers the messages that `passes` lets through, in order and `latency` after they were sent.
/// The process dies when two replicas hand out different entries for a slot, or when one hands out
/// a slot out of order.
class Group {
 public:
  struct Node {
    ReplicaOptions options;
    DurableState disk;
    std::optional<Replica> replica;  ///< nullopt while the node is down.
    double rate = 1;                 ///< The rate of its clock since `rate_since`.
    Time rate_since, local_then;
    Slot applied;
    std::map<Slot, LogEntry> state;  ///< What it handed out since its snapshot.
    int restores = 0, losses = 0;
    Outputs last;  ///< What its last step put out.
  };

  /// Makes `count` replicas with ids 1, 2, … that occupy the seats "n1", "n2", …
  explicit Group(std::size_t count, const std::function<void(ReplicaOptions&)>& adjust = {});
  /// Makes an empty group, for AddNode().
  Group() = default;

  /// Adds a replica that starts from `disk`. Its id is disk.replica.
  Node& AddNode(const std::string& name, DurableState disk);
  void Stop(ReplicaId id) { node(id).replica.reset(); }
  void Start(ReplicaId id);
  Node& node(ReplicaId id) { return nodes_.at(id); }
  Replica& replica(ReplicaId id) { return *nodes_.at(id).replica; }
  [[nodiscard]] std::map<ReplicaId, Node>& nodes() { return nodes_; }

  /// Delivers and ticks until `duration` has passed or `until` holds. Returns false when `until`
  /// never held.
  bool Run(Duration duration, const std::function<bool()>& until = {});
  /// Runs until a replica is ready to lead, and returns it. Returns 0 when none was within
  /// `duration`.
  ReplicaId AwaitLeader(Duration duration = std::chrono::seconds(10));
  /// The ready leader of the highest ballot among the nodes that are up, or 0.
  [[nodiscard]] ReplicaId Leader() const;
  /// Proposes a command at the leader and runs until the leader has handed it out. Returns its
  /// slot, or none when that failed.
  Slot Commit(const std::string& text);
  /// Calls a method of the replica and does what its Outputs say.
  template <typename Function>
  auto Step(ReplicaId id, Function function) {
    Outputs out;
    auto result = function(replica(id), LocalTime(id), out);
    Process(id, out);
    return result;
  }
  void Receive(ReplicaId id, const Message& message);
  void Process(ReplicaId id, Outputs& out);

  [[nodiscard]] Time LocalTime(ReplicaId id) const;
  void SetRate(ReplicaId id, double rate);
  Time now = At(1000);
  Duration latency = std::chrono::milliseconds(1);
  std::function<bool(const Message&)> passes;
  std::function<void(ReplicaOptions&)> adjust;
  std::size_t messages = 0;

 private:
  struct Wire {
    Time at;
    Message message;
  };
  std::map<ReplicaId, Node> nodes_;
  std::deque<Wire> wire_;
  std::map<Slot, LogEntry> chosen_;
};

}  // namespace onepiece::paxos
