// One history: a group, its clients, and what goes wrong. At its end the group must show that it
// still works.
//
// In some histories a disaster takes more than any protocol survives. Then an operator begins a new
// group, as `onepiece-regroup` does (nodemanager/regroup): with a backup, when all disks are lost,
// or with the disk of one survivor, when a majority is. Old disks that turn up later must be of no
// consequence.
#pragma once

#include <optional>
#include <ostream>
#include <vector>

#include "tests/nodemanager/paxos/sim/client.h"
#include "tests/nodemanager/paxos/sim/nemesis.h"

namespace onepiece::paxos::sim {

struct Outcome {
  Violation violation;
  /// Of a history that is stuck: the nemesis left no majority, so that nothing could be healed.
  bool hopeless = false;
  Nanos at = 0;  ///< When it was found.
  Tally tally;
};

/// A history has three phases (TigerBeetle's VOPR has two). In the first, faults strike. In the
/// second, a healed majority, which is cut off from the others, must serve again. In the third,
/// everybody is healed and must come to the same state.
class World {
 public:
  /// `story`, when not null, takes the trace.
  World(std::uint64_t seed, WorldMutant mutant, std::ostream* story);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Outcome Run();

 private:
  enum class Phase : std::uint8_t { kFaults, kMajority, kAll, kOver };

  /// What an operator keeps, and what it must hold.
  struct Backup {
    Snapshot snapshot;
    std::uint64_t hash = 0;  // Of the toy and, where there is one, the real state.
  };

  void Found();
  void Strike(Fault disaster);
  void MakeBackup();
  void Restore();
  void Recover();
  /// Begins a new group on the host's empty disk. The other hosts are down and have no group,
  /// except those of `strays`, whose old disks turn up later.
  void BeginGroup(Host& first, Snapshot beginning, const std::vector<std::size_t>& strays);
  /// Chooses old disks that will turn up. They cannot go on by themselves.
  [[nodiscard]] std::vector<std::size_t> DrawStrays(const Host& first);
  void Handle(const Event& event);
  void CheckLeaders();
  void CheckBelief(const Host& leader);
  void CheckPromises(const Host& holder);
  void NextPhase();
  void HealMajority();
  void HealAll();
  [[nodiscard]] bool Together() const;
  void Judge();
  /// Writes where every host is, for the end of a trace.
  void TellStates();

  Context c_;
  Network network_;
  std::vector<Host> hosts_;
  Clients clients_;
  Nemesis nemesis_;
  std::optional<Backup> backup_;
  Phase phase_ = Phase::kFaults;
  Nanos phase_since_ = 0;
  std::vector<Ballot> led_;  // By host: the newest ballot under which it was ready to lead.
};

/// Runs the history of `seed` from its beginning to its end or to its first violation.
Outcome RunHistory(std::uint64_t seed, WorldMutant mutant, std::ostream* story);

}  // namespace onepiece::paxos::sim
