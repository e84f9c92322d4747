// Our side: a group of NodeManagers, and what is asked and told of it.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/base/ids.h"
#include "cluster/base/seconds.h"
#include "cluster/base/status.h"
#include "cluster/client/client.h"
#include "cluster/rpc/channel.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "tests/bench/control_plane/applications.h"
#include "tests/bench/control_plane/flood.h"
#include "tests/bench/control_plane/measure.h"
#include "tests/bench/control_plane/process_use.h"

namespace onepiece::bench {
namespace {

constexpr int kMovesPerPlan = 32;  // The NodeManager's limit.
constexpr int kDrainedShare = 10;  // One instance of so many.
/// How often the cluster is asked about its nodes. The answer has all of them.
constexpr base::Duration kLookAgain = std::chrono::milliseconds(50);
/// What each registration may add to the start. It is a commit of its own.
constexpr base::Duration kJoinLimit = std::chrono::milliseconds(60);
constexpr base::Duration kDrainLimit = std::chrono::minutes(10);
constexpr base::Duration kCallLimit = std::chrono::seconds(5);
constexpr int kFloodRate = 10'000;  // Registrations a second.
constexpr base::Duration kFloodTime = std::chrono::seconds(4);
constexpr char kOurs[] = "ours";

absl::Status WriteConfig(const std::string& path) {
  std::ofstream file(path);
  file << "report_interval_ms: " << kHeartbeat / std::chrono::milliseconds(1) << "\n"
       << "dead_after_ms: " << kDeadAfter / std::chrono::milliseconds(1) << "\n"
       << "elasticity:\n  policy: static\n  max_moves: " << kMovesPerPlan << "\n";
  file.close();
  return file ? absl::OkStatus() : absl::FailedPreconditionError("cannot write " + path);
}

class NodeSide final : public Side {
 public:
  explicit NodeSide(const ControlPlan& plan) : plan_(plan) {}

  absl::Status StartGroup();
  /// Starts the light nodes, and waits until the NodeManager has all READY.
  absl::Status StartCrowd(std::int64_t version);
  absl::Status Change(std::int64_t version) override { return Apply(Changing(version)); }
  absl::StatusOr<base::MonotonicTime> WaitForHeartbeats(base::MonotonicTime since) override;
  absl::StatusOr<std::size_t> TableBytes();
  [[nodiscard]] std::vector<double> ResidentBytes() const;  ///< One for each replica.
  /// Drains a tenth of the instances for good, plan after plan. Returns the time.
  absl::StatusOr<double> Drain();
  /// Sends the leader 10,000 registrations a second, and makes a change meanwhile.
  absl::Status Flood(std::int64_t& version, ControlNumbers& numbers);
  /// The highest round of a ballot, which every election raises.
  absl::StatusOr<std::uint64_t> Round();
  /// Counts the nodes that are dead or have begun anew since StartCrowd().
  absl::StatusOr<std::uint64_t> Deaths();

 private:
  absl::Status Apply(const v1::Workflow& workflow);
  absl::StatusOr<v1::Cluster> Look();
  /// Waits until `good` holds for every light node.
  template <typename Good>
  absl::Status WaitForAll(const std::string& what, Good good);
  absl::Status DrainSome(const std::vector<std::string>& node_ids);

