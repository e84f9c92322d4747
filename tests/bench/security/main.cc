// `onepiece-bench-security security`: what TLS, the door and the owners of jobs cost. Two embedded
// clusters with the same stages, a secure and an insecure one, do the same work in alternation.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/base/ids.h"
#include "cluster/base/seconds.h"
#include "cluster/base/status.h"
#include "cluster/client/client.h"
#include "cluster/local/control.h"
#include "cluster/local/identities.h"
#include "cluster/rpc/tls.h"
#include "tests/bench/bench_report.h"
#include "tests/bench/pairs.h"
#include "tests/bench/security/bare.h"
#include "tests/chaos/ledger_workflow.h"

namespace onepiece::bench {
namespace {

namespace fs = std::filesystem;
using base::MonotonicTime;

constexpr char kCluster[] =
    "workflow_files: [ledger.yaml]\n"
    "instances: [{stage: draw}, {stage: fill}]\n"
    "elasticity: {policy: static}\n";
constexpr std::int64_t kMiB = 1 << 20;
constexpr base::Duration kJobLimit = std::chrono::seconds(60);

MonotonicTime Now() { return base::SystemClock().Now(); }

template <typename T>
T Require(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "onepiece-bench-security: %s\n", result.status().ToString().c_str());
  std::exit(1);
}

void Need(const absl::Status& status) {
  if (!status.ok()) Require(absl::StatusOr<int>(status));
}

/// One embedded cluster in a folder of its own, and a client of it.
class Side {
 public:
  explicit Side(bool insecure)
      : folder_(fs::temp_directory_path() /
                absl::StrCat("onepiece-bench-security-", getpid(), insecure ? "-plain" : "-tls")) {
    fs::create_directories(folder_);
    fs::permissions(folder_, fs::perms::owner_all);
    std::ofstream(folder_ / "ledger.yaml") << ledger::kLedgerWorkflow;
    std::ofstream(folder_ / "cluster.yaml") << kCluster;
    const MonotonicTime begun = Now();
    // The supervisor is the program that started it, and only `onepiece` knows how to be one.
    const std::string onepiece = fs::read_symlink("/proc/self/exe").parent_path() / "onepiece";
    const std::string up = absl::StrCat("'", onepiece, "' up --data-dir '", DataDir(),
                                        "' --config '", (folder_ / "cluster.yaml").string(), "'",
                                        insecure ? " --insecure" : "", " >/dev/null");
    if (std::system(up.c_str()) != 0)
      Require(absl::StatusOr<int>(absl::UnavailableError(up + " failed")));
    const local::ClusterState state = Require(local::FindCluster(DataDir()));
    up_s_ = base::ToSeconds(Now() - begun);
    Need(local::ShowIdentity(state.identity));
    client_ =
        std::make_unique<client::Client>(client::ClientOptions{.nodemanagers = state.nodemanagers});
    bare_ = Require(Bare::Start(insecure ? "" : state.identity + "/proxy-1"));
    // From here on the channels exist, with the credentials of this moment.
    Need(bare_->Call());
    Finish(Submit(64));
    large_ = Finish(Submit(32 * kMiB));
    middle_ = Finish(Submit(kMiB));
  }
  ~Side() {
    (void)local::Down(DataDir());
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  [[nodiscard]] double up_s() const { return up_s_; }

  /// Seconds of each of `count` submissions until the answer, and until the job has ended.
  void RunJobs(int count, std::vector<double>& submit, std::vector<double>& whole) {
    for (int i = 0; i < count; ++i) {
      const MonotonicTime begun = Now();
      const std::string uid = Submit(64);
      submit.push_back(base::ToSeconds(Now() - begun));
      Finish(uid);
      whole.push_back(base::ToSeconds(Now() - begun));
    }
  }
  [[nodiscard]] double FetchSeconds(bool large) {
    std::size_t bytes = 0;
    const MonotonicTime begun = Now();
    Require(client_->Fetch(large ? large_ : middle_, "", [&](std::string_view chunk) {
      bytes += chunk.size();
      return absl::OkStatus();
    }));
    return base::ToSeconds(Now() - begun);
  }

  [[nodiscard]] double BareCallSeconds() {
    const MonotonicTime begun = Now();
    Need(bare_->Call());
    return base::ToSeconds(Now() - begun);
  }
  [[nodiscard]] double BareFetchSeconds() {
    const MonotonicTime begun = Now();
    Need(bare_->Fetch(32 * kMiB));
    return base::ToSeconds(Now() - begun);
  }

 private:
  [[nodiscard]] std::string DataDir() const { return (folder_ / "data").string(); }
  std::string Submit(std::int64_t bytes) {
    v1::SubmitJobRequest request;
    request.set_app_id("ledger");
    request.set_request_id(base::Uid::GenerateRandom().ToString());
    auto& fields = *request.mutable_parameters()->mutable_fields();
    fields["seed"].set_number_value(static_cast<double>(++seed_));
    fields["size_bytes"].set_number_value(static_cast<double>(bytes));
    return Require(client_->Submit(request)).uid();
  }
  std::string Finish(const std::string& uid) {
    const v1::Job job = Require(client_->Watch(
        uid, [](const v1::Job&) { return true; }, Now() + base::Scaled(kJobLimit)));
    if (job.state() == v1::Job::SUCCEEDED) return uid;
    return Require(absl::StatusOr<std::string>(absl::InternalError(job.error().message())));
  }

  const fs::path folder_;
  double up_s_ = 0;
  int seed_ = 0;
  std::unique_ptr<client::Client> client_;
  std::unique_ptr<Bare> bare_;
  std::string middle_, large_;  ///< Jobs whose results stay.
};

double Percentile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

Pairs::What Named(const std::string& name, const std::string& workload, const std::string& metric) {
  return {.name = absl::StrCat("security.", name, ".plain"),
          .peer = "plain",
          .workload = workload,
          .metric = metric,
          .unit = "us"};
}

BenchReport Measure(int pairs, int jobs) {
  Side secure(false), plain(true);
  Pairs submit_p50, submit_p99, hop, middle, large, bare_call, bare_fetch;
  constexpr double kMicro = 1e6;
  for (int pair = 0; pair < pairs; ++pair) {
    // Whoever goes first in a pair alternates too.
    for (int turn = 0; turn < 2; ++turn) {
      const bool ours = (turn == 0) == (pair % 2 == 0);
      Side& side = ours ? secure : plain;
      const auto put = [&](Pairs& into, double seconds) {
        (ours ? into.ours : into.theirs).push_back(seconds * kMicro);
      };
      std::vector<double> submit, whole, small_fetches, large_fetches, bare_calls, bare_fetches;
      side.RunJobs(jobs, submit, whole);
      for (int i = 0; i < 20; ++i) small_fetches.push_back(side.FetchSeconds(false));
      for (int i = 0; i < 5; ++i) large_fetches.push_back(side.FetchSeconds(true));
      for (int i = 0; i < 500; ++i) bare_calls.push_back(side.BareCallSeconds());
      for (int i = 0; i < 5; ++i) bare_fetches.push_back(side.BareFetchSeconds());
      put(bare_call, MedianOf(bare_calls));
      put(bare_fetch, MedianOf(bare_fetches));
      put(submit_p50, Percentile(submit, 0.5));
      put(submit_p99, Percentile(submit, 0.99));
      put(hop, Percentile(whole, 0.5));
      put(middle, MedianOf(small_fetches));
      put(large, MedianOf(large_fetches));
    }
  }
  BenchReport report;
  report.results = {
      hop.Row(Named("hop", "a job of two stages that compute nothing, to its end", "p50")),
      submit_p50.Row(Named("submit_p50", "SubmitJob", "p50")),
      submit_p99.Row(Named("submit_p99", "SubmitJob", "p99")),
      middle.Row(Named("fetch_1MiB", "a result of 1 MiB to its client", "p50")),
      large.Row(Named("fetch_32MiB", "a result of 32 MiB to its client", "p50")),
      bare_call.Row(Named("bare_call", "an empty call to a gRPC server without our code", "p50")),
      bare_fetch.Row(Named("bare_32MiB", "32 MiB from a gRPC server without our code", "p50"))};
  Pairs up;
  up.ours.push_back(secure.up_s() * kMicro);
  up.theirs.push_back(plain.up_s() * kMicro);
  report.results.push_back(up.Row(Named("up", "`onepiece up` of five nodes, once", "time")));
  return report;
}

int Main(int argc, char** argv) {
  CLI::App app{"What identity costs: a secure cluster beside an insecure one",
               "onepiece-bench-security"};
  bool json = false;
  int pairs = 7, jobs = 100;
  CLI::App* verb = app.add_subcommand("security", "Measure");
  app.require_subcommand(1);
  verb->add_flag("--json", json, "Print one JSON document");
  verb->add_option("--pairs", pairs, "Alternations")->check(CLI::Range(1, 100));
  verb->add_option("--jobs", jobs, "Jobs of each measurement")->check(CLI::Range(10, 10'000));
  CLI11_PARSE(app, argc, argv);
  spdlog::set_level(spdlog::level::off);  // Its lines would mix with the report.
  rpc::RequireTls13();
  setenv("ONEPIECE_PLUGIN_DIR", ONEPIECE_LEDGER_PLUGIN, 1);
  Print(Measure(pairs, jobs), json);
  return 0;
}

}  // namespace
}  // namespace onepiece::bench

int main(int argc, char** argv) { return onepiece::bench::Main(argc, argv); }
