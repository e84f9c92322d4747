// One run: a cluster, its clients, a schedule of faults, and the audit.
//
// The rules for the faults are those of the schedule (ledger_schedule.h), and two that only a run
// can keep:
//   - Before a fault of a database, every database is ready, and all results that were announced
//     while a database suffered, or in the 15 s after, have their copies again. An injury that
//     cannot keep this rule within a minute is skipped, and the run fails: the cluster has not
//     healed.
//   - When a fault strikes a database, at least kMinUnfetched results are announced and unfetched.
//     Otherwise the fault could take nothing, and the run has proved nothing: it fails as blind.
//
// A run keeps digests and not results: 20 minutes with 6000 jobs took it 120 MiB of memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/chaos/ledger.h"
#include "tests/chaos/ledger_cluster.h"
#include "tests/chaos/ledger_latency.h"
#include "tests/chaos/ledger_plant.h"
#include "tests/chaos/ledger_schedule.h"
#include "tests/chaos/outsider.h"

namespace onepiece::ledger {

struct RunOptions {
  std::uint64_t seed = 0;
  std::chrono::milliseconds length = std::chrono::minutes(1);
  std::vector<FaultKind> faults;
  double faults_per_minute = kFaultsPerMinute;
  std::int64_t largest_bytes = 0;
  /// Of the instances, only those of the last stage suffer: whoever keeps their work lives.
  bool last_stage_only = false;
  bool outsider = false;   ///< Somebody attacks every port meanwhile (outsider.h).
  int cancel_percent = 0;  ///< So many of the jobs are cancelled, at any moment of their lives.
  std::string folder, bin_dir, plugin_dir;  ///< As in ClusterOptions.
  Plants plants;
  std::function<void(const std::string&)> say = [](const std::string&) {};  ///< Progress.
};

/// What became of the injuries of one kind.
struct Struck {
  int done = 0;
  int skipped = 0;      ///< The rules did not allow it in time.
  int not_running = 0;  ///< The victim did not run.
};

struct RunReport {
  Verdict verdict;
  std::map<std::string, Struck> faults;
  std::map<std::string, std::int64_t> refused;
  std::vector<std::int64_t> unfetched;  ///< Announced and unfetched, at each fault of a database.
  std::vector<std::string> trouble;     ///< Faults that could not be done or healed.
  Latency before, during;               ///< Of jobs sent before the first fault, and after it.
  std::int64_t unwatched = 0;           ///< Jobs in no latency: too many were under way.
  /// Jobs whose record shows a second attempt: an instance died, and its work was given again.
  std::int64_t given_again = 0;
  Attacks attacks;  ///< What the outsider did.
  /// Of each process, before the outsider came and after it left, if it ran all the while.
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> resident_bytes;
  std::int64_t failovers = 0;  ///< Of Redis (ledger_redis.h).
  std::string logs;            ///< The services' logs, if something was violated.

  /// Whether a fault of a database met too few announced results, or hardly any came at all.
  [[nodiscard]] bool Blind() const;
  /// Whether the rules allowed every injury in time.
  [[nodiscard]] bool Healed() const;
  /// The processes that an outsider has made larger than they may become. Databases are not among
  /// them: the load fills them.
  [[nodiscard]] std::vector<std::string> Swollen() const;
  /// Whether every entry holds, nothing is swollen, and the run has proved something.
  [[nodiscard]] bool Held() const;
};
inline constexpr std::int64_t kMinUnfetched = 10;
/// What gRPC may take in a server (rpc/server.cc), and some more.
inline constexpr std::int64_t kMaxGrowthBytes = std::int64_t{600} << 20;

nlohmann::json ToJson(const RunReport& report, const RunOptions& options);
std::string ToText(const RunReport& report);

/// REQUIRES: EnterOwnMachine() with what the faults need.
///
/// Blocking: for the run's length, a calm of a tenth of it and at most a minute, the cluster's
/// start, and the audit, which may take 2 minutes and a quarter of that length.
/// Errors: those of Cluster::Start().
absl::StatusOr<RunReport> Run(const RunOptions& options);

}  // namespace onepiece::ledger
