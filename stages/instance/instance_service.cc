#include "stages/instance/instance_service.h"

#include <cstdint>
#include <utility>

#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/rpc/status.h"

namespace onepiece::instance {
namespace {

v1::Instance::State StateOf(runtime::TaskState state) {
  switch (state) {
    case runtime::TaskState::kIdle:
      return v1::Instance::IDLE;
    case runtime::TaskState::kLoading:
      return v1::Instance::LOADING;
    case runtime::TaskState::kServing:
      return v1::Instance::SERVING;
    case runtime::TaskState::kFailed:
      break;
  }
  return v1::Instance::FAILED;
}

}  // namespace

InstanceService::InstanceService(std::string node_id, const node::ClusterView& view,
                                 const runtime::TaskManager& tasks,
                                 runtime::RequestScheduler& scheduler)
    : node_id_(std::move(node_id)), view_(view), tasks_(tasks), scheduler_(scheduler) {}

grpc::Status InstanceService::GetInstance(grpc::ServerContext*, const v1::GetInstanceRequest*,
                                          v1::Instance* response) {
  response->set_node_id(node_id_);
  const std::uint64_t incarnation = view_.incarnation();
  if (incarnation == 0) return grpc::Status::OK;
  response->set_incarnation(incarnation);
  response->set_state(StateOf(tasks_.status().state));
  response->set_stage(tasks_.assignment().stage);
  response->set_queued_jobs(static_cast<std::int64_t>(scheduler_.queued()));
  for (const auto& uid : tasks_.running()) response->add_running_uids(uid.ToString());
  return grpc::Status::OK;
}

grpc::Status InstanceService::CancelWork(grpc::ServerContext*, const v1::CancelWorkRequest* request,
                                         google::protobuf::Empty*) {
  const auto uid = base::Uid::Parse(request->uid());
  if (!uid)
    return rpc::ToGrpc(
        base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_UID", "malformed uid"));
  scheduler_.Cancel(*uid);
  return grpc::Status::OK;
}

}  // namespace onepiece::instance
