// One database instance: store, ring, replication and upkeep, without the process around them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/database/anti_entropy.h"
#include "cluster/database/database_service.h"
#include "cluster/database/disk.h"
#include "cluster/database/job_store.h"
#include "cluster/database/replicator.h"
#include "cluster/database/storage_quotas.h"
#include "cluster/database/value_access.h"
#include "cluster/database/work_inquiry.h"
#include "cluster/fabric/fabric.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/inbox.h"
#include "cluster/node/outbox.h"
#include "cluster/node/routing.h"
#include "cluster/telemetry/metrics.h"
#include "cluster/telemetry/spans.h"
#include "cluster/values/remote_values.h"
#include "onepiece/v1/cluster_config.pb.h"
#include "onepiece/v1/config.pb.h"

namespace onepiece::database {

struct DatabaseNodeOptions {
  std::string node_id;
  JobStoreOptions store;
  DiskOptions disk;
  node::InboxOptions inbox;
  /// Says who calls. Borrowed. Null: the database is insecure.
  const rpc::Door* door = nullptr;
  int copies = 2;          ///< Copies of each job, this instance's included.
  bool read_only = false;  ///< Refuse purges by people.
  v1::ResultCopies acknowledge = v1::RESULT_COPIES_ALL;
  base::Duration compare_interval = std::chrono::seconds(30);  ///< Scaled.
  /// As in AntiEntropyOptions.
  base::Duration drop_after = std::chrono::seconds(30);
  base::Duration sweep_interval = std::chrono::milliseconds(200);
  /// How long peers may take to send a result that this instance lacks. Scaled.
  base::Duration lost_after = std::chrono::seconds(5);
};

/// Returns the options that a configuration file asks for.
DatabaseNodeOptions OptionsFrom(const v1::DatabaseConfig& config);

/// A database: it stores job records and results, replicates them, and takes results from a ring.
///
/// Ownership: owns its store, ring and threads. Borrows view, fabric, metrics, spans and clock.
/// Threading: thread-safe. It has threads of its own: for the ring, upkeep, replication,
/// comparison and questions to keepers of work, and two for each peer.
/// Blocking: Stop waits for the threads, which takes about 1 s.
class DatabaseNode {
 public:
  /// Errors: those of Inbox::Open and ValueAccess::Create.
  static absl::StatusOr<std::unique_ptr<DatabaseNode>> Open(
      const node::ClusterView& view, DatabaseNodeOptions options, fabric::Fabric& fabric,
      telemetry::Metrics& metrics, telemetry::Spans& spans,
      base::Clock& clock = base::SystemClock());
  ~DatabaseNode();
  DatabaseNode(const DatabaseNode&) = delete;
  DatabaseNode& operator=(const DatabaseNode&) = delete;

  /// Returns the services to serve while the node lives.
  [[nodiscard]] std::vector<grpc::Service*> services();
  /// Loads what earlier runs left on disk, if DiskOptions names a folder. Call it before Start.
  ///
  /// Errors: those of Disk::Open.
  absl::Status Recover(const std::string& cluster_id);
  /// Goes by the cluster's limits from now on, and by its own options where they say 0. Whatever it
  /// has stays. Callable at any time.
  void Follow(const v1::DatabaseLimits& limits);
  /// Begins to answer calls, to take messages and to replicate. Until then every call fails with
  /// RECOVERING.
  void Start();
  /// Ends streams and threads. The gRPC server can be shut down afterwards. Idempotent.
  void Stop();

  [[nodiscard]] JobStore& store() { return *store_; }
  [[nodiscard]] Disk& disk() { return *disk_; }
  [[nodiscard]] Replicator& replicator() { return *replicator_; }
  [[nodiscard]] AntiEntropy& anti_entropy() { return *anti_entropy_; }
  [[nodiscard]] v1::NodeLoad load() const;

 private:
  DatabaseNode(const node::ClusterView& view, DatabaseNodeOptions options,
               std::unique_ptr<ValueAccess> values, std::unique_ptr<node::Inbox> inbox,
               fabric::Fabric& fabric, telemetry::Metrics& metrics, telemetry::Spans& spans,
               base::Clock& clock);
  void TakeMessages(const std::stop_token& stop);
  void Take(const node::Received& received);
  bool Wants(const base::Uid& uid) const;
  /// Keeps a result that was written into memory. Returns whether it did.
  absl::StatusOr<bool> Write(const ResultBundle& bundle, message::Kind kind,
                             const std::string& sender);
  /// `tried_again`: its sender hears when there is no room (kFull), and looks for room elsewhere.
  absl::StatusOr<StoreOutcome> Keep(const ResultBundle& bundle, message::Kind kind,
                                    const std::string& sender, bool tried_again);
  void CountResult(std::string_view outcome);
  void Upkeep(const std::stop_token& stop);
  void GiveUpLost(const node::Routing& routing, base::MonotonicTime started);
  absl::StatusOr<StoreOutcome> StoreInRoom(const ResultBundle& bundle, message::Kind kind,
                                           bool hold, bool tried_again);
  void ExportMetrics();
  void SetDoor(const rpc::Door& door);
  void Describe(v1::Database& database) const;
  void ExportDiskMetrics();

  const node::ClusterView& view_;
  const DatabaseNodeOptions options_;
  telemetry::Metrics& metrics_;
  telemetry::Spans& spans_;
  base::Clock& clock_;
  // The store's hooks call these four, so they are declared before the store and outlive it.
  std::unique_ptr<ValueAccess> values_;
  std::unique_ptr<Disk> disk_;
  std::unique_ptr<Replicator> replicator_;
  WorkInquiry inquiry_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<node::Inbox> inbox_;
  std::unique_ptr<node::Outbox> outbox_;
  values::ValuePeers value_peers_;
  std::unique_ptr<AntiEntropy> anti_entropy_;
  std::optional<StorageQuotas> quotas_;
  std::unique_ptr<DatabaseService> service_;
  std::jthread message_thread_, upkeep_thread_;
};

}  // namespace onepiece::database
