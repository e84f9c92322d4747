// The client half: channels with the cluster's settings, deadlines, and calls that speak
// absl::Status.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/rpc/status.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"

namespace onepiece::rpc {

/// How soon a channel notices and mends a broken connection. The last three are scaled.
struct ChannelTiming {
  base::Duration backoff_min = std::chrono::milliseconds(100),
                 backoff_max = std::chrono::seconds(2);
  base::Duration connect = std::chrono::seconds(5);            ///< One attempt may take so long.
  base::Duration keepalive = std::chrono::seconds(10);         ///< A ping after so long a silence,
  base::Duration keepalive_timeout = std::chrono::seconds(5);  ///< and its answer.
};

/// A channel to host:port with a connection of its own. Proxy settings of the environment are
/// ignored. `user_agent` (empty: none) comes before gRPC's own name. Does not block; errors show in
/// the first call. Thread-safe.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const ChannelTiming& timing = ChannelTiming(),
                                           const std::string& user_agent = {});

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
