// A group of replicas in memory: one queue of messages, one clock, disks that remember.
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

/// What a disk does with a batch of writes.
void ApplyWrites(const Writes& writes, DurableState& disk);
std::shared_ptr<const std::string> Command(const std::string& text);
inline Time At(std::int64_t ms) { return Time(std::chrono::milliseconds(ms)); }

/// Delivers in order, `latency` after sending, what `passes` lets through. Dies when two replicas
/// hand out different entries for a slot, or one hands out a slot out of order.
class Group {
 public:
  struct Node {
    Options options;
    DurableState disk;
    std::optional<Replica> replica;  ///< None: it is down.
    double rate = 1;                 ///< Of its clock, since `rate_since`.
    Time rate_since, local_then;
    Slot applied = 0;
    std::map<Slot, Entry> state;  ///< What it handed out since its snapshot.
    int restores = 0, losses = 0;
    Outputs last;  ///< Of its last step.
  };

  /// `count` replicas with ids 1, 2, … and seats "n1", "n2", …, all occupied.
  explicit Group(std::size_t count, const std::function<void(Options&)>& adjust = {});
  /// Nobody; AddNode() follows.
  Group() = default;

  /// A replica that starts from `disk`, whose `replica` is its id.
  Node& AddNode(const std::string& name, DurableState disk);
  void Stop(ReplicaId id) { node(id).replica.reset(); }
  void Start(ReplicaId id);
  Node& node(ReplicaId id) { return nodes_.at(id); }
  Replica& replica(ReplicaId id) { return *nodes_.at(id).replica; }
  [[nodiscard]] std::map<ReplicaId, Node>& nodes() { return nodes_; }

  /// Delivers and ticks until `duration` has passed, or `until` holds; false when it never did.
  bool Run(Duration duration, const std::function<bool()>& until = {});
  /// Runs until some replica is ready to lead; 0 when none was within `duration`.
  ReplicaId AwaitLeader(Duration duration = std::chrono::seconds(10));
  /// The ready leader of the highest ballot that is up; 0: none.
  [[nodiscard]] ReplicaId Leader() const;
  /// Proposes at the leader and runs until it has handed it out; the slot, 0 when that failed.
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
  std::function<void(Options&)> adjust;
  std::size_t messages = 0;

 private:
  struct Wire {
    Time at;
    Message message;
  };
  std::map<ReplicaId, Node> nodes_;
  std::deque<Wire> wire_;
  std::map<Slot, Entry> chosen_;
};

}  // namespace onepiece::paxos
