// The client half of gRPC: channels with the cluster's settings, deadlines, and calls that return
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

namespace grpc {
class ChannelCredentials;
}

namespace onepiece::rpc {

/// How this process shows itself to servers from now on, and checks them: every later channel uses
/// `credentials` (tls.h). Null, and at first: plaintext, which only insecure servers take.
///
/// Threading: may be called from any thread. A program calls it before its first channel, and the
/// console when it goes to another cluster.
void UseCredentials(std::shared_ptr<grpc::ChannelCredentials> credentials);

/// How soon a channel notices a broken connection and connects again. The last three are scaled.
struct ChannelTiming {
  base::Duration backoff_min = std::chrono::milliseconds(100),
                 backoff_max = std::chrono::seconds(2);
  base::Duration connect = std::chrono::seconds(5);            ///< Limit of one attempt.
  base::Duration keepalive = std::chrono::seconds(10);         ///< Silence before a ping.
  base::Duration keepalive_timeout = std::chrono::seconds(5);  ///< Limit of the ping's answer.
};

/// Makes a channel to host:port with a connection of its own. It ignores the proxy settings of the
/// environment. `user_agent` (empty: none) comes before gRPC's own name.
///
/// Threading: may be called from any thread.
/// Blocking: never. Errors show in the first call.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const ChannelTiming& timing = ChannelTiming(),
                                           const std::string& user_agent = {});

/// Gives `context` a deadline `timeout` × base::TimeScale() from now, on the monotonic clock.
void SetTimeout(grpc::ClientContext& context, base::Duration timeout);
/// Gives `context` a deadline `left` from now, on the monotonic clock. Does not scale: for what is
/// left of a longer time that is scaled already.
void SetTimeLeft(grpc::ClientContext& context, base::Duration left);

/// Makes one unary call: Call(*stub, &Service::Stub::GetJob, request, 2s).
///
/// Blocking: until the answer, or until `timeout` (scaled).
/// Errors: the server's status with its reason. UNAVAILABLE when the server cannot be reached.
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
