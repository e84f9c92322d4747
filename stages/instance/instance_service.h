// InstanceService: what an instance answers over gRPC.
#pragma once

#include <string>

#include "cluster/node/cluster_view.h"
#include "onepiece/v1/instance.grpc.pb.h"
#include "stages/runtime/request_scheduler.h"
#include "stages/runtime/task_manager.h"

namespace onepiece::instance {

/// Tells what the instance does, and cancels its work.
///
/// Ownership: borrows everything that it is given.
/// Threading: thread-safe.
class InstanceService final : public v1::InstanceService::Service {
 public:
  InstanceService(std::string node_id, const node::ClusterView& view,
                  const runtime::TaskManager& tasks, runtime::RequestScheduler& scheduler);

  /// Before the instance has joined its cluster, the answer holds nothing but the node's id.
  grpc::Status GetInstance(grpc::ServerContext* context, const v1::GetInstanceRequest* request,
                           v1::Instance* response) override;
  grpc::Status CancelWork(grpc::ServerContext* context, const v1::CancelWorkRequest* request,
                          google::protobuf::Empty* response) override;

 private:
  const std::string node_id_;
  const node::ClusterView& view_;
  const runtime::TaskManager& tasks_;
  runtime::RequestScheduler& scheduler_;
};

}  // namespace onepiece::instance