  const ControlPlan& plan_;
  std::unique_ptr<client::Client> client_;
  std::map<std::string, std::uint64_t> incarnations_;  // Of the light nodes at their start.
};

absl::Status NodeSide::StartGroup() {
  const std::string config = plan_.dir + "/nodemanager.yaml";
  ONEPIECE_RETURN_IF_ERROR(WriteConfig(config));
  ONEPIECE_ASSIGN_OR_RETURN(GroupPlan group, PlanNodeManagers(plan_.dir));
  for (std::vector<std::string>& arguments : group.arguments)
    arguments.insert(arguments.end(), {"--config", config});
  ONEPIECE_ASSIGN_OR_RETURN(group_, Group::Start(std::move(group), plan_.dir));
  client_ = std::make_unique<client::Client>(client::ClientOptions{
      .nodemanagers = group_->addresses(), .timeout = kCrowdLimit, .stop = plan_.stop});
  return Apply(ManyPools());
}

absl::Status NodeSide::Apply(const v1::Workflow& workflow) {
  v1::ApplyWorkflowRequest request;
  *request.mutable_workflow() = workflow;
  request.set_request_id(base::Uid::GenerateRandom().ToString());
  return client_->ApplyWorkflow(request).status();
}

/// Returns the cluster with its light nodes alone.
absl::StatusOr<v1::Cluster> NodeSide::Look() {
  ONEPIECE_ASSIGN_OR_RETURN(v1::Cluster cluster, client_->GetCluster());
  google::protobuf::RepeatedPtrField<v1::Node> light;
  for (v1::Node& node : *cluster.mutable_nodes()) {
    if (node.role() != v1::NODE_MANAGER) *light.Add() = std::move(node);
  }
  cluster.mutable_nodes()->Swap(&light);
  return cluster;
}

template <typename Good>
absl::Status NodeSide::WaitForAll(const std::string& what, Good good) {
  base::Clock& clock = base::SystemClock();
  const base::MonotonicTime deadline = clock.Now() + kCrowdLimit;
  for (;;) {
    ONEPIECE_ASSIGN_OR_RETURN(const v1::Cluster cluster, Look());
    const auto ready = static_cast<std::size_t>(std::ranges::count_if(cluster.nodes(), good));
    if (ready == plan_.nodes) return absl::OkStatus();
    if (clock.Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(plan_.nodes - ready, " of ", plan_.nodes,
                                                      " nodes ", what, " after ",
                                                      kCrowdLimit / std::chrono::seconds(1), " s"));
    }
    if (!clock.Pause(plan_.stop, kLookAgain)) return Interrupted();
  }
}

absl::Status NodeSide::StartCrowd(std::int64_t version) {
  ONEPIECE_ASSIGN_OR_RETURN(crowd_, Crowd::Start(FleetKind::kNodes, plan_.nodes,
                                                 group_->addresses(), plan_.dir, plan_.stop));
  ONEPIECE_RETURN_IF_ERROR(
      crowd_->WaitForTables(version, kCrowdLimit + kJoinLimit * plan_.nodes).status());
  ONEPIECE_RETURN_IF_ERROR(WaitForAll(
      "are not READY", [](const v1::Node& node) { return node.state() == v1::Node::READY; }));
  ONEPIECE_ASSIGN_OR_RETURN(const v1::Cluster cluster, Look());
  for (const v1::Node& node : cluster.nodes()) incarnations_[node.node_id()] = node.incarnation();
  return absl::OkStatus();
}

absl::StatusOr<base::MonotonicTime> NodeSide::WaitForHeartbeats(base::MonotonicTime since) {
  // The NodeManager tells wall times. It runs on this host, so its clock is this one.
  base::Clock& clock = base::SystemClock();
  const std::int64_t since_ms = base::ToUnixMs(clock.WallNow() - (clock.Now() - since));
  ONEPIECE_RETURN_IF_ERROR(WaitForAll("have not reported", [since_ms](const v1::Node& node) {
    const auto& last = node.last_report_time();
    return last.seconds() * 1000 + last.nanos() / 1'000'000 > since_ms;
  }));
  return clock.Now();
}

absl::StatusOr<std::size_t> NodeSide::TableBytes() {
  ONEPIECE_ASSIGN_OR_RETURN(const std::size_t leader, group_->WaitUntilSettled());
  const auto stub = v1::NodeManagerService::NewStub(rpc::MakeChannel(group_->addresses()[leader]));
  grpc::ClientContext context;
  rpc::SetTimeout(context, kCallLimit);
  const auto stream = stub->WatchRouting(&context, {});
  v1::RoutingTable table;
  if (stream->Read(&table)) return table.ByteSizeLong();
  return rpc::FromGrpc(stream->Finish());
}

std::vector<double> NodeSide::ResidentBytes() const {
  std::vector<double> bytes;
  for (std::size_t member = 0; member < group_->addresses().size(); ++member)
    bytes.push_back(ResidentBytesOf(group_->pid(member)));
  return bytes;
}

absl::Status NodeSide::DrainSome(const std::vector<std::string>& node_ids) {
  v1::ApplyPlanRequest request;
  request.set_actor("operator:bench");
  request.set_reason("a rolling drain");
  for (const std::string& node_id : node_ids) {
    v1::Move& move = *request.add_moves();
    move.set_node_id(node_id);
    move.mutable_to()->set_removed(true);
  }
  ONEPIECE_ASSIGN_OR_RETURN(v1::Plan plan, client_->ApplyPlan(std::move(request)));
  ONEPIECE_ASSIGN_OR_RETURN(plan, client_->AwaitPlan(
                                      plan.plan_id(), [](const v1::Plan&) {},
                                      base::SystemClock().Now() + kDrainLimit, plan_.stop));
  if (plan.state() == v1::Plan::DONE) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("the plan that drains ", node_ids.size(), " instances is ",
                                         v1::Plan::State_Name(plan.state()),
                                         ", not DONE: ", plan.ShortDebugString().substr(0, 300)));
}

absl::StatusOr<double> NodeSide::Drain() {
  const std::size_t instances = plan_.nodes - kProxies - kDatabases;
  const std::size_t drained = std::max<std::size_t>(1, instances / kDrainedShare);
  const base::MonotonicTime start = base::SystemClock().Now();
  std::vector<std::string> turn;
  for (std::size_t i = 0; i < drained; ++i) {
    turn.push_back(NodeId(kProxies + kDatabases + i));
    if (turn.size() < kMovesPerPlan && i + 1 < drained) continue;
    ONEPIECE_RETURN_IF_ERROR(DrainSome(turn));
    turn.clear();
  }
  return base::ToSeconds(base::SystemClock().Now() - start);
}

