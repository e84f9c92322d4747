// What people and programs show to a cluster: a client certificate, or a bearer token.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/identity/identity_folder.h"

namespace onepiece::contexts {

/// Where the credentials are: an identity (cluster/identity/identity_folder.h), or the CAs and a
/// token. Paths, never the secrets themselves. A value.
struct Credentials {
  /// The folder of an identity. Empty: there is a token instead.
  std::string folder;
  std::string name = identity::kAdminName;  ///< Of the identity's files: NAME.key, NAME.pem.
  /// The CAs whose servers are believed (PEM), and the file that has the token.
  std::string authorities, token_file;

  bool operator==(const Credentials&) const = default;
};

/// Returns the identity in a folder that people named without saying which: "admin", or else the
/// only one there is beside the CA's files.
///
/// Blocking: reads the folder.
/// Errors: NOT_FOUND (NO_IDENTITY), FAILED_PRECONDITION (SEVERAL_IDENTITIES, which lists them).
absl::StatusOr<Credentials> FindIdentity(const std::string& folder);

/// Makes this process show the credentials: every later channel (rpc::MakeChannel) uses them. A
/// renewed certificate is taken up without another call; a new token is not.
///
/// Threading: thread-safe. A program calls it before its first channel, and the console when it
/// goes to another cluster.
/// Blocking: reads up to three files.
/// Errors: those of rpc::MakeChannelCredentials() and of rpc::MakeTokenCredentials(), with the file
/// in the message; NOT_FOUND (NO_FILE).
absl::Status Present(const Credentials& credentials);

/// Reads a token from a file with mode 0600. White space around it does not count.
///
/// Errors: those of identity::ReadSecretFile() and identity::BearerToken::Parse(). The message
/// never has the file's text.
absl::StatusOr<std::string> ReadToken(const std::string& path);

/// Writes a token that somebody has typed to a file of its own, with mode 0600 in a closed folder.
/// White space around it does not count.
///
/// Blocking: waits for the disk.
/// Errors: those of identity::BearerToken::Parse(), identity::EnsureSecretFolder() and
/// identity::WriteSecretFile(). The message never has the text.
absl::Status KeepToken(const std::string& path, std::string_view text);

}  // namespace onepiece::contexts
