// Databases of one process for tests: real rings, real gRPC on loopback, a routing table made by
// hand.
#pragma once

#include <QtTest>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/database/database_node.h"
#include "cluster/job/job_record.h"
#include "cluster/node/job_records.h"
#include "cluster/rpc/server.h"
#include "tests/eventually.h"

namespace onepiece::database {

using testing::Eventually;

inline void Require(const absl::Status& status) {
  if (!status.ok()) qFatal("%s", status.ToString().c_str());
}

inline v1::JobRecord NewRecord() {
  v1::JobRecord record;
  v1::Job& job = *record.mutable_job();
  const base::WallTime now = base::SystemClock().WallNow();
  job.set_uid(base::Uid::Generate(base::ToUnixMs(now)).ToString());
  job.set_name("jobs/" + job.uid());
  job.set_app_id("app");
  *job.mutable_create_time() = job::ToTimestamp(now);
  job::SetTimeLimit(std::chrono::seconds(60), now, record);
  record.set_fingerprint("f");
  record.set_result_ttl_s(60);
  return record;
}

class DatabaseCluster {
 public:
  struct Database {
    std::string node_id;
    std::uint64_t incarnation = 0;
    std::shared_ptr<fabric::Fabric> fabric;
    std::unique_ptr<telemetry::Metrics> metrics;
    std::unique_ptr<telemetry::Spans> spans;
    std::unique_ptr<DatabaseNode> node;
    std::unique_ptr<rpc::Server> server;
  };
  /// Changes that a test makes to a database before it starts.
  struct Setup {
    std::function<void(DatabaseNodeOptions&)> options;
    std::function<void(JobStore&)> fill;
    std::shared_ptr<fabric::Fabric> fabric;  ///< The database's own fabric; none: the cluster's.
  };

  /// `uri` names the fabric. When it is empty, the cluster has shared memory of its own.
  explicit DatabaseCluster(const std::string& uri = "") {
    auto opened = fabric::Fabric::Open(
        uri.empty() ? "shm://test-" + base::Uid::GenerateRandom().ToString() : uri);
    Require(opened.status());
    fabric_ = *std::move(opened);
    view_.SetCluster("test", "secret");
    ChangeTable([](v1::RoutingTable&) {});
    outbox_ = node::Outbox::Create(*fabric_, view_, {.node_id = "sender"});
    records_ = std::make_unique<node::JobRecords>(view_);
  }
  ~DatabaseCluster() {
    outbox_->Close();
    for (auto& [id, database] : databases_) StopDatabase(database);
  }

  /// What every node but the databases sees. It names no node as its own.
  const node::ClusterView& view() const { return view_; }
  /// Changes the routing table and publishes it under the next epoch.
  template <typename Change>
  void ChangeTable(const Change& change) {
    const base::MutexLock lock(mutex_);
    change(table_);
    table_.set_epoch(table_.epoch() + 1);
    const auto routing = std::make_shared<const node::Routing>(table_);
    view_.SetRouting(routing);
    for (node::ClusterView& view : database_views_) view.SetRouting(routing);
  }

