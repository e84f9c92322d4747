// `onepiece-bench-wan`: the Wan components beside a straight port of the reference's operations and
// beside Python torch. It is a program apart from onepiece-bench, which has no LibTorch. `onepiece
// bench wan` runs it.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/local/resources.h"
#include "tests/bench/bench_report.h"
#include "tests/bench/wan/side.h"
#include "tests/bench/wan/workload.h"

namespace onepiece::bench {
namespace {

constexpr int kUsage = 2;
constexpr double kTolerance = 1e-4;         // Between the sides' outputs.
constexpr double kShortestSeconds = 0.010;  // Shorter runs are timed in groups.

struct Options {
  bool json = false;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  int runs = 20;
  std::vector<std::string> peers = {"port", "torch"};
  std::vector<std::string> only;
  std::string python = "/usr/bin/python3";
};

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::vector<std::string> Command(const std::string& side, const Workload& workload,
                                 const Options& options) {
  const std::string threads = std::to_string(options.threads);
  if (side == "torch") {
    return {options.python,     ONEPIECE_TORCH_PEER, workload.model_dir,
            workload.component, workload.inputs,     threads};
  }
  return {local::SelfPath(),  "side",          side,   workload.model_dir,
          workload.component, workload.inputs, threads};
}

/// Returns the largest difference as a share of the largest value.
double RelativeError(const std::vector<float>& ours, const std::vector<float>& theirs) {
  if (ours.size() != theirs.size()) return INFINITY;
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    difference = std::max(difference, std::abs(double{ours[i]} - double{theirs[i]}));
    largest = std::max(largest, std::abs(double{theirs[i]}));
  }
  return largest > 0 ? difference / largest : difference;
}

BenchResult Row(const Workload& workload, const std::string& metric, const char* unit,
                const std::string& peer, int runs) {
  BenchResult row;
  row.name = "wan." + workload.name + "." + metric + "." + peer;
  row.workload = workload.description;
  row.metric = metric;
  row.unit = unit;
  row.runs = runs;
  return row;
}

/// Measures ours beside one peer.
///
/// Errors: FAILED_PRECONDITION if the two do not compute the same.
absl::Status Compare(const Workload& workload, const std::string& peer, const Options& options,
                     const std::string& scratch, BenchResult& time, BenchResult& memory) {
  ONEPIECE_ASSIGN_OR_RETURN(const auto ours, Side::Start(Command("ours", workload, options)));
  ONEPIECE_ASSIGN_OR_RETURN(const double warm_up, ours->Run(2));
  const int count = std::clamp(static_cast<int>(kShortestSeconds / warm_up), 1, 50);
  std::vector<double> mine;
  const auto theirs = Side::Start(Command(peer, workload, options));
  if (theirs.ok()) {
    ONEPIECE_ASSIGN_OR_RETURN(const auto output, ours->Output(scratch + "/ours"));
    ONEPIECE_ASSIGN_OR_RETURN(const auto expected, (*theirs)->Output(scratch + "/theirs"));
    const double error = RelativeError(output, expected);
    if (!(error <= kTolerance)) {
      return absl::FailedPreconditionError("the outputs differ by " + std::to_string(error) +
                                           " of their greatest value");
    }
  } else {
    std::fprintf(stderr, "onepiece-bench-wan: %s: %s\n", peer.c_str(),
                 theirs.status().ToString().c_str());
  }
  std::vector<double> other, ratios;
  for (int i = 0; i < options.runs; ++i) {
    ONEPIECE_ASSIGN_OR_RETURN(const double a, ours->Run(count));
    mine.push_back(a);
    if (!theirs.ok()) continue;
    ONEPIECE_ASSIGN_OR_RETURN(const double b, (*theirs)->Run(count));
    other.push_back(b);
    ratios.push_back(b / a);
  }
  time.ours = Median(mine) * 1000;
  ONEPIECE_ASSIGN_OR_RETURN(memory.ours, ours->PeakMemory());
  memory.ours /= 1 << 20;
  if (!theirs.ok()) return absl::OkStatus();
  time.comparison = Comparison{peer, Median(other) * 1000, Median(ratios), std::ranges::min(ratios),
                               std::ranges::max(ratios)};
  ONEPIECE_ASSIGN_OR_RETURN(double bytes, (*theirs)->PeakMemory());
  bytes /= 1 << 20;
  const double ratio = bytes / memory.ours;
  memory.comparison = Comparison{peer, bytes, ratio, ratio, ratio};
  return absl::OkStatus();
}

absl::StatusOr<BenchReport> RunWanBench(const Options& options, const std::string& scratch) {
  ONEPIECE_ASSIGN_OR_RETURN(const auto workloads, MakeWorkloads(scratch));
  BenchReport report;
  for (const Workload& workload : workloads) {
    const bool wanted =
        options.only.empty() || std::ranges::any_of(options.only, [&](const std::string& part) {
          return workload.name.find(part) != std::string::npos;
        });
    if (!wanted) continue;
    for (const std::string& peer : options.peers) {
      BenchResult time = Row(workload, "time", "ms", peer, options.runs);
      BenchResult memory = Row(workload, "memory", "MiB", peer, options.runs);
      const absl::Status status = Compare(workload, peer, options, scratch, time, memory);
      if (!status.ok()) return base::Annotate(status, workload.name + ", " + peer);
      report.results.push_back(std::move(time));
      report.results.push_back(std::move(memory));
    }
  }
  return report;
}

int Run(const Options& options) {
  std::string scratch =
      (std::filesystem::temp_directory_path() / "onepiece-bench-wan-XXXXXX").string();
  if (mkdtemp(scratch.data()) == nullptr) {
    std::perror(scratch.c_str());
    return EXIT_FAILURE;
  }
  const auto report = RunWanBench(options, scratch);
  std::error_code ignored;
  std::filesystem::remove_all(scratch, ignored);
  if (!report.ok()) {
    std::fprintf(stderr, "onepiece-bench-wan: %s\n", report.status().ToString().c_str());
    return EXIT_FAILURE;
  }
  Print(*report, options.json);
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace onepiece::bench

int main(int argc, char** argv) {
  using namespace onepiece::bench;
  if (argc > 1 && std::string(argv[1]) == "side") {
    return RunSide(std::vector<std::string>(argv + 2, argv + argc));
  }
  Options options;
  CLI::App app{"OnePiece: the Wan components measured beside their peers", "onepiece-bench-wan"};
  app.require_subcommand(1);
  app.fallthrough();
  CLI::App* wan = app.add_subcommand("wan", "Time and peak memory of every component");
  app.add_flag("--json", options.json, "Print one JSON document");
  wan->add_option("--threads", options.threads, "Threads of every side")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  wan->add_option("--runs", options.runs, "Pairs of runs of each row; a result takes 20")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  wan->add_option("--peers", options.peers, "Whom to compare with")
      ->delimiter(',')
      ->check(CLI::IsMember({"port", "torch"}))
      ->capture_default_str();
  wan->add_option("--only", options.only, "Rows whose component contains one of these words")
      ->delimiter(',');
  wan->add_option("--python", options.python, "The Python that has torch")->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? EXIT_SUCCESS : kUsage;
  }
  return Run(options);
}
