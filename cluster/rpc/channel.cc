#include "cluster/rpc/channel.h"

#include "cluster/rpc/server.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"

namespace onepiece::rpc {
namespace {

int ScaledMs(base::Duration duration) {
  return static_cast<int>(
      std::chrono::duration_cast<std::chrono::milliseconds>(base::Scaled(duration)).count());
}

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  using std::chrono::seconds;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // Not a backoff, whatever its name says: how long one attempt to connect may take at least.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, ScaledMs(seconds(5)));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, ScaledMs(seconds(10)));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ScaledMs(seconds(5)));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A connection shared between channels would share its backoff too: one caller's retries delay
  // another's.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

void SetTimeout(grpc::ClientContext& context, base::Duration timeout) {
  context.set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                   gpr_time_from_nanos(base::Scaled(timeout).count(), GPR_TIMESPAN)));
}

}  // namespace onepiece::rpc
