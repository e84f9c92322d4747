// ConsensusService over gRPC: what operators ask of the replicas.
#pragma once

#include "nodemanager/replication/replicated_log.h"
#include "onepiece/v1/consensus.grpc.pb.h"

namespace onepiece::nodemanager {

/// Ownership  Borrows the log.
/// Threading  Thread-safe.
class ConsensusService final : public v1::ConsensusService::Service {
 public:
  /// `read_only`: as in NodeConfig.
  explicit ConsensusService(ReplicatedLog& log, bool read_only = false)
      : log_(log), read_only_(read_only) {}

  grpc::Status GetReplica(grpc::ServerContext* context, const v1::GetReplicaRequest* request,
                          v1::ReplicaStatus* response) override;
  grpc::Status AddSeat(grpc::ServerContext* context, const v1::AddSeatRequest* request,
                       v1::ConsensusMembers* response) override;
  grpc::Status RemoveSeat(grpc::ServerContext* context, const v1::RemoveSeatRequest* request,
                          v1::ConsensusMembers* response) override;
  grpc::Status ReplaceSeat(grpc::ServerContext* context, const v1::ReplaceSeatRequest* request,
                           v1::ConsensusMembers* response) override;
  grpc::Status StepDown(grpc::ServerContext* context, const v1::StepDownRequest* request,
                        google::protobuf::Empty* response) override;
  grpc::Status TakeSnapshot(grpc::ServerContext* context, const v1::TakeSnapshotRequest* request,
                            v1::TakeSnapshotResponse* response) override;
  grpc::Status ListLog(grpc::ServerContext* context, const v1::ListLogRequest* request,
                       v1::ListLogResponse* response) override;

 private:
  ReplicatedLog& log_;
  const bool read_only_;
};

/// Says what is unwise about the seats: vacant ones, an even number, no majority to lose.
void AddWarnings(v1::ConsensusMembers& members);

/// Errors: INVALID_ARGUMENT (BAD_SEAT), which names the field.
absl::Status CheckSeat(const std::string& name, const std::string& address);

}  // namespace onepiece::nodemanager
