// `onepiece-bench`: the ring and the fabric measured beside other people's transports. A program of
// its own, so that no product links what it is compared with; `onepiece bench ring|fabric` runs it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/bench/bench_report.h"
#include "tests/bench/fabric_bench.h"
#include "tests/bench/measure.h"
#include "tests/bench/ring_bench.h"

namespace {

constexpr int kUsage = 2;

int Print(const absl::StatusOr<onepiece::cli::BenchReport>& report, bool json) {
  if (!report.ok()) {
    std::fprintf(stderr, "onepiece-bench: %s\n", report.status().ToString().c_str());
    return absl::IsInvalidArgument(report.status()) ? kUsage : EXIT_FAILURE;
  }
  const std::string text =
      json ? onepiece::cli::ToJson(*report).dump(2) + "\n" : onepiece::cli::ToText(*report);
  std::fputs(text.c_str(), stdout);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace onepiece::bench;
  if (argc > 1 && std::string(argv[1]) == "child") {
    return RunChild(std::vector<std::string>(argv + 2, argv + argc));
  }
  CLI::App app{"OnePiece: ring and fabric measured beside their peers", "onepiece-bench"};
  app.require_subcommand(1);
  app.fallthrough();
  bool json = false;
  app.add_flag("--json", json, "Print one JSON document");
  RingBenchOptions options;
  CLI::App* ring = app.add_subcommand("ring", "The ring over shared memory");
  std::vector<std::string> allowed = RingPeers();
  allowed.emplace_back("none");
  ring->add_option("--peers", options.peers, "Whom to compare with, or none")
      ->delimiter(',')
      ->check(CLI::IsMember(allowed))
      ->capture_default_str();
  ring->add_option("--sizes", options.sizes, "Message sizes")
      ->delimiter(',')
      ->capture_default_str();
  ring->add_option("--producers", options.producers, "Numbers of producers")
      ->delimiter(',')
      ->check(CLI::Range(1, 8))
      ->capture_default_str();
  ring->add_flag("--quick", options.quick, "One short pair of each: a first look");
  FabricBenchOptions fabric_options;
  std::vector<std::string> fabric_peers = {"memcpy", "raw"};
  CLI::App* fabric = app.add_subcommand("fabric", "Single operations of a fabric");
  fabric->add_option("--fabric", fabric_options.fabric, "shm://ID, ucx://…, verbs://DEVICE");
  fabric->add_option("--sizes", fabric_options.sizes, "Sizes of reads and writes")
      ->delimiter(',')
      ->capture_default_str();
  fabric->add_option("--peers", fabric_peers, "memcpy and raw: the processor alone; or none")
      ->delimiter(',')
      ->check(CLI::IsMember({"memcpy", "raw", "none"}));
  fabric->add_flag("--quick", fabric_options.quick, "One short pair of each: a first look");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? EXIT_SUCCESS : kUsage;
  }
  std::erase(options.peers, "none");
  if (*fabric) {
    fabric_options.peers = std::ranges::find(fabric_peers, "none") == fabric_peers.end();
    return Print(RunFabricBench(fabric_options), json);
  }
  return Print(RunRingBench(options), json);
}
