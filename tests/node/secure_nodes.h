// Nodes of one cluster with certificates, for tests of what servers let them do.
#pragma once

#include <QTemporaryDir>
#include <memory>
#include <string>

#include "cluster/base/clock.h"
#include "cluster/identity/identity_folder.h"
#include "cluster/rpc/door.h"
#include "cluster/rpc/server.h"
#include "cluster/rpc/tls.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "tests/channel_with.h"

namespace onepiece::testing {

/// A CA, and the identities of nodes that it signed.
///
/// Threading: thread-confined.
class SecureNodes {
 public:
  explicit SecureNodes(const std::string& cluster)
      : cluster_(cluster),
        authority_(Must(identity::Authority::Create(cluster, base::SystemClock().WallNow()))),
        door_(cluster, base::SystemClock()) {}

  [[nodiscard]] rpc::Door& door() { return door_; }
  /// Options of a server that is node `id` and asks door() about each call.
  rpc::ServerOptions ServerOf(const std::string& id, identity::Role role) {
    return {.credentials = Must(rpc::MakeServerCredentials({.folder = FolderOf(id, role)},
                                                           rpc::Clients::kAlsoWithoutCertificate,
                                                           base::SystemClock())),
            .door = &door_};
  }
  /// A new connection of node `id`.
  std::shared_ptr<grpc::Channel> ChannelOf(const std::string& id, identity::Role role,
                                           const std::string& address) {
    return ChannelWith(address, Must(rpc::MakeChannelCredentials({.folder = FolderOf(id, role)},
                                                                 base::SystemClock())));
  }

 private:
  template <typename T>
  static T Must(absl::StatusOr<T> made) {
    if (!made.ok()) qFatal("%s", made.status().ToString().c_str());
    return *std::move(made);
  }
  std::string FolderOf(const std::string& id, identity::Role role) {
    const std::string folder = temp_.filePath(QString::fromStdString(id)).toStdString();
    Must(identity::MakeIdentity(
        folder, identity::kNodeName,
        identity::NodeSubject{.cluster = cluster_, .id = id, .roles = {role}}, authority_,
        base::SystemClock().WallNow()));
    return folder;
  }

  const std::string cluster_;
  const QTemporaryDir temp_;
  const identity::Authority authority_;
  rpc::Door door_;
};

}  // namespace onepiece::testing
