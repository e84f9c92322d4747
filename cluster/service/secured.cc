#include "cluster/service/secured.h"

#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "cluster/base/clock.h"
#include "cluster/identity/identity_folder.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/door.h"
#include "cluster/rpc/tls.h"
#include "cluster/service/program.h"

namespace onepiece::service {
namespace {

absl::Status BadIdentity(const v1::NodeConfig& node, const absl::Status& why) {
  return BadConfig(absl::StrCat("identity ", node.identity(), ": ", base::Message(why),
                                " (`onepiece join` and `onepiece cert create-node` make one; "
                                "--insecure is for measuring on loopback addresses)"));
}

absl::Status CheckOwn(const v1::NodeConfig& node, const std::string& role,
                      const identity::Subject& subject) {
  ONEPIECE_ASSIGN_OR_RETURN(const identity::Role own, identity::ParseRole(role));
  ONEPIECE_RETURN_IF_ERROR(identity::CheckRole(subject, {own}));
  const auto& named = std::get<identity::NodeSubject>(subject);
  if (named.id == node.node_id()) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kPermissionDenied, "FOREIGN_NODE",
                         absl::StrCat("the certificate is that of node '", named.id,
                                      "', and this is '", node.node_id(), "'"));
}

}  // namespace

absl::StatusOr<Secured> Secure(const v1::NodeConfig& node, const std::string& role) {
  if (node.insecure()) {
    spdlog::warn(
        "op=secure detail=\"insecure: no TLS, and everybody on this host may do everything\"");
    return Secured{};
  }
  const base::Clock& clock = base::SystemClock();
  const absl::StatusOr<identity::Identity> own =
      identity::LoadIdentity(node.identity(), identity::kNodeName, clock.WallNow());
  if (!own.ok()) return BadIdentity(node, own.status());
  if (const absl::Status status = CheckOwn(node, role, own->subject); !status.ok())
    return BadIdentity(node, status);
  const rpc::TlsOptions options{
      .folder = node.identity(), .name = identity::kNodeName, .roles = {}};
  const auto channels = rpc::MakeChannelCredentials(options, clock);
  if (!channels.ok()) return BadIdentity(node, channels.status());
  const auto server =
      rpc::MakeServerCredentials(options, rpc::Clients::kAlsoWithoutCertificate, clock);
  if (!server.ok()) return BadIdentity(node, server.status());
  rpc::UseCredentials(*channels);
  return Secured{.server = *server,
                 .door = std::make_shared<rpc::Door>(identity::ClusterOf(own->subject), clock)};
}

}  // namespace onepiece::service
