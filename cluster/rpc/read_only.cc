#include "cluster/rpc/read_only.h"

#include "cluster/rpc/status.h"

namespace onepiece::rpc {

grpc::Status RefuseReadOnly() {
  return ToGrpc(base::MakeError(
      absl::StatusCode::kPermissionDenied, "READ_ONLY",
      "this server was started with --read-only and changes nothing: ask a server of the cluster "
      "that was not, or start this one without it"));
}

}  // namespace onepiece::rpc
