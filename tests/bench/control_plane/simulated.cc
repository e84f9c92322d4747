#include "tests/bench/control_plane/simulated.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/base/seconds.h"
#include "cluster/base/status.h"
#include "cluster/node/shared_routings.h"
#include "cluster/rpc/status.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/channel_arguments.h"
#include "grpcpp/support/client_callback.h"
#include "nodemanager/service/controller.h"
#include "nodemanager/service/node_manager_service.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "tests/bench/bench_report.h"
#include "tests/bench/control_plane/applications.h"
#include "tests/bench/control_plane/fleet.h"
#include "tests/bench/control_plane/measure.h"

namespace onepiece::bench {
namespace {

using nodemanager::LeaderTerm;
using nodemanager::StateMachine;

constexpr int kJoiners = 8;  // Threads that register nodes.
constexpr base::Duration kLook = std::chrono::milliseconds(5);
constexpr base::Duration kJoinLimitForAll = std::chrono::minutes(5);

/// Commits at once, and forgets everything at its end.
class MemoryLog final : public nodemanager::Log {
 public:
  absl::StatusOr<v1::CommandResult> Propose(const v1::Command& command) override {
    const base::MutexLock lock(mutex_);
    return machine_.Apply(machine_.applied_index() + 1, command);
  }
  void ProposeAsync(const v1::Command& command, Answer answer) override {
    answer(Propose(command));
  }
  void Read(const std::function<void(const StateMachine&)>& read) const override {
    const base::MutexLock lock(mutex_);
    read(machine_);
  }
  [[nodiscard]] absl::StatusOr<LeaderTerm> Term() const override { return LeaderTerm{1}; }
  absl::Status CatchUp() const override { return absl::OkStatus(); }
  absl::Status Confirm(LeaderTerm) override { return absl::OkStatus(); }
  absl::Status StepDown() override { return absl::UnimplementedError("there is no other"); }

 private:
  mutable base::Mutex mutex_;
  StateMachine machine_ ABSL_GUARDED_BY(mutex_);
};

/// What all streams have got.
struct Tally {
  std::atomic<std::uint64_t> bytes{0}, messages{0};
  std::atomic<std::uint64_t> wanted{~std::uint64_t{0}};  ///< The epoch that all wait for.
  std::atomic<std::size_t> arrived{0};                   ///< The streams that have it.
  std::atomic<std::int64_t> last_ns{0};                  ///< When the last of them got it.
};

/// A node's stream. It reads and counts, as fast as it can.
template <typename Item>
class StreamOf final : public grpc::ClientReadReactor<Item> {
 public:
  explicit StreamOf(Tally& tally) : tally_(tally) {}
  grpc::ClientContext context;
  std::atomic<std::uint64_t> epoch{0};

  void Begin() {
    this->StartRead(&item_);
    this->StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    tally_.bytes += item_.ByteSizeLong();
    ++tally_.messages;
    const std::uint64_t before = epoch.exchange(item_.epoch()), wanted = tally_.wanted;
    if (before < wanted && item_.epoch() >= wanted) {
      tally_.last_ns = base::SystemClock().Now().time_since_epoch().count();
      ++tally_.arrived;
    }
    this->StartRead(&item_);
  }
  void OnDone(const grpc::Status&) override { done = true; }
  std::atomic<bool> done{false};

 private:
  Tally& tally_;
  Item item_;
};

v1::Node SimulatedNode(std::size_t number) {
  v1::Node node;
  node.set_node_id(NodeId(number));
  node.set_incarnation(1);
  node.set_address(absl::StrCat("10.", number / 250, ".0.", number % 250, ":7000"));
  node.set_host(absl::StrCat("host-", number / 8));
  node.set_workflow_set("default");
  node.set_role(number < kProxies                ? v1::PROXY
                : number < kProxies + kDatabases ? v1::DATABASE
                                                 : v1::INSTANCE);
  return node;
}

class Simulation {
 public:
  Simulation(std::size_t nodes, std::stop_token stop) : nodes_(nodes), stop_(std::move(stop)) {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = v1::NodeManagerService::NewStub(server_->InProcessChannel(grpc::ChannelArguments()));
  }
  ~Simulation() {
    for (auto& stream : tables_) stream.context.TryCancel();
    for (auto& stream : assignments_) stream.context.TryCancel();
    stopping_.request_stop();
    server_->Shutdown();
    const auto ended = [](const auto& streams) {
      return std::ranges::all_of(streams, [](const auto& stream) { return stream.done.load(); });
    };
    while (!ended(tables_) || !ended(assignments_)) std::this_thread::yield();
  }
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  absl::Status Join();
  absl::Status OpenStreams();
  /// Proposes, and returns the seconds until the last stream has the table that follows.
  absl::StatusOr<double> Change(v1::Command command, double* proposed_s = nullptr);
  [[nodiscard]] v1::RoutingTable Table() const {
    v1::RoutingTable table;
    log_.Read([&](const StateMachine& state) { table = state.Routing("default"); });
    return table;
  }
  [[nodiscard]] std::uint64_t bytes() const { return tally_.bytes; }

