#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cluster/base/seconds.h"
#include "cluster/base/status.h"
#include "cluster/client/client.h"
#include "cluster/local/control.h"
#include "cluster/local/identities.h"
#include "cluster/local/resources.h"
#include "nodemanager/simulator/workload.h"
#include "tests/bench/elastic_bench.h"

namespace onepiece::bench {
namespace {

namespace fs = std::filesystem;
using simulator::Arrival;

constexpr int kInstances = 4;
constexpr double kSloFactor = 3;
constexpr base::Duration kPollInterval = std::chrono::milliseconds(250);
constexpr base::Duration kJobLimit = std::chrono::seconds(60);

/// A policy that reacts to a load of seconds as another one reacts to a load of hours.
constexpr const char* kMoves =
    "{policy: utilization, window_s: 5, interval_s: 0.5, cooldown_s: 4, threshold: 0.7, "
    "low_threshold: 0.5}";
constexpr const char* kStays = "{policy: static}";

/// One way to serve the load with kInstances processes.
struct Setup {
  const char* name;
  const char* app;
  const char* instances;
  const char* elasticity;
};
constexpr Setup kMonolithic = {"monolithic", "tiny-wan-t2v-fused", "[{count: 4}]", kStays};
constexpr Setup kMonolithicMoved = {"monolithic, moved", "tiny-wan-t2v-fused", "[{count: 4}]",
                                    kMoves};
constexpr Setup kStatic = {
    "static", "tiny-wan-t2v",
    "[{stage: text_encode, count: 1}, {stage: diffusion, count: 2}, {stage: vae_decode, count: 1}]",
    kStays};
constexpr Setup kElastic = {"elastic", "tiny-wan-t2v", "[{count: 4}]", kMoves};

struct ClusterLoad {
  const char* name;
  const char* kind;
  double load;  ///< The mean number of instances of the fused workflow that it keeps busy.
};
constexpr ClusterLoad kClusterLoads[] = {
    {"steady", "poisson", 0.5}, {"diurnal", "diurnal", 0.6}, {"bursty", "bursty", 0.35}};

/// An embedded cluster in a folder of its own. It ends with this object. Thread-confined.
class BenchCluster {
 public:
  static absl::StatusOr<std::unique_ptr<BenchCluster>> Start(const Setup& setup) {
    std::string folder = (fs::temp_directory_path() / "onepiece-bench-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) return absl::UnavailableError("no temporary folder");
    std::unique_ptr<BenchCluster> cluster(new BenchCluster(folder));
    ONEPIECE_ASSIGN_OR_RETURN(const std::string workflow,
                              local::ResourcePath(absl::StrCat("workflows/", setup.app, ".yaml")));
    const std::string config = folder + "/cluster.yaml";
    std::ofstream(config) << "workflow_files: [\"" << workflow
                          << "\"]\ninstances: " << setup.instances
                          << "\nelasticity: " << setup.elasticity << "\n";
    ONEPIECE_ASSIGN_OR_RETURN(const local::ClusterState state,
                              local::Up({.data_dir = cluster->DataDir(), .config_file = config}));
    ONEPIECE_RETURN_IF_ERROR(local::ShowIdentity(state.identity));
    cluster->nodemanagers_ = state.nodemanagers;
    return cluster;
  }
  ~BenchCluster() {
    (void)local::Down(DataDir());
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  BenchCluster(const BenchCluster&) = delete;
  BenchCluster& operator=(const BenchCluster&) = delete;

  [[nodiscard]] std::unique_ptr<client::Client> MakeClient(base::Duration timeout) const {
    return std::make_unique<client::Client>(
        client::ClientOptions{.nodemanagers = nodemanagers_, .timeout = timeout});
  }

 private:
  explicit BenchCluster(std::string folder) : folder_(std::move(folder)) {}
  [[nodiscard]] std::string DataDir() const { return folder_ + "/data"; }

  const std::string folder_;
  std::vector<std::string> nodemanagers_;
};

/// Returns the sum of a node's onepiece_stage_weight_bytes, or 0 if the node does not answer.
double WeightsOf(const std::string& metrics_address) {
  const std::vector<std::string> parts = absl::StrSplit(metrics_address, absl::MaxSplits(':', 1));
  int port = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &port)) return 0;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  inet_pton(AF_INET, parts[0].c_str(), &address.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{.tv_sec = 1, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  std::string answer;
  constexpr std::string_view kRequest = "GET /metrics HTTP/1.0\r\n\r\n";
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      write(fd, kRequest.data(), kRequest.size()) == static_cast<ssize_t>(kRequest.size())) {
    std::array<char, 4096> part{};
    for (ssize_t got = 0; (got = read(fd, part.data(), part.size())) > 0;)
      answer.append(part.data(), static_cast<std::size_t>(got));
  }
  close(fd);
  double sum = 0, value = 0;
  const std::vector<std::string> lines = absl::StrSplit(answer, '\n');
  for (const std::string& line : lines) {
    const auto at = line.rfind(' ');
    if (line.starts_with("onepiece_stage_weight_bytes{") && at != line.npos &&
        absl::SimpleAtod(line.substr(at + 1), &value))
      sum += value;
  }
  return sum;
}

/// Returns the seconds from the submission of a job to its end, or nullopt if it was rejected or
/// failed. Every job has a prompt of its own, because encoders cache prompts.
std::optional<double> DoJob(client::Client& asks, client::Client& watches, const std::string& app,
                            int number) {
  v1::SubmitJobRequest request;
  request.set_app_id(app);
  auto& parameters = *request.mutable_parameters()->mutable_fields();
  parameters["prompt"].set_string_value(absl::StrCat("a red ball, number ", number));
  const base::MonotonicTime begun = base::SystemClock().Now();
  const auto job = asks.Submit(request);
  if (!job.ok()) return std::nullopt;
  const auto ended = watches.Watch(
      job->uid(), [](const v1::Job&) { return true; }, begun + kJobLimit);
  if (!ended.ok() || ended->state() != v1::Job::SUCCEEDED) return std::nullopt;
  return base::ToSeconds(base::SystemClock().Now() - begun);
}

/// The results of one setup with a load.
struct Measured {
  int offered = 0, done = 0, in_time = 0;
  double reserved_s = 0;  ///< Of instances that are not idle.
  double weights_bytes = 0;
  [[nodiscard]] double per_job() const { return reserved_s / std::max(1, done); }
  [[nodiscard]] double attainment() const {
    return static_cast<double>(in_time) / std::max(1, offered);
  }
};

/// The instances in use now, and the weights that all of them hold.
absl::Status Look(client::Client& client, int& reserved, double& weights) {
  ONEPIECE_ASSIGN_OR_RETURN(const v1::Cluster cluster, client.GetCluster());
  reserved = 0;
  weights = 0;
  for (const v1::Node& node : cluster.nodes()) {
    if (node.role() != v1::INSTANCE) continue;
    reserved += node.activity() != v1::IDLE && node.activity() != v1::DRAINED ? 1 : 0;
    weights += WeightsOf(node.metrics_address());
  }
  return absl::OkStatus();
}

absl::StatusOr<Measured> Measure(const Setup& setup, const std::vector<Arrival>& arrivals,
                                 double duration_s, double slo_s, std::stop_token stop) {
  ONEPIECE_ASSIGN_OR_RETURN(const auto cluster, BenchCluster::Start(setup));
  // A rejected client retries until its job would be late.
  const auto asks = cluster->MakeClient(base::FromSeconds(slo_s));
  const auto watches = cluster->MakeClient(kJobLimit);
  for (int i = 1; i <= 4; ++i) (void)DoJob(*watches, *watches, setup.app, -i);
  std::vector<std::optional<double>> latencies(arrivals.size());
  Measured measured{.offered = static_cast<int>(arrivals.size())};
  const auto& clock = base::SystemClock();
  const base::MonotonicTime begun = clock.Now();
  const base::MonotonicTime end = begun + base::FromSeconds(duration_s);
  std::vector<std::jthread> jobs;  // Last, so that they end before the data that they write to.
  int looks = 0;
  for (base::MonotonicTime now = begun, looked = begun; now < end; now = clock.Now()) {
    if (stop.stop_requested())
      return base::MakeError(absl::StatusCode::kCancelled, "INTERRUPTED", "interrupted");
    while (jobs.size() < arrivals.size() &&
           begun + base::FromSeconds(arrivals[jobs.size()].time_s) <= now) {
      jobs.emplace_back([&, number = jobs.size()] {
        latencies[number] = DoJob(*asks, *watches, setup.app, static_cast<int>(number));
      });
    }
    if (looks == 0 || now - looked >= kPollInterval) {
      int reserved = 0;
      double weights = 0;
      ONEPIECE_RETURN_IF_ERROR(Look(*watches, reserved, weights));
      measured.reserved_s += reserved * base::ToSeconds(now - looked);
      measured.weights_bytes += weights;
      looked = now;
      ++looks;
    }
    const base::MonotonicTime next = jobs.size() < arrivals.size()
                                         ? begun + base::FromSeconds(arrivals[jobs.size()].time_s)
                                         : end;
    std::this_thread::sleep_until(std::min({next, looked + kPollInterval, end}));
  }
  jobs.clear();  // Waits for their ends.
  for (const std::optional<double>& latency : latencies) {
    measured.done += latency.has_value() ? 1 : 0;
    measured.in_time += latency.has_value() && *latency <= slo_s ? 1 : 0;
  }
  measured.weights_bytes /= std::max(1, looks);
  return measured;
}

/// Returns the seconds of a job that meets no other, in the fused workflow: the median of a few.
absl::StatusOr<double> UnloadedLatency() {
  ONEPIECE_ASSIGN_OR_RETURN(const auto cluster, BenchCluster::Start(kMonolithic));
  const auto client = cluster->MakeClient(kJobLimit);
  std::vector<double> latencies;
  for (int i = 0; i < 16; ++i) {
    const auto latency = DoJob(*client, *client, kMonolithic.app, i);
    if (!latency.has_value()) return absl::UnavailableError("a job of the empty cluster failed");
    if (i >= 4) latencies.push_back(*latency);  // Each instance has done one.
  }
  return MedianOf(latencies);
}

absl::StatusOr<std::vector<Arrival>> ArrivalsOf(const ClusterLoad& load, double unloaded_s,
                                                double duration_s) {
  simulator::System system;
  system.apps.push_back({.id = "any"});
  v1::SimulationConfig settings;
  settings.set_rate(load.load / unloaded_s);
  settings.set_duration_s(duration_s);
  settings.set_period_s(duration_s);
  settings.set_burst_s(duration_s / 10);
  ONEPIECE_ASSIGN_OR_RETURN(settings, simulator::CompleteSettings(settings));
  return simulator::MakeWorkload(load.kind, system, settings);
}

BenchResult Row(const ClusterLoad& load, const char* peer, const Measured& ours,
                const Measured& theirs, const std::string& workload) {
  BenchResult row{.name = absl::StrCat("elastic.cluster.", load.name, ".", peer),
                  .workload = workload,
                  .metric = "instance seconds reserved per job",
                  .unit = "s",
                  .better = "lower",
                  .ours = ours.per_job(),
                  .runs = 1};
  const double ratio = theirs.per_job() / ours.per_job();
  row.comparison = {.peer = peer,
                    .theirs = theirs.per_job(),
                    .ratio = ratio,
                    .ratio_min = ratio,
                    .ratio_max = ratio};
  row.split = {{"jobs", ours.done},
               {"in_time", ours.attainment()},
               {"weights_mib", ours.weights_bytes / (1 << 20)},
               {"their_jobs", theirs.done},
               {"their_in_time", theirs.attainment()},
               {"their_weights_mib", theirs.weights_bytes / (1 << 20)}};
  return row;
}

}  // namespace

absl::StatusOr<BenchReport> RunClusterElasticBench(
    double seconds, std::stop_token stop, const std::function<void(const std::string&)>& say) {
  say("one job at a time");
  ONEPIECE_ASSIGN_OR_RETURN(const double unloaded_s, UnloadedLatency());
  const double slo_s = kSloFactor * unloaded_s;
  BenchReport report;
  for (const ClusterLoad& load : kClusterLoads) {
    ONEPIECE_ASSIGN_OR_RETURN(const auto arrivals, ArrivalsOf(load, unloaded_s, seconds));
    const auto measure = [&](const Setup& setup) {
      say(absl::StrCat(load.name, ": ", setup.name));
      return Measure(setup, arrivals, seconds, slo_s, stop);
    };
    ONEPIECE_ASSIGN_OR_RETURN(const Measured ours, measure(kElastic));
    ONEPIECE_ASSIGN_OR_RETURN(const Measured monolithic, measure(kMonolithic));
    ONEPIECE_ASSIGN_OR_RETURN(const Measured fixed, measure(kStatic));
    ONEPIECE_ASSIGN_OR_RETURN(const Measured moved, measure(kMonolithicMoved));
    const std::string workload = absl::StrFormat(
        "embedded cluster, tiny-wan-t2v, %d instance processes, P = 1; %s, %zu jobs in %.0f s, "
        "which keep %.2f fused instances busy; in time: %.2f s, %.0f times a job alone; mean "
        "weights on all instances: ours %.1f MiB, monolithic %.1f, static %.1f; monolithic with "
        "the same policy: %.2f s per job, %.0f %% in time",
        kInstances, load.kind, arrivals.size(), seconds, load.load, slo_s, kSloFactor,
        ours.weights_bytes / (1 << 20), monolithic.weights_bytes / (1 << 20),
        fixed.weights_bytes / (1 << 20), moved.per_job(), 100 * moved.attainment());
    report.results.push_back(Row(load, "monolithic", ours, monolithic, workload));
    report.results.back().split.emplace_back("their_moved_s", moved.per_job());
    report.results.back().split.emplace_back("their_moved_in_time", moved.attainment());
    report.results.push_back(Row(load, "static", ours, fixed, workload));
  }
  return report;
}

}  // namespace onepiece::bench
