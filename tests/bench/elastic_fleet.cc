// 200 light instances and a real NodeManager: the load of two pools changes places, and the policy
// moves the instances after it. What is not real is the work: an instance reports what it would
// have computed.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/base/seconds.h"
#include "cluster/base/status.h"
#include "cluster/client/client.h"
#include "cluster/local/process.h"
#include "cluster/local/resources.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/node_agent.h"
#include "cluster/rpc/server.h"
#include "tests/bench/elastic_bench.h"
#include "tests/eventually.h"

namespace onepiece::bench {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr std::size_t kFleet = 200;
/// The two pools, each of an application of its own.
constexpr std::array<const char*, 2> kFleetStages = {"left", "right"};
/// The work that is offered to each pool, in instances' worth. With the threshold it needs 172.
constexpr std::array<double, 2> kFleetLoads = {30, 90};
constexpr double kFleetThreshold = 0.7, kJobSeconds = 0.5;
/// A pool counts as served when it is not busier than this: the policy looks at a mean over 5 s.
constexpr double kServed = kFleetThreshold + 0.05;
constexpr base::Duration kSettleLimit = seconds(180), kAfter = seconds(15);
constexpr char kElasticity[] =
    "{policy: utilization, window_s: 5, interval_s: 0.5, cooldown_s: 2, threshold: 0.7, "
    "low_threshold: 0.5}";

/// What the pools are offered, and who serves them.
struct Offered {
  std::array<std::atomic<double>, 2> load{kFleetLoads[0], kFleetLoads[1]};
  std::array<std::atomic<int>, 2> serving{};
};

std::optional<std::size_t> PoolOf(const v1::Assignment& assignment) {
  if (!assignment.has_stage() || assignment.draining()) return std::nullopt;
  return assignment.stage().stage() == kFleetStages[0] ? 0 : 1;
}

/// An instance that takes an equal share of what its pool is offered, and no more than it can do.
///
/// Threading: thread-safe; the agent calls it from two of its threads.
class LightInstance {
 public:
  LightInstance(std::size_t number, const std::string& nodemanager, const std::string& address,
                Offered& offered)
      : offered_(offered),
        agent_({.role = v1::INSTANCE,
                .node_id = absl::StrCat("instance-", number),
                .nodemanagers = {nodemanager},
                .address = address,
                .workflow_set = "default"},
               view_) {
    agent_.OnAssignment([this](const v1::Assignment& assignment) { Obey(assignment); });
    agent_.SetLoadSource([this] { return Load(); });
    agent_.Start();
  }

 private:
  void Obey(const v1::Assignment& assignment) {
    {
      const base::MutexLock lock(mutex_);
      Work();
      if (pool_.has_value()) --offered_.serving[*pool_];
      pool_ = PoolOf(assignment);
      if (pool_.has_value()) ++offered_.serving[*pool_];
    }
    agent_.SetState({.state = assignment.has_stage() ? v1::Node::READY : v1::Node::STARTING,
                     .assignment_epoch = assignment.epoch(),
                     .drained = assignment.draining()});
  }
  v1::NodeLoad Load() {
    const base::MutexLock lock(mutex_);
    Work();
    v1::NodeLoad load;
    load.set_utilization(busy_);
    load.set_workers(1);
    for (std::size_t pool = 0; pool < kFleetStages.size(); ++pool) {
      if (!(computed_s_[pool] > 0)) continue;
      v1::StageLoad& stage = *load.add_stages();
      stage.set_app_id(kFleetStages[pool]);
      stage.set_stage(kFleetStages[pool]);
      const double jobs = std::floor(computed_s_[pool] / kJobSeconds);
      stage.set_jobs(static_cast<std::uint64_t>(jobs));
      stage.set_units(jobs);
      stage.set_compute_s(jobs * kJobSeconds);
      stage.set_compute_squares_s2(jobs * kJobSeconds * kJobSeconds);
    }
    return load;
  }
  // Computes since the last call.
  void Work() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const base::MonotonicTime now = base::SystemClock().Now();
    busy_ = 0;
    if (pool_.has_value()) {
      busy_ = std::min(1.0, offered_.load[*pool_] / std::max(1, offered_.serving[*pool_].load()));
      computed_s_[*pool_] += busy_ * base::ToSeconds(now - worked_);
    }
    worked_ = now;
  }

