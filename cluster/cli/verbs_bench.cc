// bench hop, and the hidden process at its other end.
#include <cstdint>

#include "cluster/cli/bench_hop.h"
#include "cluster/cli/verbs.h"

namespace onepiece::cli {
namespace {

int RunHop(const Context& context, const HopBenchOptions& options) {
  const auto report = RunHopBench(options);
  if (!report.ok()) return context.Fail(report.status());
  context.Print(ToJson(*report), ToText(*report));
  return kOk;
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
