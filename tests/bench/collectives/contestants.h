// The contestants of the benchmark of collectives that are in this program.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tests/bench/collectives/contest.h"

namespace onepiece::bench {

/// Where the processes of one contest meet.
struct Meeting {
  int ranks = 0;
  int rank = 0;
  std::string folder;  ///< Of the contest alone; the hub's socket is in it.
  std::string fabric;  ///< A URI.
};

absl::StatusOr<std::unique_ptr<Contestant>> JoinFabric(const Meeting& meeting);
/// gloo's own algorithms, over loopback.
absl::StatusOr<std::unique_ptr<Contestant>> JoinGloo(const Meeting& meeting);

/// The hub's socket in the folder.
inline std::string HubPath(const std::string& folder) { return folder + "/hub"; }

}  // namespace onepiece::bench
