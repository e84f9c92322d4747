// The identity of a service program: what its connections show, and who judges those that come.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "onepiece/v1/config.pb.h"

namespace grpc {
class ServerCredentials;
}
namespace onepiece::rpc {
class Door;
}

namespace onepiece::service {

/// Both null: the node is insecure.
struct Secured {
  std::shared_ptr<grpc::ServerCredentials> server;
  std::shared_ptr<rpc::Door> door;
};

/// Reads the node's identity and makes the process use it: all channels from now on show the node's
/// certificate. An insecure node's show nothing, which is logged.
///
/// Blocking: reads three files.
/// Errors: INVALID_ARGUMENT (BAD_CONFIG), which says what is wrong with the identity and how to get
/// one; also when the certificate is another node's, or of another role.
absl::StatusOr<Secured> Secure(const v1::NodeConfig& node, const std::string& role);

}  // namespace onepiece::service
