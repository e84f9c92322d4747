// `onepiece_ledger_run` starts a cluster, hurts it by the schedule of a seed, and holds it to every
// word that it told its clients (ledger.h). The same seed, minutes and faults give the same
// sequence of faults. Faults of file systems, networks and /dev/shm need root; the run keeps them
// to itself.
//
// Exit code: 0 every entry holds, 1 some do not or the run was blind, 2 usage, 3 no cluster, 4 this
// machine does not allow these faults.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <QCoreApplication>
#include <QTemporaryDir>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "cluster/base/status.h"
#include "tests/chaos/ledger_bytes.h"
#include "tests/chaos/ledger_run.h"
#ifdef ONEPIECE_HAVE_REDIS
#include "tests/chaos/ledger_redis.h"
#endif

namespace onepiece::ledger {
namespace {

enum ExitCode { kHeld = 0, kViolated = 1, kUsage = 2, kNoCluster = 3, kNotHere = 4 };

struct Arguments {
  std::uint64_t seed = std::random_device{}();
  double minutes = 1;
  std::string store = "onepiece", faults = "kill_database", plants;
  double per_minute = kFaultsPerMinute;
  std::int64_t largest_kib = kLargestBytes >> 10;
  int cancel_percent = 6;
  bool redis_wait = false, last_stage_only = false, outsider = false, json = false;
};

int Main(const Arguments& arguments) {
  const auto faults = ParseFaults(arguments.faults);
  if (!faults.ok()) {
    std::fprintf(stderr, "%s\n", base::Message(faults.status()).c_str());
    return kUsage;
  }
  const auto plants = ParsePlants(arguments.plants);
  if (!plants.ok()) {
    std::fprintf(stderr, "%s\n", base::Message(plants.status()).c_str());
    return kUsage;
  }
  std::fprintf(stderr, "seed %llu\n", static_cast<unsigned long long>(arguments.seed));
  const absl::Status entered = EnterOwnMachine(NeedsOf(*faults));
  if (!entered.ok()) {
    std::fprintf(stderr, "%s\n", base::Message(entered).c_str());
    return kNotHere;
  }
  const QTemporaryDir folder;
  const char* bin_dir = std::getenv("ONEPIECE_BIN_DIR");
  RunOptions options{
      .seed = arguments.seed,
      .length = std::chrono::milliseconds(static_cast<std::int64_t>(arguments.minutes * 60'000)),
      .faults = *faults,
      .faults_per_minute = arguments.per_minute,
      .largest_bytes = arguments.largest_kib << 10,
      .last_stage_only = arguments.last_stage_only,
      .outsider = arguments.outsider,
      .cancel_percent = arguments.cancel_percent,
      .folder = folder.path().toStdString(),
      .bin_dir = bin_dir == nullptr ? ONEPIECE_BINARY_DIR "/bin" : bin_dir,
      .plugin_dir = ONEPIECE_BINARY_DIR "/tests/plugins/ledger",
      .plants = *plants};
  options.say = [](const std::string& what) { std::fprintf(stderr, "%s\n", what.c_str()); };
#ifdef ONEPIECE_HAVE_REDIS
  const auto report =
      arguments.store == "redis" ? RunRedis(options, arguments.redis_wait) : Run(options);
#else
  const auto report = Run(options);
#endif
  if (!report.ok()) {
    std::fprintf(stderr, "%s\n", base::Message(report.status()).c_str());
    const std::string reason = base::GetReason(report.status()).reason;
    if (reason == "BAD_FAULT") return kUsage;
    return reason == "NO_PERMISSION" ? kNotHere : kNoCluster;
  }
  if (!report->logs.empty()) std::fprintf(stderr, "%s\n", report->logs.c_str());
  std::printf("%s\n",
              (arguments.json ? ToJson(*report, options).dump(1) : ToText(*report)).c_str());
  return report->Held() ? kHeld : kViolated;
}

}  // namespace
}  // namespace onepiece::ledger

int main(int argc, char** argv) {
  const QCoreApplication application(argc, argv);
  onepiece::ledger::Arguments arguments;
  CLI::App app("Hurts a cluster and holds it to every word that it told its clients");
  app.add_option("--seed", arguments.seed, "Decides the faults (default: random, and printed)");
#ifdef ONEPIECE_HAVE_REDIS
  app.add_option("--store", arguments.store, "What keeps the results: the cluster, or two Redis")
      ->check(CLI::IsMember({"onepiece", "redis"}))
      ->capture_default_str();
  app.add_flag("--redis-wait", arguments.redis_wait, "Redis waits for its replica (WAIT 1)");
#endif
  app.add_option("--minutes", arguments.minutes, "How long faults strike")
      ->check(CLI::Range(0.1, 600.));
  app.add_option("--faults", arguments.faults, "all, none, or some of them: a,b,c")
      ->capture_default_str();
  app.add_option("--per-minute", arguments.per_minute, "How many faults, as far as the rules allow")
      ->check(CLI::Range(0.1, 600.))
      ->capture_default_str();
  app.add_flag("--last-stage-only", arguments.last_stage_only,
               "Of the instances, only those of the last stage suffer");
  app.add_flag("--outsider", arguments.outsider,
               "Somebody floods, fuzzes, replays and dawdles on every port meanwhile");
  app.add_option("--plant", arguments.plants, "For tests: fetch_all, loss, second_end")->group("");
  app.add_option("--largest-kib", arguments.largest_kib, "The largest result")
      ->check(CLI::Range(std::int64_t{1}, onepiece::ledger::kLargestBytes >> 10))
      ->capture_default_str();
  app.add_option("--cancel-percent", arguments.cancel_percent, "How many of the jobs are cancelled")
      ->check(CLI::Range(0, 100))
      ->capture_default_str();
  app.add_flag("--json", arguments.json, "Print the report as JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : onepiece::ledger::kUsage;
  }
  return onepiece::ledger::Main(arguments);
}
