// Decides what goes wrong, and when. It never does what no protocol could survive: a majority of
// every group of voters that may be in force keeps its disks. Disasters (world.h) are not its work.
#pragma once

#include <string>
#include <utility>
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
  /// True when the disks that are left hold a majority of every group of voters that may be in
  /// force. A history that is stuck although they do has found a defect.
  [[nodiscard]] bool MajorityIsLeft() const;
  /// Another group begins. Losses of the last one mean nothing for it.
  void BeginGeneration() { losses_.clear(); }

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
  void TwinLoss();
  void Lose(Host& host, Fault fault);
  [[nodiscard]] bool MayWipe(const Host& host) const;
  [[nodiscard]] bool MayTakeSeat(const std::string& name) const;
  /// True when `hosts` can go on without all others, with what is on their disks: they hold a
  /// majority of all members that may be in force, as far as the host among them that knows most
  /// can tell. That must hold also when any of the replicas `gone`, which will never answer again,
  /// are given seats just now, and, unless `leaves` is empty, when the seat of that name is taken.
  [[nodiscard]] bool Suffice(const std::vector<std::size_t>& hosts,
                             const std::vector<ReplicaId>& gone, const std::string& leaves) const;
  /// The replicas that a leader may still believe in although their disks are lost.
  [[nodiscard]] std::vector<ReplicaId> JustLost() const;
  [[nodiscard]] std::vector<std::size_t> WithDisk() const;
  [[nodiscard]] Host* Leader();
  /// A host that runs, often the leader, or null.
  Host* Victim();
  Host* FromStock();

  Context& c_;
  Network& network_;
  std::vector<Host>& hosts_;
  bool stopped_ = false;
  std::vector<std::pair<Nanos, ReplicaId>> losses_;  // Of disks, and when.
};

}  // namespace onepiece::paxos::sim
