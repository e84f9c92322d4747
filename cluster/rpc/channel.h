// The client half: channels with the cluster's settings, deadlines, and calls that speak
// absl::Status.
#pragma once

#include <memory>
#include <string>
#include <type_traits>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/rpc/status.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"

namespace onepiece::rpc {

/// A channel to host:port with a connection of its own: it reconnects after 100 ms, growing to 2 s,
/// and notices a peer that has vanished within about 15 s (scaled). Proxy settings of the
/// environment are ignored. Does not block; errors show in the first call. Thread-safe.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address);

/// Gives `context` a deadline `timeout` × base::TimeScale() from now, on the monotonic clock.
void SetTimeout(grpc::ClientContext& context, base::Duration timeout);

/// One unary call with a timeout (scaled): Call(*stub, &Service::Stub::GetJob, request, 2s). Blocks
/// until the answer or the timeout. The status is that of the server, reason included; UNAVAILABLE
/// when it cannot be reached.
template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> Call(
    Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
    const std::type_identity_t<Request>& request, base::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(context, timeout);
  Response response;
  if (const grpc::Status status = (stub.*method)(&context, request, &response); !status.ok()) {
    return FromGrpc(status);
  }
  return response;
}

}  // namespace onepiece::rpc
