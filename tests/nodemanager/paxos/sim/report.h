// Many histories on all cores, and what to say about them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nodemanager/paxos/mutant.h"
#include "tests/nodemanager/paxos/sim/world.h"

namespace onepiece::paxos::sim {

/// Something that is wrong on purpose, in the core or around it.
struct NamedMutant {
  std::string name;
  Mutant core = Mutant::kNone;
  WorldMutant world = WorldMutant::kNone;
};
/// The first is none, named "none".
const std::vector<NamedMutant>& AllMutants();
/// Null: there is none of that name.
const NamedMutant* FindMutant(const std::string& name);

struct Failure {
  std::uint64_t seed = 0;
  Violation violation;
  Nanos at = 0;
};

struct Report {
  std::uint64_t seeds = 0;  ///< Histories told to their end.
  double seconds = 0;
  Tally sum;
  std::uint64_t median_delivered = 0, median_leader_changes = 0;
  std::optional<Failure> failure;  ///< Of the lowest seed that broke a promise of safety.
  std::vector<Failure> stuck;      ///< Histories whose last phases did not come to their end.

  [[nodiscard]] std::string Text() const;
  /// Faults that never happened.
  [[nodiscard]] std::vector<std::string> NeverFired() const;
};

/// Tells the history of `seed` under `mutant`.
Outcome RunSeed(std::uint64_t seed, const NamedMutant& mutant, std::ostream* story);
/// Tells `count` histories on `jobs` threads; ends early at a failure of safety, when all lower
/// seeds are through.
Report RunSeeds(std::uint64_t from, std::uint64_t count, unsigned jobs, const NamedMutant& mutant);
/// The command that tells a failed history again, and what was violated.
std::string Explain(const Failure& failure, const NamedMutant& mutant);

/// When an invariant of the core itself ends the process, says which seed it was.
void NameSeedOnAbort();

}  // namespace onepiece::paxos::sim
