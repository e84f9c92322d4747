// A history: clients submit jobs through several proxies, instances compute them and databases keep
// them, while processes die, pause and are cut off, and tables come late. At the end everything is
// well again, what was told must be true, and nothing may be left.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace onepiece::simulation {

struct Outcome {
  std::vector<std::string> violations;  ///< Empty: all promises were kept.
  int jobs = 0;                         ///< That were accepted.
  int recomputed = 0;                   ///< Computations that were made again.
  int restarted = 0;                    ///< Jobs that were started in several runs.
  std::map<std::string, int> ends;      ///< Of those jobs, by state and reason.
  std::map<std::string, int> faults;    ///< By kind.

  /// Adds the numbers of another history.
  void Add(const Outcome& other);
};

Outcome RunHistory(std::uint64_t seed);

}  // namespace onepiece::simulation
