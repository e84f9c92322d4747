// A history: jobs go through two stages to the databases while processes die, pause and are cut
// off; at the end everything is well again, and what was told must be true.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace onepiece::simulation {

struct Outcome {
  std::vector<std::string> violations;  ///< Empty: all promises were kept.
  int jobs = 0, succeeded = 0, cancelled = 0, failed = 0, faults = 0;
};

Outcome RunHistory(std::uint64_t seed);

}  // namespace onepiece::simulation
