// That a read-only server refuses every change, also those of methods that do not exist yet.
#pragma once

#include <grpcpp/generic/generic_stub.h>

#include <future>
#include <memory>
#include <set>
#include <string>

#include "cluster/rpc/channel.h"
#include "cluster/rpc/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/empty.pb.h"

namespace onepiece::testing {

/// Calls `method` ("/onepiece.v1.NodeManagerService/GetCluster") with an empty request.
inline absl::Status CallEmpty(const std::shared_ptr<grpc::Channel>& channel,
                              const std::string& method) {
  grpc::TemplatedGenericStub<google::protobuf::Empty, google::protobuf::Empty> stub(channel);
  grpc::ClientContext context;
  rpc::SetTimeout(context, std::chrono::seconds(20));
  google::protobuf::Empty request, response;
  std::promise<grpc::Status> answer;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &response,
                 [&](grpc::Status status) { answer.set_value(std::move(status)); });
  return rpc::FromGrpc(answer.get_future().get());
}

/// Empty: every method of `service` is in exactly one of both lists, and the server behind
/// `channel`, which is read-only, refuses exactly `changes`. Streams are not called. Else what is
/// wrong.
inline std::string CheckReadOnly(const std::shared_ptr<grpc::Channel>& channel,
                                 const google::protobuf::ServiceDescriptor& service,
                                 const std::set<std::string>& changes,
                                 const std::set<std::string>& others) {
  std::string wrong;
  std::size_t known = 0;
  for (int i = 0; i < service.method_count(); ++i) {
    const google::protobuf::MethodDescriptor& method = *service.method(i);
    const bool is_change = changes.contains(method.name());
    if (is_change == others.contains(method.name())) {
      wrong += method.full_name() + " must be in one list: is it a change that people make? ";
      continue;
    }
    ++known;
    if (method.client_streaming() || method.server_streaming()) continue;
    const absl::Status status = CallEmpty(channel, "/" + service.full_name() + "/" + method.name());
    const bool refused =
        absl::IsPermissionDenied(status) && base::GetReason(status).reason == "READ_ONLY";
    if (refused != is_change) wrong += method.full_name() + ": " + status.ToString() + " ";
  }
  if (wrong.empty() && known != changes.size() + others.size())
    wrong = service.full_name() + " has no method of some name listed";
  return wrong;
}

}  // namespace onepiece::testing
