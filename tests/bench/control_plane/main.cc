// `onepiece-bench-control`: what a NodeManager group costs and how fast it is with many nodes,
// beside etcd. `onepiece bench control` runs it.
#include <sched.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/base/shutdown.h"
#include "cluster/base/status.h"
#include "cluster/rpc/mutexes.h"
#include "tests/bench/bench_report.h"
#include "tests/bench/control_plane/fleet.h"
#include "tests/bench/control_plane/flood.h"
#include "tests/bench/control_plane/measure.h"
#include "tests/bench/control_plane/simulated.h"
#include "tests/bench/pairs.h"

namespace onepiece::bench {
namespace {

constexpr char kAbout[] =
    "Starts three NodeManagers and many light nodes: each has a real NodeAgent and no work. "
    "Measures "
    "how long a new routing table takes to the last node, what the leader needs at rest, how long "
    "all nodes take to be back after it was killed, and a rolling drain; then the same of etcd.";
constexpr int kUsage = 2;
constexpr int kQuickChanges = 5;
constexpr double kQuickWindow = 1;

struct Options {
  bool json = false, quick = false;
  std::string dir = std::filesystem::temp_directory_path().string();
  std::vector<std::size_t> nodes = {256}, simulated;
  int changes = 30;
  double window_s = 20;
  std::vector<std::string> peers = {"etcd"};
};

double PercentileOf(std::vector<double> values, std::size_t percent) {
  std::ranges::sort(values);
  return values[std::min(values.size() - 1, values.size() * percent / 100)];
}

/// Both sides with one number of nodes. Without a peer `theirs` is empty.
struct Measured {
  ControlNumbers ours;
  std::optional<ControlNumbers> theirs;
};

void AddRows(const ControlPlan& plan, const Measured& measured, BenchReport& report) {
  const std::string prefix = absl::StrCat("control.", plan.nodes, ".");
  const std::string workload = absl::StrCat(plan.nodes, " nodes, three replicas");
  const auto beside = [&](const char* name, const char* metric, const char* unit, int runs,
                          const auto& number) {
    Pairs pair{{number(measured.ours)}, {}};
    if (measured.theirs) pair.theirs = {number(*measured.theirs)};
    BenchResult row = pair.Row({prefix + name + ".etcd", "etcd", workload, metric, unit});
    row.runs = runs;
    report.results.push_back(std::move(row));
  };
  const auto alone = [&](const char* name, const char* metric, const char* unit, double number,
                         int runs = 1) {
    report.results.push_back({.name = prefix + name,
                              .workload = workload,
                              .metric = metric,
                              .unit = unit,
                              .ours = number,
                              .runs = runs});
  };
  const int changes = static_cast<int>(measured.ours.watch_s.size());
  beside("watch_p99", "a change, until the last node has it; 99th percentile", "s", changes,
         [&](const ControlNumbers& side) { return PercentileOf(side.watch_s, 99); });
  beside("leader_cpu", "processor of the leader at rest", "cores", 1,
         [](const ControlNumbers& side) { return side.leader_cores; });
  beside("storm", "SIGKILL of the leader, until every node is back", "s", 1,
         [](const ControlNumbers& side) { return side.storm_s; });
  const ControlNumbers& ours = measured.ours;
  alone("watch_p50", "a change, until the last node has it; median", "s",
        PercentileOf(ours.watch_s, 50), changes);
  alone("memory_per_node", "what the leader grew by for each node", "bytes", ours.memory_per_node);
  alone("drain", "a tenth of the instances drained for good", "s", ours.drain_s);
  alone("flood_rate", "registrations of one host that were answered; 10,000 were sent", "1/s",
        ours.flood_rate);
  report.results.back().better = "higher";
  alone("flood_watch", "a change during that flood, until the last node has it", "s",
        ours.flood_watch_s);
  alone("elections", "elections before the leader was killed", "1",
        static_cast<double>(ours.elections));
  alone("deaths", "nodes declared dead, also after the leader was killed", "1",
        static_cast<double>(ours.deaths));
}

/// The sides run one after the other, because the nodes of one would be a load for the other.
absl::Status MeasureNodes(const Options& options, std::size_t nodes, const std::string& dir,
                          std::stop_token stop, BenchReport& report) {
  ControlPlan plan{.nodes = nodes,
                   .changes = options.changes,
                   .window = std::chrono::duration_cast<base::Duration>(
                       std::chrono::duration<double>(options.window_s)),
                   .stop = std::move(stop)};
  const auto begin = [&](const char* side) {
    plan.dir = absl::StrCat(dir, "/", nodes, "-", side);
    std::filesystem::create_directories(plan.dir);
  };
  Measured measured;
  std::size_t table_bytes = 0;
  begin("ours");
  ONEPIECE_ASSIGN_OR_RETURN(measured.ours, MeasureOurs(plan, table_bytes));
  if (!options.peers.empty()) {
    begin("etcd");
    const auto theirs = MeasureEtcd(plan, table_bytes);
    if (absl::IsCancelled(theirs.status())) return theirs.status();
    if (theirs.ok())
      measured.theirs = *theirs;
    else
      Progress(plan, "etcd", base::Message(theirs.status()));
  }
  AddRows(plan, measured, report);
  return absl::OkStatus();
}

/// The rows say that they are of a simulation.
absl::Status MeasureSimulated(const Options& options, std::size_t nodes,
                              const std::stop_token& stop, BenchReport& report) {
  ONEPIECE_ASSIGN_OR_RETURN(const SimulatedNumbers numbers, Simulate(nodes, options.changes, stop));
  const auto add = [&](const char* name, const char* metric, const char* unit, double number,
                       int runs = 1) {
    report.results.push_back(
        {.name = absl::StrCat("control.", nodes, ".simulated.", name),
         .workload = absl::StrCat("SIMULATION of ", nodes, " nodes: one process, no consensus"),
         .metric = metric,
         .unit = unit,
         .ours = number,
         .runs = runs});
  };
  const char* until = "a change, until the last stream has it; 99th percentile";
  add("watch_p99", until, "s", PercentileOf(numbers.watch_s, 99), options.changes);
  add("watch_p50", "the same; median", "s", PercentileOf(numbers.watch_s, 50), options.changes);
  add("watch_bytes", "all messages of one such change", "bytes", numbers.bytes, options.changes);
  add("death_p99", "a node's end, until the last stream has it; 99th percentile", "s",
      PercentileOf(numbers.death_s, 99), options.changes);
  add("propose", "a node's end, until new assignments follow it; median", "s", numbers.propose_s,
      options.changes);
  add("node_apply", "what each node needs for a change of its table; median", "s",
      numbers.node_apply_s, options.changes);
  add("table_bytes", "a whole table", "bytes", numbers.table_bytes);
  add("join", "all registrations, assignments and first reports", "s", numbers.join_s);
  return absl::OkStatus();
}

/// Says what failed. Returns whether `status` is good.
bool IsGood(const absl::Status& status, std::size_t nodes, const std::string& dir) {
  if (status.ok()) return true;
  std::fprintf(stderr, "onepiece-bench-control: %zu nodes: %s (logs in %s)\n", nodes,
               base::Message(status).c_str(), dir.c_str());
  return false;
}

int Run(const Options& options, const std::stop_token& stop) {
  std::string dir = options.dir + "/onepiece-bench-control-XXXXXX";
  if (mkdtemp(dir.data()) == nullptr) {
    std::perror(dir.c_str());
    return EXIT_FAILURE;
  }
  BenchReport report;
  bool failed = false;
  for (const std::size_t nodes : options.nodes) {
    const absl::Status status = MeasureNodes(options, nodes, dir, stop, report);
    if (stop.stop_requested()) break;
    failed = !IsGood(status, nodes, dir) || failed;
  }
  for (const std::size_t nodes : options.simulated) {
    if (stop.stop_requested()) break;
    const absl::Status status = MeasureSimulated(options, nodes, stop, report);
    failed = !IsGood(status, nodes, dir) || failed;
  }
  // After a failure the logs stay, for people who look for the cause.
  std::error_code ignored;
  if (!failed || stop.stop_requested()) std::filesystem::remove_all(dir, ignored);
  if (stop.stop_requested()) {
    std::fprintf(stderr, "onepiece-bench-control: interrupted\n");
    return EXIT_FAILURE;
  }
  Print(report, options.json);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/// Runs the measurement, and ends it early when a signal asks for that.
int RunUntilSignal(const Options& options, base::ShutdownSignals& signals) {
  std::stop_source interrupted;
  const std::jthread waiting([&](const std::stop_token& done) {
    constexpr base::Duration kLook = std::chrono::milliseconds(100);
    while (!done.stop_requested()) {
      if (signals.WaitFor(kLook)) interrupted.request_stop();
    }
  });
  // This thread starts all processes, which end with it.
  return Run(options, interrupted.get_token());
}

/// In a cluster nodes have processors of their own. Here thousands of threads that begin at once
/// would keep the servers from theirs, ours and etcd's alike.
void LeaveProcessorsToServers() {
  const sched_param none{};
  if (sched_setscheduler(0, SCHED_IDLE, &none) != 0) std::perror("SCHED_IDLE");
}

void DefineControl(CLI::App& app, Options& options) {
  app.add_option("--nodes", options.nodes,
                 "Numbers of light nodes: 4 proxies, 4 databases, instances")
      ->delimiter(',')
      ->check(CLI::Range(16, 4000) | CLI::IsMember({0}))
      ->capture_default_str();
  app.add_option("--simulate", options.simulated,
                 "Numbers of nodes to simulate in this process; --nodes 0 leaves the real ones out")
      ->delimiter(',')
      ->check(CLI::Range(64, 4096));
  app.add_option("--changes", options.changes, "Changes of the routing table that are timed")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  app.add_option("--window", options.window_s, "Seconds at rest in which the processor is measured")
      ->check(CLI::Range(0.1, 600.0))
      ->capture_default_str();
  app.add_flag("--quick", options.quick, "5 changes and a window of 1 s: a look, not a result");
  app.add_option("--dir", options.dir, "Folder on the disk that the replicas write to")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  app.add_option("--peers", options.peers, "Whom to compare with, or none")
      ->delimiter(',')
      ->check(CLI::IsMember({"etcd", "none"}))
      ->capture_default_str();
}

}  // namespace
}  // namespace onepiece::bench

int main(int argc, char** argv) {
  using namespace onepiece::bench;
  onepiece::base::ShutdownSignals signals;
  onepiece::rpc::IgnoreMutexOrder();
  spdlog::set_level(spdlog::level::warn);
  Options options;
  CLI::App app{"OnePiece: a NodeManager group with many nodes, measured beside etcd",
               "onepiece-bench-control"};
  app.require_subcommand(1);
  app.fallthrough();
  app.add_flag("--json", options.json, "Print one JSON document");
  DefineControl(*app.add_subcommand("control", kAbout), options);
  // What this program starts itself as.
  FleetPlan fleet;
  bool etcd = false;
  int in = -1, out = -1;
  CLI::App* nodes = app.add_subcommand("fleet", "A process of light nodes")->group("");
  nodes->add_flag("--etcd,!--ours", etcd);
  nodes->add_option("--addresses", fleet.addresses)->delimiter(',')->required();
  nodes->add_option("--first", fleet.first)->required();
  nodes->add_option("--count", fleet.count)->required();
  nodes->add_option("--in", in)->required();
  nodes->add_option("--out", out)->required();
  std::string flooded;
  int flood_rate = 0;
  CLI::App* flood = app.add_subcommand("flood", "A host that registers too often")->group("");
  flood->add_option("--address", flooded)->required();
  flood->add_option("--rate", flood_rate)->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? EXIT_SUCCESS : kUsage;
  }
  if (flood->parsed()) {
    LeaveProcessorsToServers();
    return RunFlood(flooded, flood_rate, signals);
  }
  if (nodes->parsed()) {
    LeaveProcessorsToServers();
    fleet.kind = etcd ? FleetKind::kEtcd : FleetKind::kNodes;
    return RunFleet(fleet, in, out);
  }
  if (options.quick) {
    options.changes = kQuickChanges;
    options.window_s = kQuickWindow;
  }
  std::erase(options.peers, "none");
  std::erase(options.nodes, std::size_t{0});
  return RunUntilSignal(options, signals);
}
