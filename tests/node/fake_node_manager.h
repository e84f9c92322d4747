// A NodeManager for the tests of agents.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/rpc/replicas.h"
#include "cluster/rpc/server.h"
#include "cluster/rpc/status.h"
#include "onepiece/v1/node_manager.grpc.pb.h"

namespace onepiece::node {

/// A NodeManager that does what the test says and remembers what it was told. Thread-safe.
class FakeNodeManager final : public v1::NodeManagerService::Service {
 public:
  grpc::Status RegisterNode(grpc::ServerContext*, const v1::RegisterNodeRequest* request,
                            v1::RegisterNodeResponse* response) override {
    const base::MutexLock lock(mutex_);
    request_ids_.push_back(request->request_id());
    changed_.NotifyAll();
    if (follows_) return NotLeader();
    if (busy_ > 0) {
      --busy_;
      return rpc::ToGrpc(base::MakeError(absl::StatusCode::kResourceExhausted, "REGISTRATIONS_BUSY",
                                         "ask again",
                                         {{rpc::kRetryAfterMs, std::to_string(retry_after_ms_)}}));
    }
    if (request->node().incarnation() <= at_most_) {
      return rpc::ToGrpc(base::MakeError(absl::StatusCode::kAborted, "STALE_INCARNATION", "old",
                                         {{"incarnation", std::to_string(at_most_)}}));
    }
    *response->mutable_node() = request->node();
    response->set_cluster_id(cluster_id_);
    response->set_cluster_secret("secret");
    response->set_report_interval_ms(report_interval_ms_);
    for (const std::string& address : replicas_) response->add_nodemanagers(address);
    known_incarnation_ = request->node().incarnation();
    registered_.push_back(request->node());
    if (lost_answers_ == 0) return grpc::Status::OK;
    --lost_answers_;
    return {grpc::StatusCode::UNAVAILABLE, "the answer was lost"};
  }

  grpc::Status ReportNode(grpc::ServerContext*, const v1::ReportNodeRequest* request,
                          v1::ReportNodeResponse* response) override {
    const base::MutexLock lock(mutex_);
    if (follows_ || refuses_reports_) return NotLeader();
    if (known_incarnation_ == 0) {
      return rpc::ToGrpc(base::MakeError(absl::StatusCode::kNotFound, "NODE_UNKNOWN", "who?"));
    }
    if (known_incarnation_ != request->incarnation()) {
      return rpc::ToGrpc(base::MakeError(absl::StatusCode::kAborted, "STALE_INCARNATION", "dead"));
    }
    reports_.push_back(*request);
    if (lost_reports_ > 0) {
      --lost_reports_;
      return {grpc::StatusCode::UNAVAILABLE, "the answer was lost"};
    }
    response->set_identity_epoch(identity_epoch_);
    response->set_report_interval_ms(new_interval_ms_);
    if (server_time_) response->set_server_unix_ms(server_time_());
    if (limits_) *response->mutable_limits() = *limits_;
    if (!capacity_of_.empty()) response->mutable_capacity()->set_workflow_set(capacity_of_);
    changed_.NotifyAll();
    return grpc::Status::OK;
  }

  grpc::Status DeregisterNode(grpc::ServerContext*, const v1::DeregisterNodeRequest* request,
                              google::protobuf::Empty*) override {
    const base::MutexLock lock(mutex_);
    deregistered_.push_back(request->incarnation());
    return grpc::Status::OK;
  }

  grpc::Status WatchRouting(grpc::ServerContext* context, const v1::WatchRoutingRequest* request,
                            grpc::ServerWriter<v1::RoutingTable>* writer) override {
    {
      const base::MutexLock lock(mutex_);
      routing_requests_.push_back(*request);
    }
    return Stream(context, writer, &FakeNodeManager::tables_, [&](const v1::RoutingTable& table) {
      return table.workflow_set() == request->workflow_set();
    });
  }

  grpc::Status WatchAssignment(grpc::ServerContext* context, const v1::WatchAssignmentRequest*,
                               grpc::ServerWriter<v1::Assignment>* writer) override {
    return Stream(context, writer, &FakeNodeManager::assignments_,
                  [](const v1::Assignment&) { return true; });
  }

