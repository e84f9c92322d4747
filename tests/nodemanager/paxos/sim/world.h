// One history: a group, its clients, and what goes wrong; first all of it, then the proof that the
// group lives on.
#pragma once

#include <ostream>
#include <vector>

#include "tests/nodemanager/paxos/sim/client.h"
#include "tests/nodemanager/paxos/sim/nemesis.h"

namespace onepiece::paxos::sim {

struct Outcome {
  Violation violation;
  Nanos at = 0;  ///< When it was found.
  Tally tally;
};

/// Three phases, as TigerBeetle's VOPR has two: faults; a healed majority, cut off from the others,
/// must serve again; everybody healed, all must come to the same state.
class World {
 public:
  /// `story`, when not null, takes the trace.
  World(std::uint64_t seed, WorldMutant mutant, std::ostream* story);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Outcome Run();

 private:
  enum class Phase : std::uint8_t { kFaults, kMajority, kAll, kOver };

  void Found();
  void Handle(const Event& event);
  void CheckLeaders();
  void CheckBelief(const Host& leader);
  void CheckPromises(const Host& holder);
  void NextPhase();
  void HealMajority();
  void HealAll();
  [[nodiscard]] bool Together() const;
  void Judge();
  /// Where everybody is; for the end of a trace.
  void TellStates();

  Context c_;
  Network network_;
  std::vector<Host> hosts_;
  Clients clients_;
  Nemesis nemesis_;
  Phase phase_ = Phase::kFaults;
  Nanos phase_since_ = 0;
  std::vector<Ballot> led_;  // By host: the newest ballot under which it was seen ready.
};

/// The history of `seed`, from its beginning to its end or its first violation.
Outcome RunHistory(std::uint64_t seed, WorldMutant mutant, std::ostream* story);

}  // namespace onepiece::paxos::sim
