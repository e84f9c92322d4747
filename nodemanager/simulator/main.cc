// `onepiece-simulate`: simulates a cluster under a load on a virtual clock. `onepiece simulate`
// runs it.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/base/status.h"
#include "cluster/config/yaml.h"
#include "cluster/local/resources.h"
#include "cluster/terminal/exit_code.h"
#include "cluster/terminal/interrupt.h"
#include "cluster/terminal/output.h"
#include "cluster/terminal/progress_bar.h"
#include "nodemanager/simulator/simulate_output.h"

namespace onepiece::simulator {
namespace {

constexpr const char* kHelp =
    "Simulates a cluster on a virtual clock: the product's own policy, request monitor and "
    "capacity "
    "model,\nstage costs from a profile. A day of 64 GPUs takes seconds.\n"
    "\nWorkloads\n"
    "  poisson      jobs come independently at one rate\n"
    "  bursty       the rate switches between two levels (MMPP-2): burst_ratio, burst_share, "
    "burst_s\n"
    "  diurnal      the rate is a sine: amplitude, period_s\n"
    "  FILE.csv     a trace: time_s,app,units (units 2: a job that costs twice the average)\n"
    "  --trace REC  a recording of `onepiece record`: its jobs, costs and placement\n"
    "\nPolicies\n"
    "  static       disaggregated, instances stay where they are\n"
    "  utilization  disaggregated, as the NodeManager moves instances\n"
    "  monolithic   each instance runs whole jobs with all weights on its P GPUs\n"
    "  oracle       the most that any sequence of placements could do (small cases)\n"
    "\nSettings (--set key=value; all of them: proto/onepiece/v1/simulation.proto)\n"
    "  duration_s 3600   rate (jobs/s) or load 0.7   seed 1   devices 64   degree 1 (P)\n"
    "  placement encode=2,dit=7   slo_factor 2   deadline_s   retry_s   admission true\n"
    "  proxies 1   workflow_sets 1   mtbf_s (nobody dies)   repair_s 60   load_failures 0\n"
    "  parked_bytes 0\n"
    "  elasticity.threshold 0.85   elasticity.low_threshold 0.3   elasticity.window_s 300 …\n"
    "\nExamples\n"
    "  onepiece simulate --workload diurnal --set duration_s=86400 --set load=0.4 --compare\n"
    "  onepiece simulate --workload bursty --record trace.csv\n"
    "  onepiece simulate --workload trace.csv --policy monolithic --json\n"
    "  onepiece simulate --trace monday.rec --compare\n"
    "  onepiece simulate --set mtbf_s=100000 --set load_failures=0.05\n"
    "  onepiece simulate --partition --set rate=0.2\n";

struct SimulateOptions {
  std::string profile = "wan21-i2v-14b";
  std::string workload = "poisson";
  std::string policy = "utilization";
  std::vector<std::string> set;
  bool compare = false;
  bool partition = false;
  std::string record;
  std::string trace;
  std::string output;
};

// "elasticity.window_s=60" is the YAML "elasticity:\n  window_s: 60".
absl::Status Apply(const std::string& setting, v1::SimulationConfig& settings) {
  const std::size_t equals = setting.find('=');
  if (equals == std::string::npos || equals == 0 || setting.find('\n') != std::string::npos)
    return terminal::UsageError("--set " + setting + ": write KEY=VALUE");
  const std::string key = setting.substr(0, equals), value = setting.substr(equals + 1);
  const std::size_t dot = key.find('.');
  const std::string yaml = dot == std::string::npos
                               ? key + ": " + value
                               : key.substr(0, dot) + ":\n  " + key.substr(dot + 1) + ": " + value;
  const absl::Status status = config::ParseYaml(yaml, "--set " + setting, &settings);
  return status.ok() ? status : terminal::UsageError(base::Message(status));
}

absl::Status LoadProfile(const std::string& name, v1::SimulationProfile& profile) {
  std::string path = name;
  if (name.find('/') == std::string::npos && !name.ends_with(".yaml")) {
    const auto shipped = local::ResourcePath("profiles/" + name + ".yaml");
    if (!shipped.ok()) {
      return base::MakeError(absl::StatusCode::kNotFound, "PROFILE_UNKNOWN",
                             "no profile '" + name +
                                 "' is shipped; give a file: --profile FILE.yaml (" +
                                 base::Message(shipped.status()) + ")");
    }
    path = *shipped;
  }
  ONEPIECE_RETURN_IF_ERROR(config::LoadYamlFile(path, &profile));
  if (profile.name().empty()) profile.set_name(std::filesystem::path(path).stem());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Arrival>> LoadWorkload(const std::string& workload, const System& system,
                                                  const v1::SimulationConfig& settings) {
  if (workload.find('/') == std::string::npos && !workload.ends_with(".csv"))
    return MakeWorkload(workload, system, settings);
  std::ifstream file(workload, std::ios::binary);
  std::error_code error;
  const auto bytes = std::filesystem::file_size(workload, error);
  if (!file || error) {
    return base::MakeError(absl::StatusCode::kNotFound, "NO_TRACE",
                           "cannot read the trace " + workload);
  }
  constexpr std::uintmax_t kMost = std::uintmax_t{1} << 30;
  if (bytes > kMost) return terminal::UsageError("the trace " + workload + " is larger than 1 GiB");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return ParseTrace(text, workload, system);
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kInvalidArgument, "NOT_WRITTEN", "cannot write " + path);
}

int Finish(const terminal::Output& output, const SimulateOptions& options,
           const terminal::Json& document, const std::string& text) {
  if (!options.output.empty()) {
    const absl::Status written = WriteFile(options.output, document.dump(2) + "\n");
    if (!written.ok()) return output.Fail(written, terminal::kFailure);
  }
  output.Print(document, text);
  return terminal::kOk;
}

int ShowPartitions(const terminal::Output& output, const SimulateOptions& options,
                   const SimulatedCase& what) {
  terminal::Json document = terminal::Json::array();
  std::string text;
  for (std::size_t a = 0; a < what.system.apps.size(); ++a) {
    const auto partition = PartitionApp(what.profile, what.settings, a);
    if (!partition.ok()) return output.Fail(partition.status());
    const std::string& app = what.system.apps[a].id;
    document.push_back(PartitionJson(what, app, *partition));
    text += PartitionText(what, app, *partition);
  }
  return Finish(output, options, {{"partitions", std::move(document)}}, text);
}

int RunPolicies(const terminal::Output& output, const SimulateOptions& options,
                SimulatedCase what) {
  const auto arrivals = what.recorded != nullptr
                            ? absl::StatusOr<std::vector<Arrival>>(what.recorded->arrivals)
                            : LoadWorkload(options.workload, what.system, what.settings);
  if (!arrivals.ok()) return output.Fail(arrivals.status());
  what.jobs = arrivals->size();
  if (!options.record.empty()) {
    const absl::Status written = WriteFile(options.record, TraceText(what.system, *arrivals));
    if (!written.ok()) return output.Fail(written, terminal::kFailure);
    output.Say(absl::StrCat("recorded ", arrivals->size(), " jobs in ", options.record));
  }
  std::vector<std::string> policies = {options.policy};
  if (options.compare) policies = {"monolithic", "static", "utilization", "oracle"};
  const terminal::Interrupt interrupt;
  terminal::ProgressBar bar(output);
  std::vector<Outcome> outcomes;
  OracleAnswer oracle;
  for (const std::string& policy : policies) {
    if (policy == "oracle") {
      bar.Show(1, policy);
      oracle = RunOracle(what.system, what.settings, *arrivals);
      if (!options.compare && !oracle->ok()) return output.Fail(oracle->status());
      continue;
    }
    auto outcome = RunPolicy(what.profile, what.settings, policy, *arrivals, [&](double share) {
      bar.Show(share, policy);
      return !interrupt.token().stop_requested();
    });
    if (!outcome.ok()) return output.Fail(outcome.status());
    outcomes.push_back(*std::move(outcome));
  }
  bar.Erase();
  return Finish(output, options, SimulationJson(what, outcomes, oracle),
                SimulationText(what, outcomes, oracle));
}

int RunSimulate(const terminal::Output& output, const SimulateOptions& options) {
  v1::SimulationProfile profile;
  RecordedCase recorded;
  absl::Status status;
  if (options.trace.empty()) {
    status = LoadProfile(options.profile, profile);
  } else if (auto read = ReadRecording(options.trace); read.ok()) {
    recorded = *std::move(read);
    profile = recorded.profile;
  } else {
    status = read.status();
  }
  if (!status.ok()) return output.Fail(status);
  v1::SimulationConfig given = profile.settings();
  for (const std::string& setting : options.set) {
    status = Apply(setting, given);
    if (!status.ok()) return output.Fail(status);
  }
  const auto settings = CompleteSettings(given);
  if (!settings.ok()) return output.Fail(settings.status());
  const auto system = MakeDisaggregated(profile, *settings);
  if (!system.ok()) {
    const bool bad = base::GetReason(system.status()).reason == "BAD_PROFILE";
    return bad ? output.Fail(system.status(), terminal::kBadConfig) : output.Fail(system.status());
  }
  const SimulatedCase what{.profile = profile,
                           .settings = *settings,
                           .system = *system,
                           .workload = options.trace.empty() ? options.workload : options.trace,
                           .recorded = options.trace.empty() ? nullptr : &recorded};
  return options.partition ? ShowPartitions(output, options, what)
                           : RunPolicies(output, options, what);
}

void AddOptions(CLI::App& app, SimulateOptions& options) {
  app.footer(kHelp);
  CLI::Option* workload =
      app.add_option("--workload", options.workload, "poisson, bursty, diurnal or a trace FILE.csv")
          ->capture_default_str();
  app.add_option("--policy", options.policy, "Who decides where instances are")
      ->check(CLI::IsMember({"static", "utilization", "monolithic", "oracle"}))
      ->capture_default_str();
  app.add_option("--set", options.set, "A setting, KEY=VALUE (several times)")
      ->allow_extra_args(false);
  CLI::Option* profile =
      app.add_option("--profile", options.profile,
                     "Workflows with what their stages cost: a shipped one or FILE.yaml")
          ->capture_default_str();
  app.add_option("--trace", options.trace,
                 "Replay a recording of `onepiece record` instead: its jobs, costs and placement")
      ->excludes(workload)
      ->excludes(profile);
  CLI::Option* compare =
      app.add_flag("--compare", options.compare, "All policies on the same trace");
  app.add_flag("--partition", options.partition,
               "Instead: the best cut of each workflow's stages into pools")
      ->excludes(compare);
  app.add_option("--record", options.record, "Write the workload as a trace (CSV)");
  app.add_option("-o,--output", options.output, "Write the JSON document to this file too");
}

}  // namespace
}  // namespace onepiece::simulator

int main(int argc, char** argv) {
  using namespace onepiece;
  CLI::App app{"What a cluster would do under a load, in seconds", "onepiece simulate"};
  terminal::Output output;
  simulator::SimulateOptions options;
  simulator::AddOptions(app, options);
  app.add_flag("--json", output.json, "Print one JSON document on stdout and nothing else there");
  output.action = [&] { return simulator::RunSimulate(output, options); };
  return terminal::RunCommandLine(app, output, argc, argv);
}