absl::Status NodeSide::Flood(std::int64_t& version, ControlNumbers& numbers) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::size_t leader, group_->WaitUntilSettled());
  base::Clock& clock = base::SystemClock();
  ONEPIECE_ASSIGN_OR_RETURN(
      const std::unique_ptr<FloodProcess> flood,
      FloodProcess::Start(group_->addresses()[leader], kFloodRate, plan_.dir));
  if (!clock.Pause(plan_.stop, kFloodTime / 2)) return Interrupted();
  const base::MonotonicTime start = clock.Now();
  ONEPIECE_RETURN_IF_ERROR(Change(++version));
  ONEPIECE_ASSIGN_OR_RETURN(const base::MonotonicTime last,
                            crowd_->WaitForTables(version, kCrowdLimit));
  numbers.flood_watch_s = base::ToSeconds(last - start);
  if (!clock.Pause(plan_.stop, kFloodTime / 2)) return Interrupted();
  ONEPIECE_ASSIGN_OR_RETURN(const FloodCounts counts, flood->Stop());
  numbers.flood_rate = static_cast<double>(counts.answered) / counts.seconds;
  numbers.flood_taken = static_cast<double>(counts.taken) / counts.seconds;
  return absl::OkStatus();
}

absl::StatusOr<std::uint64_t> NodeSide::Round() {
  std::uint64_t round = 0;
  for (const client::ReplicaAnswer& answer : client_->AskReplicas()) {
    if (!answer.status.ok()) return answer.status.status();
    round = std::max<std::uint64_t>(round, answer.status->round());
  }
  return round;
}

absl::StatusOr<std::uint64_t> NodeSide::Deaths() {
  ONEPIECE_ASSIGN_OR_RETURN(const v1::Cluster cluster, Look());
  std::uint64_t alive = 0;
  for (const v1::Node& node : cluster.nodes()) {
    const auto known = incarnations_.find(node.node_id());
    alive += node.state() != v1::Node::DEAD && known != incarnations_.end() &&
                     known->second == node.incarnation()
                 ? 1
                 : 0;
  }
  return plan_.nodes - alive;
}

}  // namespace

absl::StatusOr<ControlNumbers> MeasureOurs(const ControlPlan& plan, std::size_t& table_bytes) {
  ControlNumbers numbers;
  NodeSide side(plan);
  std::int64_t version = 1;
  ONEPIECE_RETURN_IF_ERROR(side.StartGroup());
  ONEPIECE_RETURN_IF_ERROR(side.Change(version));
  const std::vector<double> empty = side.ResidentBytes();
  ONEPIECE_ASSIGN_OR_RETURN(const std::uint64_t first, side.Round());
  const base::MonotonicTime start = base::SystemClock().Now();
  ONEPIECE_RETURN_IF_ERROR(side.StartCrowd(version));
  const double joined_s = base::ToSeconds(base::SystemClock().Now() - start);
  ONEPIECE_ASSIGN_OR_RETURN(table_bytes, side.TableBytes());
  ONEPIECE_ASSIGN_OR_RETURN(const std::uint64_t round, side.Round());
  Progress(plan, kOurs,
           absl::StrFormat("all are READY after %.1f s and %d elections, with a table of %d bytes",
                           joined_s, round - first, table_bytes));
  ONEPIECE_RETURN_IF_ERROR(MeasureRest(side, plan, numbers));
  // The start may have changed the leader.
  ONEPIECE_ASSIGN_OR_RETURN(const std::size_t leader, side.group().WaitUntilSettled());
  numbers.memory_per_node =
      (side.ResidentBytes()[leader] - empty[leader]) / static_cast<double>(plan.nodes);
  Progress(plan, kOurs,
           absl::StrFormat("at rest the leader uses %.3f cores", numbers.leader_cores));
  ONEPIECE_RETURN_IF_ERROR(MeasureWatch(side, plan, version, numbers));
  Progress(plan, kOurs, absl::StrCat(numbers.watch_s.size(), " changes have reached all"));
  ONEPIECE_RETURN_IF_ERROR(side.Flood(version, numbers));
  Progress(plan, kOurs,
           absl::StrFormat("%.0f registrations/s of one host were answered, %.0f of them taken, "
                           "and a change took %.2f s meanwhile",
                           numbers.flood_rate, numbers.flood_taken, numbers.flood_watch_s));
  ONEPIECE_ASSIGN_OR_RETURN(numbers.drain_s, side.Drain());
  ONEPIECE_ASSIGN_OR_RETURN(const std::uint64_t later, side.Round());
  numbers.elections = later - round;
  Progress(plan, kOurs, absl::StrFormat("a tenth is drained after %.1f s", numbers.drain_s));
  ONEPIECE_RETURN_IF_ERROR(MeasureStorm(side, version, numbers));
  ONEPIECE_ASSIGN_OR_RETURN(numbers.deaths, side.Deaths());
  Progress(plan, kOurs,
           absl::StrFormat("all are back %.2f s after the leader was killed", numbers.storm_s));
  return numbers;
}

}  // namespace onepiece::bench
