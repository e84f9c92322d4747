// TLS for gRPC: credentials of servers and channels, made from the files of an identity
// (cluster/identity/identity_folder.h).
//
// Every connection is TLS 1.3, and both ends check the other: one of the CAs in ca.pem signed its
// certificate, and the onepiece:// URI in it names this cluster and an allowed role. The host's
// name does not count, so certificates need no addresses.
//
// The files are read again while the program runs, so a renewed certificate and a bundle with one
// more CA need no restart. New connections use them; those that are open go on.
//
//   rpc::RequireTls13();  // First of all in main().
//   auto credentials = rpc::MakeServerCredentials({.folder = folder}, rpc::Clients::kNodes, clock);
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/identity/identity_folder.h"
#include "cluster/identity/role.h"
#include "cluster/identity/subject.h"

namespace grpc {
class AuthContext;
class ChannelArguments;
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace onepiece::rpc {

struct TlsOptions {
  std::string folder;
  std::string name = identity::kNodeName;  ///< Of the identity's files: NAME.key, NAME.pem.
  /// The roles of which a peer that is a node has one; none: any node.
  identity::RoleSet roles;
  /// How often the files are looked at. Whole seconds, at least one.
  std::chrono::seconds reload = std::chrono::seconds(1);
};

/// Which clients a server lets in.
enum class Clients {
  kNodes,                   ///< Nodes of the cluster.
  kNodesAndPrincipals,      ///< People and programs with a certificate too.
  kAlsoWithoutCertificate,  ///< Those without a certificate too: their calls bring a token.
};

/// Makes gRPC refuse all versions of TLS before 1.3 in this process, for servers and clients. The
/// functions below call it; a program calls it before it starts threads, because it changes the
/// environment.
///
/// gRPC 1.51 has no setting for this. It gives TLS 1.2 a list of ciphers from the environment; one
/// that needs a key that both sides know beforehand leaves nothing to agree on. TLS 1.3 has a list
/// of its own.
void RequireTls13();

/// Makes gRPC look after this process's connections ten times a second, also while no call waits
/// for an answer. A server's threads do that anyway. Elsewhere gRPC does it once in 5 s, and a
/// channel whose last attempt failed fails calls at once: a program that only asks again and again
/// would never come to the end of a handshake, which takes several looks. A program calls it before
/// it starts threads, because it changes the environment.
void PollInBackground();

/// Makes the credentials of a server. The files must be good now; later they may be replaced, by
/// better ones of the same cluster.
///
/// Ownership: borrows the clock, which outlives the credentials.
/// Blocking: reads three files.
/// Errors: those of identity::LoadIdentity(), PERMISSION_DENIED (WRONG_ROLE: the identity is no
/// node's).
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsOptions& options, Clients clients, const base::Clock& clock);

/// Makes the credentials of channels to nodes of the cluster. A call to anybody else fails with
/// UNAVAILABLE. The channels take SetTlsArguments() too.
///
/// Ownership: borrows the clock, which outlives the credentials.
/// Blocking: reads three files.
/// Errors: those of identity::LoadIdentity().
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const TlsOptions& options, const base::Clock& clock);

/// Makes the credentials of channels for a principal with a bearer token and no certificate. The
/// nodes are checked against the CAs in the file `authorities`, which is read again while the
/// program runs, and must be of `cluster` unless that is empty.
///
/// Ownership: borrows the clock, which outlives the credentials.
/// Blocking: reads a file.
/// Errors: those of identity::ReadTrustFile() and identity::BearerToken::Parse().
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeTokenCredentials(
    const std::string& authorities, const std::string& token, const std::string& cluster,
    const base::Clock& clock);

/// Sets what a channel with these credentials needs: it names identity::kNodeDnsName in its SNI.
/// With an address there, gRPC's server would log an error for each connection.
void SetTlsArguments(grpc::ChannelArguments& arguments);

/// Returns who is at the other end of a call over these credentials.
///
/// Errors: UNAUTHENTICATED (NO_CERTIFICATE: the peer has none, or the connection is not TLS;
/// NO_SUBJECT).
absl::StatusOr<identity::Subject> PeerOf(const grpc::AuthContext& context);

// All functions but RequireTls13() are thread-safe.

}  // namespace onepiece::rpc