  void Publish(std::uint64_t epoch, const std::string& workflow_set = "") {
    const base::MutexLock lock(mutex_);
    v1::RoutingTable& table = tables_.emplace_back();
    table.set_epoch(epoch);
    table.set_workflow_set(workflow_set);
    changed_.NotifyAll();
  }
  /// A delta in which this node is new.
  void PublishDelta(std::uint64_t base_epoch, std::uint64_t epoch, const std::string& node_id) {
    const base::MutexLock lock(mutex_);
    v1::RoutingTable& table = tables_.emplace_back();
    table.set_base_epoch(base_epoch);
    table.set_epoch(epoch);
    table.add_alive()->set_node_id(node_id);
    changed_.NotifyAll();
  }
  void Assign(std::uint64_t epoch, const std::string& workflow_set = "") {
    const base::MutexLock lock(mutex_);
    v1::Assignment& assignment = assignments_.emplace_back();
    assignment.set_epoch(epoch);
    assignment.set_workflow_set(workflow_set);
    changed_.NotifyAll();
  }
  /// Applies to registrations from now on.
  void WantReports(int interval_ms) {
    const base::MutexLock lock(mutex_);
    report_interval_ms_ = interval_ms;
  }
  /// Refuses so many registrations, and says when to ask again.
  void BeBusy(int count, int retry_after_ms) {
    const base::MutexLock lock(mutex_);
    busy_ = count;
    retry_after_ms_ = retry_after_ms;
  }
  /// Answers to reports say this interval. 0, as from older NodeManagers: they do not say it.
  void ChangeReportInterval(int interval_ms) {
    const base::MutexLock lock(mutex_);
    new_interval_ms_ = interval_ms;
  }
  /// Answers to reports carry these limits.
  void TellLimits(const v1::LimitsConfig& limits) {
    const base::MutexLock lock(mutex_);
    limits_ = limits;
  }
  /// Answers to reports name this IdentityTable.
  void TellIdentity(std::uint64_t epoch) {
    const base::MutexLock lock(mutex_);
    identity_epoch_ = epoch;
  }
  /// So many reports come and are not answered.
  void LoseReports(int count) {
    const base::MutexLock lock(mutex_);
    lost_reports_ = count;
  }
  /// Answers to reports carry a Capacity of this set.
  void TellCapacity(const std::string& workflow_set) {
    const base::MutexLock lock(mutex_);
    capacity_of_ = workflow_set;
  }
  /// Answers to reports say this time. `server_time` runs while the node waits for the answer.
  void TellTime(std::function<std::int64_t()> server_time) {
    const base::MutexLock lock(mutex_);
    server_time_ = std::move(server_time);
  }
  /// Acts as a NodeManager that lost its state, or declared the node dead.
  void Forget() { SetKnown(0); }
  void DeclareDead() { SetKnown(~std::uint64_t{0}); }
  /// Refuses everything from now on, streams included; `leader` may be empty.
  void Follow(const std::string& leader) {
    const base::MutexLock lock(mutex_);
    follows_ = true;
    leader_ = leader;
    changed_.NotifyAll();
  }
  void Lead() {
    const base::MutexLock lock(mutex_);
    follows_ = false;
  }
  /// Acts as a leader that took over and knows the node already.
  void Know(std::uint64_t incarnation) { SetKnown(incarnation); }
  /// Streams stay open but bring nothing more, like those of a process that stands still.
  void StandStill() {
    const base::MutexLock lock(mutex_);
    stands_still_ = true;
  }
  /// Refuses reports, and leaves the streams alone.
  void RefuseReports(const std::string& leader) {
    const base::MutexLock lock(mutex_);
    refuses_reports_ = true;
    leader_ = leader;
  }
  void BeOfCluster(const std::string& cluster_id, const std::vector<std::string>& replicas = {}) {
    const base::MutexLock lock(mutex_);
    cluster_id_ = cluster_id;
    replicas_ = replicas;
  }
  /// Acts as a NodeManager that knows this incarnation of the node.
  void RequireAbove(std::uint64_t incarnation) {
    const base::MutexLock lock(mutex_);
    at_most_ = incarnation;
  }
  void LoseAnswers(int count) {
    const base::MutexLock lock(mutex_);
    lost_answers_ = count;
  }
  std::vector<v1::ReportNodeRequest> reports() {
    const base::MutexLock lock(mutex_);
    return reports_;
  }
  void ClearTables() {
    const base::MutexLock lock(mutex_);
    tables_.clear();
  }

