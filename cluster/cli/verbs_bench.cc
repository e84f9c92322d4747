// bench hop, and the hidden process at its other end; bench elastic; bench ring, fabric, consensus,
// database and wan, which programs of their own measure.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>

#include "cluster/base/status.h"
#include "tests/bench/elastic_bench.h"
#include "tests/bench/hop_bench.h"
#include "cluster/cli/verbs.h"
#include "cluster/config/yaml.h"
#include "cluster/local/resources.h"

namespace onepiece::cli {
namespace {

int RunHop(const Context& context, const HopBenchOptions& options) {
  const auto report = RunHopBench(options);
  if (!report.ok()) return context.Fail(report.status());
  context.Print(ToJson(*report), ToText(*report));
  return kOk;
}

struct ElasticArguments {
  bool sim = false, cluster = false;
  double seconds = 60;
};

absl::StatusOr<BenchReport> MeasureElastic(const Context& context,
                                           const ElasticArguments& arguments) {
  const auto say = [&context](const std::string& what) { context.Say(what); };
  BenchReport report;
  if (!arguments.cluster) {
    ONEPIECE_ASSIGN_OR_RETURN(const std::string path,
                              local::ResourcePath("profiles/wan21-i2v-14b.yaml"));
    v1::SimulationProfile profile;
    ONEPIECE_RETURN_IF_ERROR(config::LoadYamlFile(path, &profile));
    ONEPIECE_ASSIGN_OR_RETURN(report, RunSimulatedElasticBench(profile, say));
  }
  if (!arguments.sim) {
    const Interrupt interrupt;
    ONEPIECE_ASSIGN_OR_RETURN(const BenchReport more,
                              RunClusterElasticBench(arguments.seconds, interrupt.token(), say));
    report.results.insert(report.results.end(), more.results.begin(), more.results.end());
  }
  return report;
}

int RunElastic(const Context& context, const ElasticArguments& arguments) {
  const auto report = MeasureElastic(context, arguments);
  if (!report.ok()) return context.Fail(report.status());
  context.Print(ToJson(*report), ToText(*report));
  return kOk;
}

void AddElasticVerb(CLI::App& bench, Context& context) {
  const auto arguments = std::make_shared<ElasticArguments>();
  CLI::App* verb = bench.add_subcommand(
      "elastic",
      "Device seconds reserved per job: stages on instances that move, against the fused pipeline "
      "and stages that stay; simulated, then in embedded clusters; takes a quarter of an hour");
  CLI::Option* sim = verb->add_flag("--sim", arguments->sim, "The simulated rows only");
  verb->add_flag("--cluster", arguments->cluster, "The rows of embedded clusters only")
      ->excludes(sim);
  verb->add_option("--seconds", arguments->seconds, "Length of a load on an embedded cluster")
      ->check(CLI::Range(10, 600))
      ->capture_default_str();
  verb->callback([&context, arguments] {
    context.action = [&context, arguments] { return RunElastic(context, *arguments); };
  });
}

/// A program that measures one verb: built with the tests, because it links what it compares with.
struct BenchProgram {
  const char* name;
  const char* needs;  ///< Ends the sentence "It is built with the tests".
};
constexpr BenchProgram kTransport = {
    "onepiece-bench", " where the packages cppzmq-dev, libucx-dev and libboost-dev are"};
constexpr BenchProgram kConsensus = {"onepiece-bench-consensus", ""};
constexpr BenchProgram kDatabase = {
    "onepiece-bench-database", " where the packages libhiredis-dev and libmemcached-dev are"};
constexpr BenchProgram kModels = {"onepiece-bench-wan", ""};

/// Becomes that program.
int RunBenchProgram(const Context& context, const BenchProgram& program, const CLI::App& verb) {
  const auto path = local::ProgramPath(program.name);
  if (!path.ok()) {
    return context.Fail(base::MakeError(absl::StatusCode::kFailedPrecondition, "NOT_INSTALLED",
                                        base::Message(path.status()) +
                                            ". It is built with the tests (-DONEPIECE_TESTS=ON)" +
                                            program.needs));
  }
  std::vector<std::string> arguments = {program.name, verb.get_name()};
  for (const std::string& argument : verb.remaining()) {
    if (argument != "--json") arguments.push_back(argument);
  }
  if (context.json) arguments.emplace_back("--json");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(path->c_str(), argv.data());
  return context.Fail(absl::InternalError(*path + ": " + std::generic_category().message(errno)));
}

}  // namespace

void AddBenchVerbs(CLI::App& app, Context& context) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine")->require_subcommand(1);
  const auto options = std::make_shared<HopBenchOptions>();
  CLI::App* hop = bench->add_subcommand("hop", "Time from one instance process to the next");
  hop->add_option("--runs", options->runs, "Messages of each size")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  hop->callback([&context, options] {
    context.action = [&context, options] { return RunHop(context, *options); };
  });

  AddElasticVerb(*bench, context);

  const auto in_program = [&](const BenchProgram& program, const char* name,
                              const char* description) {
    // What follows the verb, --help too, is for the program.
    CLI::App* verb = bench->add_subcommand(name, description)->allow_extras()->fallthrough(false);
    verb->set_help_flag();
    verb->callback([&context, &program, verb] {
      const std::vector<std::string> rest = verb->remaining();
      context.json = context.json || std::ranges::find(rest, "--json") != rest.end();
      context.action = [&context, &program, verb] {
        return RunBenchProgram(context, program, *verb);
      };
    });
  };
  in_program(kTransport, "ring",
             "The ring beside ZeroMQ, UCX, gRPC and Boost, and the machine's limits");
  in_program(kTransport, "fabric", "Single operations of a fabric, beside the machine's own");
  in_program(kConsensus, "consensus", "Three NodeManagers beside three etcd");
  in_program(kDatabase, "database", "The results database beside Redis and memcached");
  in_program(kModels, "wan", "The Wan components beside a straight port and Python torch");

  const auto uri = std::make_shared<std::string>();
  const auto ring_bytes = std::make_shared<std::uint64_t>();
  CLI::App* peer =
      bench->add_subcommand("hop-peer", "The receiving process of `bench hop`")->group("");
  peer->add_option("fabric", *uri)->required();
  peer->add_option("bytes", *ring_bytes)->required();
  peer->callback([&context, uri, ring_bytes] {
    context.action = [uri, ring_bytes] { return RunHopPeer(*uri, *ring_bytes); };
  });
}

}  // namespace onepiece::cli
