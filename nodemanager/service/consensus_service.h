// Serves ConsensusService over gRPC: what operators ask of the replicas.
#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "nodemanager/replication/replicated_log.h"
#include "onepiece/v1/consensus.grpc.pb.h"

namespace onepiece::rpc {
class Door;
}

namespace onepiece::nodemanager {

/// Shows a replica and its log, and changes the seats and the feature level of its group.
/// GetReplica(), ListLog(), TakeSnapshot() and Backup() work at every replica, and the other calls
/// only at the leader.
///
/// Ownership: borrows the log, which must outlive it.
/// Threading: thread-safe.
/// Blocking: changes wait for the log.
class ConsensusService final : public v1::ConsensusService::Service {
 public:
  /// `read_only` means what it means in NodeConfig. `on_level` is called when the feature level has
  /// risen, so that watchers hear of it. The door knows who calls; null: the NodeManager is
  /// insecure.
  explicit ConsensusService(ReplicatedLog& log, bool read_only = false,
                            std::function<void()> on_level = nullptr,
                            const rpc::Door* door = nullptr)
      : log_(log), read_only_(read_only), on_level_(std::move(on_level)), door_(door) {}

  /// `read` returns the NodeManagers' seal key, for backups that hold it (BackupRequest).
  /// REQUIRES: before the first call.
  void SetSealKey(std::function<absl::StatusOr<std::string>()> read) {
    seal_key_ = std::move(read);
  }

  grpc::Status GetReplica(grpc::ServerContext* context, const v1::GetReplicaRequest* request,
                          v1::ReplicaStatus* response) override;
  grpc::Status AddSeat(grpc::ServerContext* context, const v1::AddSeatRequest* request,
                       v1::ConsensusMembers* response) override;
  grpc::Status RemoveSeat(grpc::ServerContext* context, const v1::RemoveSeatRequest* request,
                          v1::ConsensusMembers* response) override;
  grpc::Status ReplaceSeat(grpc::ServerContext* context, const v1::ReplaceSeatRequest* request,
                           v1::ConsensusMembers* response) override;
  grpc::Status RaiseFeatureLevel(grpc::ServerContext* context,
                                 const v1::RaiseFeatureLevelRequest* request,
                                 v1::RaiseFeatureLevelResponse* response) override;
  grpc::Status StepDown(grpc::ServerContext* context, const v1::StepDownRequest* request,
                        google::protobuf::Empty* response) override;
  grpc::Status TakeSnapshot(grpc::ServerContext* context, const v1::TakeSnapshotRequest* request,
                            v1::TakeSnapshotResponse* response) override;
  grpc::Status ListLog(grpc::ServerContext* context, const v1::ListLogRequest* request,
                       v1::ListLogResponse* response) override;
  grpc::Status Backup(grpc::ServerContext* context, const v1::BackupRequest* request,
                      grpc::ServerWriter<v1::BackupChunk>* writer) override;

 private:
  absl::Status AddSealKey(const v1::BackupRequest& request, v1::BackupHeader& header) const;

  ReplicatedLog& log_;
  const bool read_only_;
  const std::function<void()> on_level_;
  const rpc::Door* const door_;
  std::function<absl::StatusOr<std::string>()> seal_key_;
  std::atomic<int> backups_{0};
};

/// Adds warnings about the seats: some are vacant, the number of voters is even, or no voter may
/// fail.
void AddWarnings(v1::ConsensusMembers& members);

/// Checks that the leader with this status, and all voters that it knows, understand the level.
/// Errors: FAILED_PRECONDITION (OLD_REPLICA), which names the voters that do not.
absl::Status CheckLevel(const v1::ReplicaStatus& leader, std::uint32_t level);

}  // namespace onepiece::nodemanager