  Offered& offered_;
  base::Mutex mutex_;
  std::optional<std::size_t> pool_ ABSL_GUARDED_BY(mutex_);
  std::array<double, 2> computed_s_ ABSL_GUARDED_BY(mutex_){};
  double busy_ ABSL_GUARDED_BY(mutex_) = 0;
  base::MonotonicTime worked_ ABSL_GUARDED_BY(mutex_) = base::SystemClock().Now();
  node::ClusterView view_;
  node::NodeAgent agent_;
};

/// A proxy that is asked for what the pools are offered.
class LightProxy {
 public:
  LightProxy(const std::string& nodemanager, const std::string& address, const Offered& offered)
      : offered_(offered),
        agent_({.role = v1::PROXY,
                .node_id = "proxy-1",
                .nodemanagers = {nodemanager},
                .address = address,
                .workflow_set = "default"},
               view_) {
    agent_.SetLoadSource([this] { return Load(); });
    agent_.SetState({.state = v1::Node::READY});
    agent_.Start();
  }

 private:
  // Only the agent's reporting thread calls it.
  v1::NodeLoad Load() {
    const base::MonotonicTime now = base::SystemClock().Now();
    v1::NodeLoad load;
    for (std::size_t pool = 0; pool < kFleetStages.size(); ++pool) {
      asked_[pool] += offered_.load[pool] / kJobSeconds * base::ToSeconds(now - told_);
      v1::Demand& demand = *load.add_demands();
      demand.set_app_id(kFleetStages[pool]);
      demand.set_admitted(static_cast<std::uint64_t>(asked_[pool]));
      demand.set_units(std::floor(asked_[pool]));
    }
    told_ = now;
    return load;
  }

  const Offered& offered_;
  std::array<double, 2> asked_{};
  base::MonotonicTime told_ = base::SystemClock().Now();
  node::ClusterView view_;
  node::NodeAgent agent_;
};

