// The clusters that the console can follow, and how it logs in there: those that it keeps itself,
// and the contexts of `onepiece context`.
//
// Threading: thread-safe, but for LogIn(), which is for the GUI thread.
#pragma once

#include <QString>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/contexts/credentials.h"
#include "cluster/session/session.h"

namespace onepiece::gui {

/// A cluster and a login. A value.
struct Connection {
  session::ClusterAddress cluster;
  /// Neither folder nor token file: the cluster is insecure. No name of an identity: the one that
  /// contexts::FindIdentity() finds.
  contexts::Credentials credentials;
  /// `onepiece context` keeps it, and the console only shows it.
  bool from_context = false;
};

/// The identity in a folder. An empty `folder`: none.
contexts::Credentials IdentityIn(const std::string& folder);
/// "certificate", "token", "not secure"
QString LoginName(const contexts::Credentials& credentials);

/// Makes this process show the credentials to clusters from now on.
///
/// Blocking: reads up to three files.
/// Errors: those of local::ShowIdentity() and contexts::Present().
absl::Status LogIn(const contexts::Credentials& credentials);

/// The contexts of a file (contexts::Load()), in the order of their names. An empty path has none.
///
/// Blocking: reads a file.
/// Errors: those of contexts::Load().
absl::StatusOr<std::vector<Connection>> ContextConnections(const std::string& contexts_path);
/// The context of a name; an empty one: the current context.
///
/// Blocking: reads a file.
/// Errors: those of contexts::Load() and contexts::Contexts::Find().
absl::StatusOr<Connection> FindContext(const std::string& contexts_path, const std::string& name);

/// A new file for a token that somebody pastes, beside the contexts' file.
std::string NewTokenFile(const std::string& contexts_path);
/// Deletes the token's file of a connection that the console forgets, when NewTokenFile() gave it.
void ForgetToken(const std::string& contexts_path, const Connection& connection);

}  // namespace onepiece::gui
