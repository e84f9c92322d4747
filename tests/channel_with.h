// A channel of a test that calls as several callers, or that shows what it should not.
#pragma once

#include <memory>
#include <string>

#include "cluster/rpc/tls.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace onepiece::testing {

/// Makes a channel with a connection of its own that shows these credentials, whatever the process
/// shows elsewhere (rpc::UseCredentials).
inline std::shared_ptr<grpc::Channel> ChannelWith(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  rpc::SetTlsArguments(arguments);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

}  // namespace onepiece::testing
