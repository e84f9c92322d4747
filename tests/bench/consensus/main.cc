// `onepiece-bench-consensus`: three NodeManagers beside three etcd, on this machine and one disk.
// `onepiece bench consensus` runs it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "tests/bench/bench_report.h"
#include "tests/bench/consensus/group.h"
#include "tests/bench/pairs.h"

namespace onepiece::bench {
namespace {

constexpr int kUsage = 2;

struct Options {
  bool json = false;
  std::string dir = std::filesystem::temp_directory_path().string();
  std::vector<int> clients = {1, 16, 64, 256};
  int main_clients = 64;  ///< For the rows whose names have no number of clients.
  int watchers = 100;     ///< In the rows with "watched" in their names. 0: no such rows.
  int pairs = 5;
  double window_s = 3;
  std::vector<std::string> peers = {"etcd"};
};

BenchResult Row(const Pairs& pairs, std::string name, std::string workload, std::string metric,
                std::string unit, bool higher) {
  return pairs.Row(
      {std::move(name), "etcd", std::move(workload), std::move(metric), std::move(unit), higher});
}

absl::Status MeasureLoads(const Options& options, Group& ours, Group* theirs, int clients,
                          int watchers, BenchReport& report) {
  Pairs rate, p50, p99;
  const auto window =
      std::chrono::duration_cast<base::Duration>(std::chrono::duration<double>(options.window_s));
  for (int i = 0; i < options.pairs; ++i) {
    ONEPIECE_ASSIGN_OR_RETURN(const Load mine, ours.Measure(clients, watchers, window / 3, window));
    rate.ours.push_back(mine.commits_per_s);
    p50.ours.push_back(mine.p50_ms);
    p99.ours.push_back(mine.p99_ms);
    if (theirs == nullptr) continue;
    ONEPIECE_ASSIGN_OR_RETURN(const Load other,
                              theirs->Measure(clients, watchers, window / 3, window));
    rate.theirs.push_back(other.commits_per_s);
    p50.theirs.push_back(other.p50_ms);
    p99.theirs.push_back(other.p99_ms);
  }
  const std::string workload =
      absl::StrCat("three members, 256-byte writes, ", clients, " clients",
                   watchers > 0 ? absl::StrCat(", ", watchers, " watchers") : "");
  const auto add = [&](const std::string& prefix) {
    report.results.push_back(
        Row(rate, prefix + "commits_per_s.etcd", workload, "commits", "1/s", true));
    report.results.push_back(
        Row(p50, prefix + "write_p50.etcd", workload, "write, median", "ms", false));
    report.results.push_back(
        Row(p99, prefix + "write_p99.etcd", workload, "write, 99th percentile", "ms", false));
  };
  const std::string prefix = watchers > 0 ? "consensus.watched." : "consensus.";
  add(clients == options.main_clients ? prefix : absl::StrCat(prefix, clients, "c."));
  return absl::OkStatus();
}

absl::Status MeasureFailovers(const Options& options, Group& ours, Group* theirs,
                              BenchReport& report) {
  Pairs time;
  for (int i = 0; i < options.pairs; ++i) {
    ONEPIECE_ASSIGN_OR_RETURN(time.ours.emplace_back(), ours.FailOver());
    if (theirs == nullptr) continue;
    ONEPIECE_ASSIGN_OR_RETURN(time.theirs.emplace_back(), theirs->FailOver());
  }
  const std::string workload = "three members, SIGKILL of the leader, until a write is answered";
  report.results.push_back(
      Row(time, "consensus.failover_s.etcd", workload, "failover", "s", false));
  // Takes the worst value of each side. The ratio is that of these two.
  Pairs worst{{std::ranges::max(time.ours)}, {}};
  if (!time.theirs.empty()) worst.theirs = {std::ranges::max(time.theirs)};
  BenchResult row =
      Row(worst, "consensus.failover_max_s.etcd", workload, "longest failover", "s", false);
  row.runs = options.pairs;
  report.results.push_back(std::move(row));
  return absl::OkStatus();
}

absl::StatusOr<BenchReport> RunBench(const Options& options, const std::string& dir) {
  std::filesystem::create_directories(dir + "/ours");
  std::filesystem::create_directories(dir + "/etcd");
  std::unique_ptr<Group> theirs;
  if (!options.peers.empty()) {
    absl::StatusOr<GroupPlan> plan = PlanEtcd(dir + "/etcd");
    if (plan.ok()) {
      ONEPIECE_ASSIGN_OR_RETURN(theirs, Group::Start(*std::move(plan), dir + "/etcd"));
    } else {
      std::fprintf(stderr, "onepiece-bench-consensus: %s\n", base::Message(plan.status()).c_str());
    }
  }
  ONEPIECE_ASSIGN_OR_RETURN(GroupPlan plan, PlanNodeManagers(dir + "/ours"));
  ONEPIECE_ASSIGN_OR_RETURN(const auto ours, Group::Start(std::move(plan), dir + "/ours"));
  BenchReport report;
  for (const int clients : options.clients)
    ONEPIECE_RETURN_IF_ERROR(MeasureLoads(options, *ours, theirs.get(), clients, 0, report));
  for (const int clients : options.clients) {
    if (options.watchers == 0) break;
    ONEPIECE_RETURN_IF_ERROR(
        MeasureLoads(options, *ours, theirs.get(), clients, options.watchers, report));
  }
  ONEPIECE_RETURN_IF_ERROR(MeasureFailovers(options, *ours, theirs.get(), report));
  return report;
}

int Run(const Options& options) {
  std::string dir = options.dir + "/onepiece-bench-consensus-XXXXXX";
  if (mkdtemp(dir.data()) == nullptr) {
    std::perror(dir.c_str());
    return EXIT_FAILURE;
  }
  const auto report = RunBench(options, dir);
  if (!report.ok()) {
    // Leaves the servers' logs for people who look for the cause.
    std::fprintf(stderr, "onepiece-bench-consensus: %s (logs in %s)\n",
                 report.status().ToString().c_str(), dir.c_str());
    return EXIT_FAILURE;
  }
  std::error_code ignored;
  std::filesystem::remove_all(dir, ignored);
  Print(*report, options.json);
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace onepiece::bench

int main(int argc, char** argv) {
  using namespace onepiece::bench;
  Options options;
  CLI::App app{"OnePiece: three NodeManagers measured beside three etcd",
               "onepiece-bench-consensus"};
  app.require_subcommand(1);
  app.fallthrough();
  CLI::App* consensus =
      app.add_subcommand("consensus", "Commits, their latency, and the time to a new leader");
  app.add_flag("--json", options.json, "Print one JSON document");
  consensus
      ->add_option("--clients", options.clients, "Numbers of clients, one write in flight each")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  consensus
      ->add_option("--watchers", options.watchers,
                   "Clients that listen in a second measurement of the commits, or 0")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  consensus->add_option("--pairs", options.pairs, "Measurements of each side, in turns")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  consensus->add_option("--window", options.window_s, "Seconds that a measurement of commits takes")
      ->check(CLI::Range(0.1, 600.0))
      ->capture_default_str();
  consensus->add_option("--dir", options.dir, "Folder on the disk that is measured")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  consensus->add_option("--peers", options.peers, "Whom to compare with, or none")
      ->delimiter(',')
      ->check(CLI::IsMember({"etcd", "none"}))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? EXIT_SUCCESS : kUsage;
  }
  std::erase(options.peers, "none");
  return Run(options);
}