  Database& AddDatabase(const std::string& node_id, JobStoreOptions store = {},
                        const Setup& setup = {},
                        const std::string& listen = rpc::ServerOptions().listen) {
    Database database;
    database.node_id = node_id;
    database.incarnation = ++last_incarnation_;
    database.metrics = std::make_unique<telemetry::Metrics>("database", node_id);
    database.spans = std::make_unique<telemetry::Spans>(node_id);
    DatabaseNodeOptions options;
    options.node_id = node_id;
    options.store = store;
    options.inbox.label = "db";
    options.inbox.capacity_bytes = 16 << 20;
    options.inbox.slots = 64;
    options.sweep_interval = std::chrono::milliseconds(20);
    if (setup.options) setup.options(options);
    database.fabric = setup.fabric;
    fabric::Fabric& fabric = setup.fabric != nullptr ? *setup.fabric : *fabric_;
    auto opened = DatabaseNode::Open(AddView(database), std::move(options), fabric,
                                     *database.metrics, *database.spans);
    Require(opened.status());
    database.node = *std::move(opened);
    database.server = std::make_unique<rpc::Server>(rpc::ServerOptions{.listen = listen});
    for (grpc::Service* service : database.node->services()) database.server->AddService(*service);
    Require(database.server->Start().status());
    Require(database.node->Recover("test"));
    if (setup.fill) setup.fill(database.node->store());
    database.node->Start();
    Database& added = databases_[node_id] = std::move(database);
    Return(node_id);
    return added;
  }
  /// Puts a database into the table (back, after Forget).
  void Return(const std::string& node_id) {
    const Database& database = databases_.at(node_id);
    Announce(node_id, database.incarnation, database.server->address());
  }
  void Announce(const std::string& node_id, std::uint64_t incarnation, const std::string& address) {
    ChangeTable([&](v1::RoutingTable& table) {
      v1::Endpoint endpoint;
      endpoint.set_node_id(node_id);
      endpoint.set_incarnation(incarnation);
      endpoint.set_address(address);
      *table.add_databases() = endpoint;
      *table.add_alive() = endpoint;
    });
  }
  /// Ends a database like a process that died: the routing names it until Forget().
  void Kill(const std::string& node_id) {
    StopDatabase(databases_.at(node_id));
    databases_.erase(node_id);
  }
  void Forget(const std::string& node_id) {
    ChangeTable([&](v1::RoutingTable& table) {
      for (auto* list :
           {table.mutable_databases(), table.mutable_alive(), table.mutable_proxies()}) {
        for (int i = list->size() - 1; i >= 0; --i) {
          if (list->Get(i).node_id() == node_id) list->DeleteSubrange(i, 1);
        }
      }
    });
  }
  Database& at(const std::string& node_id) { return databases_.at(node_id); }

  absl::StatusOr<node::Delivered> SendResult(const std::string& uid, const std::string& bytes,
                                             std::uint64_t run = 0) {
    message::Message message;
    message.header.kind = message::Kind::kResult;
    message.header.uid = *base::Uid::Parse(uid);
    message.header.app = "app";
    message.header.run = run;
    message.header.ingress_time = base::SystemClock().WallNow();
    message.header.deadline = base::SystemClock().Now() + std::chrono::seconds(60);
    message.artifacts.push_back(message::BytesArtifact("video", "video/mp4", bytes));
    return outbox_->Deliver(message, node::Destination::DatabasesFor(message.header.uid),
                            base::SystemClock().Now() + std::chrono::seconds(10));
  }
  /// Returns the databases in the order in which they keep the job.
  std::vector<std::string> Order(const std::string& uid) {
    std::vector<std::string> ids;
    for (const v1::Endpoint& endpoint : view_.routing()->DatabasesFor(*base::Uid::Parse(uid))) {
      ids.push_back(endpoint.node_id());
    }
    return ids;
  }

  fabric::Fabric& fabric() { return *fabric_; }
  node::Outbox& outbox() { return *outbox_; }
  node::JobRecords& records() { return *records_; }

 private:
  const node::ClusterView& AddView(const Database& database) {
    const base::MutexLock lock(mutex_);
    node::ClusterView& view = database_views_.emplace_back();
    v1::Endpoint self;
    self.set_node_id(database.node_id);
    self.set_incarnation(database.incarnation);
    view.SetSelf(std::move(self));
    view.SetCluster("test", "secret");
    view.SetRouting(view_.routing());
    return view;
  }
  static void StopDatabase(Database& database) {
    database.node->Stop();
    database.server->Shutdown(base::Duration::zero());
  }

  std::unique_ptr<fabric::Fabric> fabric_;
  base::Mutex mutex_;
  v1::RoutingTable table_ ABSL_GUARDED_BY(mutex_);
  node::ClusterView view_;
  // One for each start of a database. They stay: a database that is killed may still read its own.
  std::list<node::ClusterView> database_views_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_incarnation_ = 0;
  std::unique_ptr<node::Outbox> outbox_;
  std::unique_ptr<node::JobRecords> records_;
  std::map<std::string, Database> databases_;
};

}  // namespace onepiece::database
