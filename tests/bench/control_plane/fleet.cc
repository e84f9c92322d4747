#include "tests/bench/control_plane/fleet.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "cluster/base/status.h"

namespace onepiece::bench {
namespace {

std::string Answer(Fleet& fleet, const std::string& question) {
  std::istringstream words(question);
  std::string what;
  std::int64_t version = 0, limit_ms = 0;
  words >> what >> version >> limit_ms;
  Sightings& sightings = what == kTables ? fleet.tables : fleet.heartbeats;
  const Sightings::Outcome outcome =
      sightings.WaitForAll(version, std::chrono::milliseconds(limit_ms));
  std::string text = std::to_string(outcome.last.time_since_epoch().count()) + " " +
                     std::to_string(outcome.missing.size());
  if (!outcome.missing.empty()) text += " " + fleet.Complaint(outcome.missing.front());
  std::ranges::replace(text, '\n', ' ');
  return text + "\n";
}

}  // namespace

std::int64_t VersionOf(std::string_view text) {
  std::int64_t version = 0;
  std::from_chars(text.data(), text.data() + text.size(), version);
  return version;
}

int RunFleet(const FleetPlan& plan, int in_fd, int out_fd) {
  absl::StatusOr<std::unique_ptr<Fleet>> fleet =
      plan.kind == FleetKind::kEtcd ? StartEtcdNodes(plan) : StartNodes(plan);
  if (!fleet.ok()) {
    std::fprintf(stderr, "%s\n", base::Message(fleet.status()).c_str());
    return EXIT_FAILURE;
  }
  FILE* in = fdopen(in_fd, "r");
  FILE* out = fdopen(out_fd, "w");
  char line[256];
  while (std::fgets(line, sizeof(line), in) != nullptr) {
    std::fputs(Answer(**fleet, line).c_str(), out);
    std::fflush(out);
  }
  std::_Exit(EXIT_SUCCESS);  // Without a destructor: see Fleet.
}

}  // namespace onepiece::bench
