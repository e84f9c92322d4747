// v1::WorkService over gRPC: what a KeptWork is told and asked.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "cluster/node/settler.h"
#include "onepiece/v1/work.grpc.pb.h"

namespace onepiece::node {

class KeptWork;

/// Returns the Settler's way over gRPC, with a connection for each keeper's address.
Settler::Tell TellByGrpc();

/// Asks one keeper what it keeps.
using AskKept = std::function<absl::StatusOr<v1::FindKeptResponse>(const v1::Endpoint& keeper,
                                                                   const v1::FindKeptRequest&)>;
/// Returns the way over gRPC. One thread at a time may use it.
AskKept AskKeptByGrpc();

/// Serves v1::WorkService for a KeptWork, which it borrows.
///
/// Threading: thread-safe.
class WorkService final : public v1::WorkService::Service {
 public:
  explicit WorkService(KeptWork& kept) : kept_(kept) {}
  grpc::Status Settle(grpc::ServerContext* context, const v1::SettleWorkRequest* request,
                      google::protobuf::Empty* response) override;
  grpc::Status FindKept(grpc::ServerContext* context, const v1::FindKeptRequest* request,
                        v1::FindKeptResponse* response) override;

 private:
  KeptWork& kept_;
};

}  // namespace onepiece::node