/// A NodeManager in a folder of its own. It ends with this object. Thread-confined.
class FleetManager {
 public:
  static absl::StatusOr<std::unique_ptr<FleetManager>> Start() {
    std::string folder = (fs::temp_directory_path() / "onepiece-bench-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) return absl::UnavailableError("no temporary folder");
    std::unique_ptr<FleetManager> manager(new FleetManager(folder));
    for (const char* stage : kFleetStages) {
      std::ofstream(folder + "/" + stage + ".yaml")
          << absl::StrFormat("{app_id: %s, stages: [{stage: %s, plugin: bench}]}\n", stage, stage);
    }
    std::ofstream(folder + "/nodemanager.yaml")
        << absl::StrFormat("elasticity: %s\nworkflow_files: [%s/left.yaml, %s/right.yaml]\n",
                           kElasticity, folder, folder);
    ONEPIECE_ASSIGN_OR_RETURN(const std::string program,
                              local::ProgramPath("onepiece-nodemanager"));
    ONEPIECE_ASSIGN_OR_RETURN(
        manager->process_,
        local::Spawn({.arguments = {program, "--config", folder + "/nodemanager.yaml", "--insecure",
                                    "--node-id", "nodemanager-1", "--data-dir", folder + "/data",
                                    "--ready-file", folder + "/ready"},
                      .output_path = folder + "/log",
                      .clean_environment = true}));
    if (!testing::Eventually(seconds(30), [&] { return !manager->Address().empty(); }))
      return absl::DeadlineExceededError("no NodeManager: " + local::ReadFile(folder + "/log"));
    return manager;
  }
  ~FleetManager() {
    local::KillAndWait(process_, seconds(10));
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  FleetManager(const FleetManager&) = delete;
  FleetManager& operator=(const FleetManager&) = delete;

  [[nodiscard]] std::string Address() const {
    const auto ready = nlohmann::json::parse(local::ReadFile(folder_ + "/ready"), nullptr,
                                             /*allow_exceptions=*/false);
    return ready.is_object() ? ready.value("address", "") : "";
  }

 private:
  explicit FleetManager(std::string folder) : folder_(std::move(folder)) {}
  const std::string folder_;
  local::ProcessId process_{};
};

struct Moves {
  int done = 0, undone = 0;
  std::set<std::string> instances;
};

/// The moves of automatic plans that began since `since_ms`.
absl::StatusOr<Moves> CountMoves(client::Client& client, std::int64_t since_ms) {
  Moves moves;
  v1::ListPlansRequest request;
  do {
    ONEPIECE_ASSIGN_OR_RETURN(const v1::ListPlansResponse page, client.ListPlans(request));
    for (const v1::Plan& plan : page.plans()) {
      if (plan.create_unix_ms() < since_ms) continue;
      for (const v1::Move& move : plan.moves()) {
        ++(move.phase() == v1::Move::DONE ? moves.done : moves.undone);
        moves.instances.insert(move.node_id());
      }
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return moves;
}

/// Whether both pools have the instances that their load needs, and nothing moves.
bool IsServed(client::Client& client, const Offered& offered) {
  for (std::size_t pool = 0; pool < kFleetStages.size(); ++pool) {
    if (offered.load[pool] > kServed * offered.serving[pool]) return false;
  }
  const auto elasticity = client.GetElasticity();
  return elasticity.ok() && elasticity->plans().empty();
}

absl::StatusOr<double> WaitUntilServed(client::Client& client, const Offered& offered,
                                       const std::stop_token& stop) {
  const base::MonotonicTime begun = base::SystemClock().Now();
  const bool served = testing::Eventually(
      kSettleLimit, [&] { return stop.stop_requested() || IsServed(client, offered); });
  if (stop.stop_requested())
    return base::MakeError(absl::StatusCode::kCancelled, "INTERRUPTED", "interrupted");
  if (!served) {
    return absl::DeadlineExceededError(absl::StrFormat("the pools have %d and %d instances",
                                                       offered.serving[0].load(),
                                                       offered.serving[1].load()));
  }
  return base::ToSeconds(base::SystemClock().Now() - begun);
}

std::int64_t UnixMs() { return absl::ToUnixMillis(absl::Now()); }

}  // namespace

absl::StatusOr<BenchReport> RunFleetElasticBench(
    const std::stop_token& stop, const std::function<void(const std::string&)>& say) {
  ONEPIECE_ASSIGN_OR_RETURN(const auto manager, FleetManager::Start());
  rpc::Server server{rpc::ServerOptions{}};  // The NodeManager connects to a node's address.
  ONEPIECE_RETURN_IF_ERROR(server.Start().status());
  Offered offered;
  const std::string at = manager->Address();
  LightProxy proxy(at, server.address(), offered);
  std::list<LightInstance> instances;
  for (std::size_t i = 0; i < kFleet; ++i) instances.emplace_back(i, at, server.address(), offered);
  client::Client client(client::ClientOptions{.nodemanagers = {at}, .timeout = seconds(5)});
  say(absl::StrCat("fleet: ", kFleet, " instances find their first places"));
  ONEPIECE_ASSIGN_OR_RETURN(const double first_s, WaitUntilServed(client, offered, stop));
  testing::Pause(kAfter);  // The window forgets the start.

  say("fleet: the loads of the two pools change places");
  const std::int64_t since = UnixMs();
  offered.load[0] = kFleetLoads[1];
  offered.load[1] = kFleetLoads[0];
  ONEPIECE_ASSIGN_OR_RETURN(const double settle_s, WaitUntilServed(client, offered, stop));
  ONEPIECE_ASSIGN_OR_RETURN(const Moves moves, CountMoves(client, since));
  const std::int64_t settled = UnixMs();
  testing::Pause(kAfter);
  ONEPIECE_ASSIGN_OR_RETURN(const Moves late, CountMoves(client, settled));
  ONEPIECE_ASSIGN_OR_RETURN(const v1::Cluster cluster, client.GetCluster());
  const auto dead = std::ranges::count(cluster.nodes(), v1::Node::DEAD, &v1::Node::state);

  BenchReport report;
  BenchResult& row = report.results.emplace_back();
  row.name = "elastic.fleet.swap";
  row.workload = absl::StrFormat(
      "%d light instances, one NodeManager; two pools are offered %.0f and %.0f instances' worth "
      "of "
      "work, which change places; policy %s",
      kFleet, kFleetLoads[0], kFleetLoads[1], kElasticity);
  row.metric = "time until both pools are served and nothing moves";
  row.unit = "s";
  row.ours = settle_s;
  row.runs = 1;
  row.split = {{"first_places_s", first_s},
               {"moves", moves.done},
               {"moves_not_done", moves.undone},
               {"instances_moved", static_cast<double>(moves.instances.size())},
               {"moves_afterwards", late.done + late.undone},
               {"dead", static_cast<double>(dead)}};
  return report;
}

}  // namespace onepiece::bench
