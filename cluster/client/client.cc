#include "cluster/client/client.h"

#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/client/client_impl.h"
#include "cluster/job/job_record.h"
#include "cluster/rpc/server.h"

namespace onepiece::client {

namespace {

/// Returns how long a slow link, at 1 MiB per second, takes for a request.
base::Duration UploadTime(std::size_t bytes) {
  return std::chrono::duration_cast<base::Duration>(std::chrono::seconds(1)) *
         static_cast<std::int64_t>(bytes >> 20);
}

}  // namespace

Client::Client(ClientOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Client::~Client() = default;

absl::StatusOr<v1::Job> Client::Submit(v1::SubmitJobRequest request) {
  const bool fresh = request.request_id().empty();
  if (fresh) request.set_request_id(base::Uid::GenerateRandom().ToString());
  const std::size_t bytes = request.ByteSizeLong();
  if (bytes > static_cast<std::size_t>(rpc::kMaxMessageBytes)) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "REQUEST_TOO_LARGE",
                           "the job's inputs and parameters have " + std::to_string(bytes) +
                               " bytes together; at most " + std::to_string(rpc::kMaxMessageBytes) +
                               " can be sent");
  }
  v1::Job job;
  ONEPIECE_RETURN_IF_ERROR(impl_->proxies.Call(
      [&](auto& stub, auto& context) { return stub.SubmitJob(&context, request, &job); },
      {.upload = UploadTime(bytes),
       .request_id = request.request_id(),
       .repeated = !fresh && !request.validate_only()}));
  return job;
}

absl::StatusOr<v1::Job> Client::Get(std::string_view uid) {
  v1::GetJobRequest request;
  request.set_name(JobName(uid));
  v1::Job job;
  ONEPIECE_RETURN_IF_ERROR(impl_->proxies.Call(
      [&](auto& stub, auto& context) { return stub.GetJob(&context, request, &job); }));
  return job;
}

absl::StatusOr<v1::ListJobsResponse> Client::List(const v1::ListJobsRequest& request) {
  v1::ListJobsResponse response;
  ONEPIECE_RETURN_IF_ERROR(impl_->proxies.Call(
      [&](auto& stub, auto& context) { return stub.ListJobs(&context, request, &response); }));
  return response;
}

absl::StatusOr<v1::Job> Client::Cancel(std::string_view uid) {
  v1::CancelJobRequest request;
  request.set_name(JobName(uid));
  v1::Job job;
  ONEPIECE_RETURN_IF_ERROR(impl_->proxies.Call(
      [&](auto& stub, auto& context) { return stub.CancelJob(&context, request, &job); }));
  return job;
}

absl::Status Client::Delete(std::string_view uid) {
  v1::DeleteJobRequest request;
  request.set_name(JobName(uid));
  google::protobuf::Empty nothing;
  return impl_->proxies.Call(
      [&](auto& stub, auto& context) { return stub.DeleteJob(&context, request, &nothing); });
}

absl::StatusOr<v1::GetJobTraceResponse> Client::Trace(std::string_view uid) {
  v1::GetJobTraceRequest request;
  request.set_name(JobName(uid));
  v1::GetJobTraceResponse response;
  ONEPIECE_RETURN_IF_ERROR(impl_->proxies.Call(
      [&](auto& stub, auto& context) { return stub.GetJobTrace(&context, request, &response); }));
  return response;
}

absl::StatusOr<v1::Job> Client::Acknowledge(std::string_view uid) {
  v1::AcknowledgeResultRequest request;
  request.set_name(JobName(uid));
  v1::Job job;
  ONEPIECE_RETURN_IF_ERROR(impl_->proxies.Call(
      [&](auto& stub, auto& context) { return stub.AcknowledgeResult(&context, request, &job); }));
  return job;
}

absl::StatusOr<v1::Cluster> Client::GetCluster() {
  v1::Cluster cluster;
  ONEPIECE_RETURN_IF_ERROR(impl_->proxies.CallManager([&](const auto& channel, auto& context) {
    return v1::NodeManagerService::Stub(channel).GetCluster(&context, {}, &cluster);
  }));
  impl_->proxies.Learn(cluster);
  return cluster;
}

absl::Status Client::RemoveNode(v1::RemoveNodeRequest request) {
  if (request.request_id().empty()) request.set_request_id(base::Uid::GenerateRandom().ToString());
  google::protobuf::Empty nothing;
  return impl_->proxies.CallManager([&](const auto& channel, auto& context) {
    return v1::NodeManagerService::Stub(channel).RemoveNode(&context, request, &nothing);
  });
}

absl::StatusOr<v1::Workflow> Client::ApplyWorkflow(const v1::ApplyWorkflowRequest& request) {
  v1::ApplyWorkflowRequest with_id = request;
  if (with_id.request_id().empty()) with_id.set_request_id(base::Uid::GenerateRandom().ToString());
  v1::Workflow workflow;
  ONEPIECE_RETURN_IF_ERROR(impl_->proxies.CallManager([&](const auto& channel, auto& context) {
    return v1::NodeManagerService::Stub(channel).ApplyWorkflow(&context, with_id, &workflow);
  }));
  return workflow;
}

std::string JobName(std::string_view uid) { return "jobs/" + std::string(uid); }

bool IsTerminal(v1::Job::State state) { return job::IsTerminal(state); }

}  // namespace onepiece::client
