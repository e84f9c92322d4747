// `onepiece-bench`, which `onepiece bench hop|elastic|ring|fabric` runs: measures this machine, and
// the ring and the fabric beside other transports. It is a program of its own, so that no product
// links the peers' libraries.
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "cluster/base/status.h"
#include "cluster/config/yaml.h"
#include "cluster/local/resources.h"
#include "cluster/terminal/interrupt.h"
#include "cluster/terminal/output.h"
#include "tests/bench/bench_report.h"
#include "tests/bench/elastic_bench.h"
#include "tests/bench/fabric_bench.h"
#include "tests/bench/hop_bench.h"
#include "tests/bench/measure.h"
#include "tests/bench/ring_bench.h"

namespace onepiece::bench {
namespace {

/// Adds a verb that prints the report which `measure` makes.
void PrintReport(CLI::App& verb, terminal::Output& output,
                 std::function<absl::StatusOr<BenchReport>()> measure) {
  verb.callback([&output, measure = std::move(measure)] {
    output.action = [&output, measure] {
      const auto report = measure();
      if (!report.ok()) return output.Fail(report.status());
      output.Print(ToJson(*report), ToText(*report));
      return static_cast<int>(terminal::kOk);
    };
  });
}

void AddHop(CLI::App& app, terminal::Output& output) {
  const auto options = std::make_shared<HopBenchOptions>();
  CLI::App* hop = app.add_subcommand("hop", "Time from one instance process to the next");
  hop->add_option("--runs", options->runs, "Messages of each size")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  PrintReport(*hop, output, [options] { return RunHopBench(*options); });
}

struct ElasticArguments {
  bool sim = false, cluster = false, fleet = false;
  double seconds = 60;
};

absl::StatusOr<BenchReport> MeasureElastic(const terminal::Output& output,
                                           const ElasticArguments& arguments) {
  const auto say = [&output](const std::string& what) { output.Say(what); };
  const bool all = !arguments.sim && !arguments.cluster && !arguments.fleet;
  BenchReport report;
  const auto add = [&report](const BenchReport& more) {
    report.results.insert(report.results.end(), more.results.begin(), more.results.end());
  };
  if (all || arguments.sim) {
    ONEPIECE_ASSIGN_OR_RETURN(const std::string path,
                              local::ResourcePath("profiles/wan21-i2v-14b.yaml"));
    v1::SimulationProfile profile;
    ONEPIECE_RETURN_IF_ERROR(config::LoadYamlFile(path, &profile));
    ONEPIECE_ASSIGN_OR_RETURN(report, RunSimulatedElasticBench(profile, say));
  }
  const terminal::Interrupt interrupt;
  if (all || arguments.fleet) {
    ONEPIECE_ASSIGN_OR_RETURN(const BenchReport more, RunFleetElasticBench(interrupt.token(), say));
    add(more);
  }
  if (all || arguments.cluster) {
    ONEPIECE_ASSIGN_OR_RETURN(const BenchReport more,
                              RunClusterElasticBench(arguments.seconds, interrupt.token(), say));
    add(more);
  }
  return report;
}

void AddElastic(CLI::App& app, terminal::Output& output) {
  const auto arguments = std::make_shared<ElasticArguments>();
  CLI::App* elastic = app.add_subcommand(
      "elastic",
      "Device seconds reserved per job: stages on instances that move, against the fused workflow "
      "and stages that stay; simulated, then in embedded clusters; takes a quarter of an hour");
  elastic->add_flag("--sim", arguments->sim, "The simulated rows");
  elastic->add_flag("--fleet", arguments->fleet, "200 light instances that follow their load");
  elastic->add_flag("--cluster", arguments->cluster, "The rows of embedded clusters");
  elastic->add_option("--seconds", arguments->seconds, "Length of a load on an embedded cluster")
      ->check(CLI::Range(10, 600))
      ->capture_default_str();
  PrintReport(*elastic, output,
              [&output, arguments] { return MeasureElastic(output, *arguments); });
}

void AddRing(CLI::App& app, terminal::Output& output) {
  const auto options = std::make_shared<RingBenchOptions>();
  CLI::App* ring = app.add_subcommand("ring", "The ring over shared memory");
  std::vector<std::string> allowed = RingPeers();
  allowed.emplace_back("none");
  ring->add_option("--peers", options->peers, "Whom to compare with, or none")
      ->delimiter(',')
      ->check(CLI::IsMember(allowed))
      ->capture_default_str();
  ring->add_option("--sizes", options->sizes, "Message sizes")
      ->delimiter(',')
      ->capture_default_str();
  ring->add_option("--producers", options->producers, "Numbers of producers")
      ->delimiter(',')
      ->check(CLI::Range(1, 8))
      ->capture_default_str();
  ring->add_flag("--quick", options->quick, "One short pair of each: a first look");
  PrintReport(*ring, output, [options] {
    std::erase(options->peers, "none");
    return RunRingBench(*options);
  });
}

void AddFabric(CLI::App& app, terminal::Output& output) {
  const auto options = std::make_shared<FabricBenchOptions>();
  const auto peers = std::make_shared<std::vector<std::string>>(
      std::initializer_list<std::string>{"memcpy", "raw"});
  CLI::App* fabric = app.add_subcommand("fabric", "Single operations of a fabric");
  fabric->add_option("--fabric", options->fabric, "shm://ID, ucx://…, verbs://DEVICE");
  fabric->add_option("--protect", options->protect, "Frames of ucx: none, mac or aead");
  fabric->add_option("--sizes", options->sizes, "Sizes of reads and writes")
      ->delimiter(',')
      ->capture_default_str();
  fabric->add_option("--peers", *peers, "memcpy and raw: the processor alone; or none")
      ->delimiter(',')
      ->check(CLI::IsMember({"memcpy", "raw", "none"}));
  fabric->add_flag("--quick", options->quick, "One short pair of each: a first look");
  PrintReport(*fabric, output, [options, peers] {
    options->peers = std::ranges::find(*peers, "none") == peers->end();
    return RunFabricBench(*options);
  });
}

/// A measurement starts this program again as its processes, with arguments that are not for
/// people.
std::optional<int> RunAsPart(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments[0] == "child")
    return RunChild({arguments.begin() + 1, arguments.end()});
  std::uint64_t ring_bytes = 0;
  if (arguments.size() == 3 && arguments[0] == kHopPeerVerb &&
      absl::SimpleAtoi(arguments[2], &ring_bytes))
    return RunHopPeer(arguments[1], ring_bytes);
  return std::nullopt;
}

int Main(int argc, char** argv) {
  if (const auto code = RunAsPart({argv + 1, argv + argc}); code.has_value()) return *code;
  spdlog::set_level(spdlog::level::warn);  // What light nodes tell of themselves is many lines.
  CLI::App app{"Measure this machine", "onepiece bench"};
  terminal::Output output;
  app.require_subcommand(1);
  app.fallthrough();
  app.add_flag("--json", output.json, "Print one JSON document on stdout and nothing else there");
  AddHop(app, output);
  AddElastic(app, output);
  AddRing(app, output);
  AddFabric(app, output);
  return terminal::RunCommandLine(app, output, argc, argv);
}

}  // namespace
}  // namespace onepiece::bench

int main(int argc, char** argv) { return onepiece::bench::Main(argc, argv); }