 private:
  [[nodiscard]] std::uint64_t Epoch() const {
    std::uint64_t epoch = 0;
    log_.Read([&](const StateMachine& state) { epoch = state.EpochOf("default"); });
    return epoch;
  }
  absl::Status Await(const std::function<bool()>& good, const char* what,
                     base::Duration limit = kCrowdLimit) const {
    base::Clock& clock = base::SystemClock();
    const base::MonotonicTime deadline = clock.Now() + limit;
    while (!good()) {
      if (!clock.Pause(stop_, kLook)) return absl::CancelledError("interrupted");
      if (clock.Now() > deadline)
        return absl::DeadlineExceededError(absl::StrCat("simulation: ", what));
    }
    return absl::OkStatus();
  }
  void Report(std::size_t number);

  const std::size_t nodes_;
  const std::stop_token stop_;
  std::stop_source stopping_;
  Tally tally_;
  MemoryLog log_;
  nodemanager::Controller controller_{
      log_, base::SystemClock(), {.dead_after = std::chrono::hours(1), .cluster_id = [] {
                                    return std::string("simulated");
                                  }}};
  nodemanager::NodeManagerService service_{
      controller_, stopping_.get_token(), {.addresses = [] { return std::vector<std::string>(); }}};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::NodeManagerService::Stub> stub_;
  std::list<StreamOf<v1::RoutingTable>> tables_;
  std::list<v1::WatchRoutingRequest> table_requests_;
  std::list<StreamOf<v1::Assignment>> assignments_;
  std::list<v1::WatchAssignmentRequest> assignment_requests_;
};

void Simulation::Report(std::size_t number) {
  v1::ReportNodeRequest report;
  report.set_node_id(NodeId(number));
  report.set_incarnation(1);
  report.set_state(v1::Node::READY);
  log_.Read([&](const StateMachine& state) {
    report.set_assignment_epoch(state.nodes().at(report.node_id()).node().assignment().epoch());
  });
  controller_.Report(report, [](const absl::Status&) {});
}

absl::Status Simulation::Join() {
  ONEPIECE_RETURN_IF_ERROR(controller_.TakeOver());
  v1::Command pools;
  *pools.mutable_apply_workflow() = ManyPools();
  ONEPIECE_RETURN_IF_ERROR(controller_.Propose(pools).status());
  {
    std::vector<std::jthread> joiners;
    for (std::size_t joiner = 0; joiner < kJoiners; ++joiner) {
      joiners.emplace_back([this, joiner] {
        for (std::size_t number = joiner; number < nodes_; number += kJoiners) {
          v1::Command command;
          *command.mutable_register_node() = SimulatedNode(number);
          (void)controller_.Propose(std::move(command));
        }
      });
    }
  }
  controller_.CheckLiveness();  // Assigns what is left.
  for (std::size_t number = 0; number < nodes_; ++number) Report(number);
  return Await(
      [this] {
        std::size_t ready = 0;
        log_.Read([&](const StateMachine& state) {
          for (const auto& [id, record] : state.nodes())
            ready += record.node().state() == v1::Node::READY ? 1 : 0;
        });
        return ready == nodes_;
      },
      "not all nodes are READY", kJoinLimitForAll);
}

absl::Status Simulation::OpenStreams() {
  for (std::size_t number = 0; number < nodes_; ++number) {
    v1::WatchRoutingRequest& request = table_requests_.emplace_back();
    request.set_takes_deltas(true);
    auto& table = tables_.emplace_back(tally_);
    stub_->async()->WatchRouting(&table.context, &request, &table);
    table.Begin();
    if (number < kProxies + kDatabases) continue;
    v1::WatchAssignmentRequest& of = assignment_requests_.emplace_back();
    of.set_node_id(NodeId(number));
    of.set_incarnation(1);
    auto& assignment = assignments_.emplace_back(tally_);
    stub_->async()->WatchAssignment(&assignment.context, &of, &assignment);
    assignment.Begin();
  }
  const std::uint64_t epoch = Epoch();
  return Await(
      [&] {
        return std::ranges::all_of(tables_,
                                   [&](const auto& stream) { return stream.epoch >= epoch; });
      },
      "not all streams have a table", kJoinLimitForAll);
}

absl::StatusOr<double> Simulation::Change(v1::Command command, double* proposed_s) {
  base::Clock& clock = base::SystemClock();
  // A change comes alone, as in the measurement with real nodes.
  if (!clock.Pause(stop_, BetweenChanges(nodes_))) return absl::CancelledError("interrupted");
  const std::uint64_t before = Epoch();
  tally_.arrived = 0;
  tally_.wanted = before + 1;
  const base::MonotonicTime start = clock.Now();
  ONEPIECE_RETURN_IF_ERROR(controller_.Propose(std::move(command)).status());
  if (proposed_s != nullptr) *proposed_s = base::ToSeconds(clock.Now() - start);
  // A stream of a node that has died ends; its assignment is no table.
  const absl::Status all = Await(
      [&] {
        return std::ranges::all_of(tables_,
                                   [&](const auto& stream) { return stream.epoch > before; });
      },
      "a change has not reached all streams");
  tally_.wanted = ~std::uint64_t{0};
  ONEPIECE_RETURN_IF_ERROR(all);
  return base::ToSeconds(base::MonotonicTime(base::Duration(tally_.last_ns.load())) - start);
}

/// The median time for one node to take a change of the table in.
double NodeApply(const v1::RoutingTable& table, int changes) {
  const node::Routing routing(table);
  v1::RoutingTable delta;
  delta.set_base_epoch(table.epoch());
  delta.set_epoch(table.epoch() + 1);
  delta.set_workflow_set(table.workflow_set());
  delta.add_removed_alive(NodeId(0));
  std::vector<double> times;
  for (int i = 0; i < changes; ++i) {
    const base::MonotonicTime start = base::SystemClock().Now();
    if (!node::ChangedRouting(routing, delta).ok()) return 0;
    times.push_back(base::ToSeconds(base::SystemClock().Now() - start));
  }
  return MedianOf(times);
}

}  // namespace

absl::StatusOr<SimulatedNumbers> Simulate(std::size_t nodes, int changes,
                                          const std::stop_token& stop) {
  SimulatedNumbers numbers;
  Simulation simulation(nodes, stop);
  const base::MonotonicTime start = base::SystemClock().Now();
  ONEPIECE_RETURN_IF_ERROR(simulation.Join());
  numbers.join_s = base::ToSeconds(base::SystemClock().Now() - start);
  ONEPIECE_RETURN_IF_ERROR(simulation.OpenStreams());
  v1::Command first;
  *first.mutable_apply_workflow() = Changing(1);
  ONEPIECE_RETURN_IF_ERROR(simulation.Change(std::move(first)).status());
  const std::uint64_t bytes = simulation.bytes();
  for (int i = 0; i < changes; ++i) {
    v1::Command command;
    *command.mutable_apply_workflow() = Changing(i + 2);
    ONEPIECE_ASSIGN_OR_RETURN(const double took, simulation.Change(std::move(command)));
    numbers.watch_s.push_back(took);
  }
  numbers.bytes = static_cast<double>(simulation.bytes() - bytes) / changes;
  std::vector<double> proposed;
  for (int i = 0; i < changes; ++i) {
    v1::Command command;
    command.mutable_end_node()->set_node_id(NodeId(nodes - 1 - static_cast<std::size_t>(i)));
    command.mutable_end_node()->set_incarnation(1);
    ONEPIECE_ASSIGN_OR_RETURN(const double took,
                              simulation.Change(std::move(command), &proposed.emplace_back()));
    numbers.death_s.push_back(took);
  }
  numbers.propose_s = MedianOf(proposed);
  const v1::RoutingTable table = simulation.Table();
  numbers.table_bytes = static_cast<double>(table.ByteSizeLong());
  numbers.node_apply_s = NodeApply(table, changes);
  return numbers;
}

}  // namespace onepiece::bench
