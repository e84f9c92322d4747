// `onepiece-bench-database`: the results database beside Redis and memcached, on this machine and
// in turns. `onepiece bench database` runs it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "tests/bench/bench_report.h"
#include "tests/bench/database/load.h"
#include "tests/bench/database/store.h"
#include "tests/bench/pairs.h"

namespace onepiece::bench {
namespace {

constexpr int kUsage = 2;
/// The values of one turn have this many bytes in all, within these numbers of values.
constexpr std::size_t kTurnBytes = std::size_t{512} << 20, kLeastValues = 16, kMostValues = 20'000;
const std::map<std::string, std::size_t> kSizes = {
    {"1KiB", 1024}, {"64KiB", 65536}, {"1MiB", 1 << 20}, {"32MiB", 32 << 20}};

struct Options {
  bool json = false;
  std::vector<std::string> sizes = {"1KiB", "64KiB", "1MiB", "32MiB"};
  std::vector<std::string> peers = {"redis", "memcached"};
  int clients = 2;
  int pairs = 5;
  double share = 1;  ///< Of kTurnBytes.
};

/// A store by its name in the rows. "fabric" and "grpc" are ours.
struct Contender {
  std::string name;
  std::unique_ptr<Store> store;
  Sessions sessions;  ///< Connected once, like clients.
  Turn first;         ///< Measured for memory only. It fills the memory that later turns use again.
  std::vector<Turn> turns;
  std::vector<std::pair<double, double>> pipelined;  ///< Of Redis.
};

absl::StatusOr<std::unique_ptr<Store>> Start(const std::string& name, const std::string& folder) {
  if (name == "fabric") return StartOurs(folder, Door::kFabric);
  if (name == "grpc") return StartOurs(folder, Door::kGrpc);
  return name == "redis" ? StartRedis(folder) : StartMemcached(folder);
}

/// Every size gets new servers, so that the memory of a former size is not measured.
absl::StatusOr<std::vector<Contender>> StartAll(const Options& options, const std::string& folder) {
  std::vector<std::string> names = {"fabric", "grpc"};
  names.insert(names.end(), options.peers.begin(), options.peers.end());
  std::vector<Contender> contenders;
  for (const std::string& name : names) {
    absl::StatusOr<std::unique_ptr<Store>> store = Start(name, absl::StrCat(folder, "/", name));
    if (absl::IsNotFound(store.status())) {
      std::fprintf(stderr, "onepiece-bench-database: %s\n", base::Message(store.status()).c_str());
      continue;
    }
    ONEPIECE_RETURN_IF_ERROR(store.status());
    Contender& contender = contenders.emplace_back(name, *std::move(store));
    for (int i = 0; i < options.clients; ++i) {
      ONEPIECE_ASSIGN_OR_RETURN(contender.sessions.emplace_back(), contender.store->Connect());
    }
  }
  return contenders;
}

struct Metric {
  const char* name;
  const char* metric;
  const char* unit;
  bool higher_is_better;
  double Phase::*of_phase;
};
constexpr Metric kMetrics[] = {
    {"rate", "operations", "1/s", true, &Phase::rate},
    {"p50", "one operation, median", "us", false, &Phase::p50_us},
    {"p99", "one operation, 99th percentile", "us", false, &Phase::p99_us},
    {"cpu", "processor time, server and clients", "us", false, &Phase::cpu_us}};

/// Returns the rows of one size, one door and one peer. Nothing is put over gRPC, because the
/// cluster's results arrive by the fabric.
void AddRows(const Options& options, const std::string& size, const Contender& ours,
             const Contender* theirs, BenchReport& report) {
  const std::string peer = theirs == nullptr ? "none" : theirs->name;
  const std::string workload =
      absl::StrCat(size, " values, ", options.clients, " clients, one operation each in flight");
  const auto add = [&](const std::string& what, const Metric& metric, Phase Turn::*phase) {
    Pairs pairs;
    for (std::size_t i = 0; i < ours.turns.size(); ++i) {
      pairs.ours.push_back(ours.turns[i].*phase.*metric.of_phase);
      if (theirs == nullptr) continue;
      double other = theirs->turns[i].*phase.*metric.of_phase;
      // Takes Redis's better rate, with or without pipelining.
      if (metric.of_phase == &Phase::rate && i < theirs->pipelined.size()) {
        const auto& [puts, gets] = theirs->pipelined[i];
        other = std::max(other, phase == &Turn::put ? puts : gets);
      }
      pairs.theirs.push_back(other);
    }
    report.results.push_back(pairs.Row({.name = absl::StrCat("database.", ours.name, ".", what, ".",
                                                             size, ".", metric.name, ".", peer),
                                        .peer = peer,
                                        .workload = workload,
                                        .metric = absl::StrCat(what, ": ", metric.metric),
                                        .unit = metric.unit,
                                        .higher_is_better = metric.higher_is_better}));
  };
  for (const Metric& metric : kMetrics) {
    if (ours.name == "fabric") add("put", metric, &Turn::put);
    add("get", metric, &Turn::get);
  }
  if (ours.name != "fabric") return;
  Pairs memory{{ours.first.memory_ratio}, {}};
  if (theirs != nullptr) memory.theirs = {theirs->first.memory_ratio};
  report.results.push_back(
      memory.Row({.name = absl::StrCat("database.fabric.put.", size, ".memory.", peer),
                  .peer = peer,
                  .workload = workload,
                  .metric = "resident memory for each byte stored",
                  .unit = "ratio"}));
}

absl::Status MeasureSize(const Options& options, const std::string& size, const std::string& folder,
                         BenchReport& report) {
  const std::size_t bytes = kSizes.at(size);
  const auto total = static_cast<std::size_t>(options.share * static_cast<double>(kTurnBytes));
  const std::size_t values = std::clamp(total / bytes, kLeastValues, kMostValues);
  const Value value = MakeValue(bytes);
  ONEPIECE_ASSIGN_OR_RETURN(std::vector<Contender> contenders, StartAll(options, folder));
  const auto turn = [&](Contender& contender) {
    return RunTurn(*contender.store, contender.sessions, value, values);
  };
  for (Contender& contender : contenders) {
    ONEPIECE_ASSIGN_OR_RETURN(contender.first, turn(contender));
  }
  for (int i = 0; i < options.pairs; ++i) {
    for (Contender& contender : contenders) {
      std::fprintf(stderr, "%s: turn %d of %d of %s\n", size.c_str(), i + 1, options.pairs,
                   contender.name.c_str());
      ONEPIECE_ASSIGN_OR_RETURN(contender.turns.emplace_back(), turn(contender));
      if (contender.name != "redis") continue;
      ONEPIECE_ASSIGN_OR_RETURN(contender.pipelined.emplace_back(),
                                RedisPipelined(*contender.store, bytes, options.clients, values));
      ONEPIECE_RETURN_IF_ERROR(contender.store->Clear());
    }
  }
  for (const Contender& ours : contenders) {
    if (ours.name != "fabric" && ours.name != "grpc") continue;
    if (contenders.size() == 2) AddRows(options, size, ours, nullptr, report);
    for (const Contender& theirs : contenders) {
      if (theirs.name == "redis" || theirs.name == "memcached")
        AddRows(options, size, ours, &theirs, report);
    }
  }
  return absl::OkStatus();
}

int Run(const Options& options) {
  std::string folder =
      std::filesystem::temp_directory_path().string() + "/onepiece-bench-database-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    std::perror(folder.c_str());
    return EXIT_FAILURE;
  }
  // memcached runs as nobody.
  std::filesystem::permissions(folder, std::filesystem::perms::others_exec,
                               std::filesystem::perm_options::add);
  BenchReport report;
  for (const std::string& size : options.sizes) {
    const absl::Status status = MeasureSize(options, size, absl::StrCat(folder, "/", size), report);
    if (status.ok()) continue;
    // Leaves the servers' logs for people who look for the cause.
    std::fprintf(stderr, "onepiece-bench-database: %s (logs in %s)\n", status.ToString().c_str(),
                 folder.c_str());
    return EXIT_FAILURE;
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  Print(report, options.json);
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace onepiece::bench

int main(int argc, char** argv) {
  using namespace onepiece::bench;
  Options options;
  bool quick = false;
  CLI::App app{"OnePiece: the results database measured beside Redis and memcached",
               "onepiece-bench-database"};
  app.require_subcommand(1);
  app.fallthrough();
  app.add_flag("--json", options.json, "Print one JSON document");
  CLI::App* database =
      app.add_subcommand("database", "Puts and gets, their latency, processor time and memory");
  std::vector<std::string> sizes;
  for (const auto& [name, bytes] : kSizes) sizes.push_back(name);
  database->add_option("--sizes", options.sizes, "Sizes of values")
      ->delimiter(',')
      ->check(CLI::IsMember(sizes))
      ->capture_default_str();
  database->add_option("--peers", options.peers, "Whom to compare with, or none")
      ->delimiter(',')
      ->check(CLI::IsMember({"redis", "memcached", "none"}))
      ->capture_default_str();
  database->add_option("--clients", options.clients, "Clients, one operation each in flight")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  database->add_option("--pairs", options.pairs, "Turns of each side")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  database->add_flag("--quick", quick, "One short turn of each: a first look");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? EXIT_SUCCESS : kUsage;
  }
  std::erase(options.peers, "none");
  if (quick) {
    options.pairs = 1;
    options.share = 0.1;
  }
  return Run(options);
}