  std::vector<v1::Node> WaitRegistrations(std::size_t count) {
    return WaitFor(&FakeNodeManager::registered_, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return registered_.size() >= count;
    });
  }
  std::vector<std::string> WaitRequestIds(std::size_t count) {
    return WaitFor(&FakeNodeManager::request_ids_, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return request_ids_.size() >= count;
    });
  }
  std::vector<v1::WatchRoutingRequest> WaitRoutingRequests(std::size_t count) {
    return WaitFor(
        &FakeNodeManager::routing_requests_,
        [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return routing_requests_.size() >= count; });
  }
  template <typename Predicate>
  std::vector<v1::ReportNodeRequest> WaitReport(Predicate predicate) {
    return WaitFor(&FakeNodeManager::reports_, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !reports_.empty() && predicate(reports_.back());
    });
  }
  int refusals() {
    const base::MutexLock lock(mutex_);
    return refusals_;
  }
  std::size_t routing_requests() {
    const base::MutexLock lock(mutex_);
    return routing_requests_.size();
  }
  std::size_t registrations() {
    const base::MutexLock lock(mutex_);
    return registered_.size();
  }
  std::vector<std::uint64_t> deregistered() {
    const base::MutexLock lock(mutex_);
    return deregistered_;
  }

 private:
  grpc::Status NotLeader() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ++refusals_;
    std::map<std::string, std::string> metadata;
    if (!leader_.empty()) metadata[rpc::kLeader] = leader_;
    return rpc::ToGrpc(
        base::MakeError(absl::StatusCode::kUnavailable, rpc::kNotLeader, "follows", metadata));
  }
  void SetKnown(std::uint64_t incarnation) {
    const base::MutexLock lock(mutex_);
    known_incarnation_ = incarnation;
  }
  template <typename Items, typename Predicate>
  Items WaitFor(Items FakeNodeManager::*items, Predicate predicate) {
    base::MutexLock lock(mutex_);
    return changed_.WaitFor(lock, std::chrono::seconds(10), predicate) ? this->*items : Items();
  }
  template <typename Item, typename Wanted>
  grpc::Status Stream(grpc::ServerContext* context, grpc::ServerWriter<Item>* writer,
                      std::vector<Item> FakeNodeManager::*items, Wanted wanted) {
    base::MutexLock lock(mutex_);
    for (std::size_t next = 0; !context->IsCancelled();) {
      if (follows_) return NotLeader();
      if (!stands_still_ && next < (this->*items).size()) {
        const Item& item = (this->*items)[next++];
        if (wanted(item)) writer->Write(item);
        continue;
      }
      changed_.WaitFor(lock, std::chrono::milliseconds(10));
    }
    return grpc::Status::OK;
  }

  base::Mutex mutex_;
  base::CondVar changed_;
  int busy_ ABSL_GUARDED_BY(mutex_) = 0, retry_after_ms_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t known_incarnation_ ABSL_GUARDED_BY(mutex_) = 0, at_most_
                                                                ABSL_GUARDED_BY(mutex_) = 0;
  bool follows_ ABSL_GUARDED_BY(mutex_) = false, stands_still_ ABSL_GUARDED_BY(mutex_) = false;
  bool refuses_reports_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t identity_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  int lost_reports_ ABSL_GUARDED_BY(mutex_) = 0;
  int lost_answers_ ABSL_GUARDED_BY(mutex_) = 0, refusals_ ABSL_GUARDED_BY(mutex_) = 0;
  int report_interval_ms_ ABSL_GUARDED_BY(mutex_) = 20;
  int new_interval_ms_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string leader_ ABSL_GUARDED_BY(mutex_), cluster_id_ ABSL_GUARDED_BY(mutex_) = "test",
                                                           capacity_of_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::LimitsConfig> limits_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> replicas_ ABSL_GUARDED_BY(mutex_), request_ids_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::Node> registered_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::ReportNodeRequest> reports_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> deregistered_ ABSL_GUARDED_BY(mutex_);
  std::function<std::int64_t()> server_time_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::WatchRoutingRequest> routing_requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::RoutingTable> tables_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::Assignment> assignments_ ABSL_GUARDED_BY(mutex_);
};

struct Served {
  explicit Served(FakeNodeManager& manager, const std::string& listen = "127.0.0.1:0")
      : server({.listen = listen}) {
    server.AddService(manager);
    started = server.Start().ok();
  }
  rpc::Server server;
  bool started = false;
};

}  // namespace onepiece::node
