// What goes wrong, and when. It never does what no protocol could survive: it leaves a majority of
// every group of voters that may be in force with its disks.
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
  /// The next fault is due.
  void Strike();
  /// Lease attack, second half: the leader is out of reach and those who answered it start anew,
  /// while `candidate`, which has not heard it for long, asks them for their votes.
  void FinishAttack(std::size_t candidate);

  /// Chooses hosts that hold a majority of every group of voters that may be in force; all that
  /// have a disk when there is no smaller choice.
  std::vector<std::size_t> ChooseCore();
  /// What is not in `core` stays away from it for good: down, cut off, or cut off in one direction.
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
  /// With what is on their disks, `hosts` can go on without all others: they hold a majority of all
  /// members that may be in force, as far as the one of them that knows most can tell; also when
  /// `joins`, a replica that will never answer again, is given a seat just now (0: none is).
  [[nodiscard]] bool Suffice(const std::vector<std::size_t>& hosts, ReplicaId joins) const;
  [[nodiscard]] Host* Leader();
  /// One that runs; often the leader. Null: none runs.
  Host* Victim();
  Host* FromStock();

  Context& c_;
  Network& network_;
  std::vector<Host>& hosts_;
  bool stopped_ = false;
  Nanos lost_disk_at_ = -kSecond;  // When the last disk was lost.
};

}  // namespace onepiece::paxos::sim
