#include "cluster/rpc/channel.h"

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/rpc/mutexes.h"
#include "cluster/rpc/server.h"
#include "cluster/rpc/tls.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"

namespace onepiece::rpc {
namespace {

int Ms(base::Duration duration) {
  return static_cast<int>(duration / std::chrono::milliseconds(1));
}

/// A process is one node or one principal, so it has one set of credentials.
struct Used {
  base::Mutex mutex;
  std::shared_ptr<grpc::ChannelCredentials> credentials ABSL_GUARDED_BY(mutex);
};

Used& TheUsed() {
  static auto* const used = new Used;  // Never destroyed: threads make channels until the end.
  return *used;
}

std::shared_ptr<grpc::ChannelCredentials> CredentialsInUse() {
  Used& used = TheUsed();
  const base::MutexLock lock(used.mutex);
  return used.credentials;
}

}  // namespace

void UseCredentials(std::shared_ptr<grpc::ChannelCredentials> credentials) {
  Used& used = TheUsed();
  const base::MutexLock lock(used.mutex);
  used.credentials = std::move(credentials);
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const ChannelTiming& timing,
                                           const std::string& user_agent) {
  IgnoreMutexOrder();
  grpc::ChannelArguments arguments;
  if (!user_agent.empty()) arguments.SetUserAgentPrefix(user_agent);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, Ms(timing.backoff_min));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, Ms(timing.backoff_max));
  // Despite its name this is no backoff. It is the time that one attempt to connect may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, Ms(base::Scaled(timing.connect)));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Ms(base::Scaled(timing.keepalive)));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Ms(base::Scaled(timing.keepalive_timeout)));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Channels that shared a connection would share its backoff too. The retries of one caller would
  // then delay another caller.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  std::shared_ptr<grpc::ChannelCredentials> credentials = CredentialsInUse();
  if (credentials == nullptr) {
    credentials = grpc::InsecureChannelCredentials();
  } else {
    SetTlsArguments(arguments);
  }
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

void SetTimeout(grpc::ClientContext& context, base::Duration timeout) {
  SetTimeLeft(context, base::Scaled(timeout));
}

void SetTimeLeft(grpc::ClientContext& context, base::Duration left) {
  context.set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(left.count(), GPR_TIMESPAN)));
}

}  // namespace onepiece::rpc
