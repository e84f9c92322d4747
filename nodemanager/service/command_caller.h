// Who made a command, for the audit log. Private to this folder.
#pragma once

#include <cstdint>
#include <string>

#include "cluster/rpc/caller.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace grpc {
class ServerContextBase;
}
namespace onepiece::rpc {
class Door;
}

namespace onepiece::nodemanager {

/// The feature level since which programs know the callers of commands.
inline constexpr std::uint32_t kCallerLevel = 5;

/// Who makes the call of `context`. A null door (the server is insecure) and a null context (the
/// call comes from this process) are insecure callers.
rpc::Caller CallerOf(const rpc::Door* door, const grpc::ServerContextBase* context);

/// Writes into the command who makes the call, and from which address. For commands of people: the
/// audit log then has an entry for each, refused ones too. Controller leaves this out of commands
/// below feature level 5.
void SignCommand(const rpc::Door* door, const grpc::ServerContextBase* context,
                 v1::Command& command);

/// The certificate that TLS verified, as PEM. Empty: the peer showed none.
std::string ShownCertificate(const grpc::ServerContextBase& context);
/// The call's "authorization". Empty: it brought none.
std::string ShownAuthorization(const grpc::ServerContextBase& context);

// All functions are thread-safe.

}  // namespace onepiece::nodemanager
