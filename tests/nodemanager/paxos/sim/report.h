// Runs many histories on all cores, and reports about them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nodemanager/paxos/mutant.h"
#include "tests/nodemanager/paxos/sim/world.h"

namespace onepiece::paxos::sim {

/// Something that is broken on purpose, in the core or around it.
struct NamedMutant {
  std::string name;
  Mutant core = Mutant::kNone;
  WorldMutant world = WorldMutant::kNone;
};
/// All mutants. The first is "none", which breaks nothing.
const std::vector<NamedMutant>& AllMutants();
/// The mutant of this name, or null.
const NamedMutant* FindMutant(const std::string& name);

struct Failure {
  std::uint64_t seed = 0;
  Violation violation;
  Nanos at = 0;
};

struct Report {
  std::uint64_t seeds = 0;  ///< Histories that ran to their end.
  double seconds = 0;
  Tally sum;
  std::uint64_t median_delivered = 0, median_leader_changes = 0;
  std::optional<Failure> failure;  ///< The violation of safety of the lowest such seed.
  /// Histories whose last phases did not end although a majority was healed. Each is a defect, of
  /// the core or of the simulation.
  std::vector<Failure> stuck;
  std::vector<Failure> hopeless;  ///< Histories whose last phases did not end, and could not.

  [[nodiscard]] std::string Text() const;
  /// The faults that never happened.
  [[nodiscard]] std::vector<std::string> NeverFired() const;
};

/// Runs the history of `seed` under `mutant`.
Outcome RunSeed(std::uint64_t seed, const NamedMutant& mutant, std::ostream* story);
/// Runs `count` histories on `jobs` threads. After a violation of safety it runs only the lower
/// seeds to their end.
Report RunSeeds(std::uint64_t from, std::uint64_t count, unsigned jobs, const NamedMutant& mutant);
/// The command that replays a failed history, and what was violated.
std::string Explain(const Failure& failure, const NamedMutant& mutant);

/// Makes the process say which seed it ran when a CHECK of the core ends it.
void NameSeedOnAbort();

}  // namespace onepiece::paxos::sim
