// Decides what goes wrong, and when. It never does what no protocol could survive: a majority of
// every group of voters that may be in force keeps its disks.
#pragma once

#include <vector>

#include "tests/nodemanager/paxos/sim/host.h"

namespace onepiece::paxos::sim {

class Nemesis {
 public:
  Nemesis(Context& context, Network& network, std::vector<Host>& hosts)
      : c_(context), network_(network), hosts_(hosts) {}

  void Start() { Next(); }
  void Stop() { stopped_ = true; }
  /// Does the next fault.
  void Strike();
  /// The second half of a lease attack. The leader is cut off and those who answered it may start
  /// anew, while `candidate`, which has not heard the leader for long, asks them for their votes.
  /// Or the leader is paused beyond its lease.
  void FinishAttack(std::size_t candidate);

  /// Chooses hosts that hold a majority of every group of voters that may be in force. These are
  /// all hosts with a disk when there is no smaller choice.
  std::vector<std::size_t> ChooseCore();
  /// Keeps all hosts outside `core` away from it for good: down, cut off, or cut off in one
  /// direction.
  void Isolate(const std::vector<std::size_t>& core);

 private:
  void Next() {
    c_.events.Push(c_.now + c_.random.Exponential(c_.plan.fault_gap), Event::Kind::kFault);
  }
  void Do(Fault fault);
  void CutGroups(Fault fault, Nanos until);
  void BeginAttack();
  void DelayAnswers();
  void Crash(Host& host);
  void Wipe(Host& host);
  void Operate(Fault fault);
  void ReturnToStock();
  [[nodiscard]] bool MayWipe(const Host& host) const;
  /// True when `hosts` can go on without all others, with what is on their disks: they hold a
  /// majority of all members that may be in force, as far as the host among them that knows most
  /// can tell. If `joins` is not 0, that must hold also when this replica, which will never answer
  /// again, is given a seat just now.
  [[nodiscard]] bool Suffice(const std::vector<std::size_t>& hosts, ReplicaId joins) const;
  [[nodiscard]] Host* Leader();
  /// A host that runs, often the leader, or null.
  Host* Victim();
  Host* FromStock();

  Context& c_;
  Network& network_;
  std::vector<Host>& hosts_;
  bool stopped_ = false;
  Nanos lost_disk_at_ = -kSecond;  // When the last disk was lost.
};

}  // namespace onepiece::paxos::sim
