// v1::WorkService over gRPC: both ends of what a Settler tells a KeptWork.
#pragma once

#include "cluster/node/settler.h"
#include "onepiece/v1/work.grpc.pb.h"

namespace onepiece::node {

class KeptWork;

/// Returns the Settler's way over gRPC, with a connection for each keeper's address.
Settler::Tell TellByGrpc();

/// Serves v1::WorkService for a KeptWork, which it borrows.
///
/// Threading: thread-safe.
class WorkService final : public v1::WorkService::Service {
 public:
  explicit WorkService(KeptWork& kept) : kept_(kept) {}
  grpc::Status Settle(grpc::ServerContext* context, const v1::SettleWorkRequest* request,
                      google::protobuf::Empty* response) override;

 private:
  KeptWork& kept_;
};

}  // namespace onepiece::node
