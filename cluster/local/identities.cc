#include "cluster/local/identities.h"

#include <filesystem>

#include "cluster/base/status.h"
#include "cluster/contexts/credentials.h"
#include "cluster/identity/authority.h"
#include "cluster/identity/identity_folder.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/grpc_log.h"
#include "cluster/rpc/tls.h"

namespace onepiece::local {
namespace {

namespace fs = std::filesystem;

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

/// Keeps a file that is replaced under another name.
absl::Status SetAside(const std::string& path) {
  std::error_code error;
  fs::rename(path, path + ".replaced", error);
  if (!error) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "CANNOT_WRITE",
                         path + ": cannot rename it: " + error.message());
}

absl::StatusOr<identity::Authority> EnsureAuthority(const std::string& folder,
                                                    const std::string& cluster,
                                                    base::WallTime now) {
  if (Exists(folder + "/ca.key")) {
    absl::StatusOr<identity::Authority> present = identity::LoadAuthority(folder);
    if (base::GetReason(present.status()).reason != "KEY_MISMATCH") return present;
    // The last run changed to another CA, whose key was in its state alone. So this run has a CA of
    // its own.
    for (const char* file : {"/ca.key", "/ca.pem"})
      ONEPIECE_RETURN_IF_ERROR(SetAside(folder + file));
  }
  ONEPIECE_ASSIGN_OR_RETURN(identity::Authority authority,
                            identity::Authority::Create(cluster, now));
  ONEPIECE_RETURN_IF_ERROR(identity::SaveAuthority(folder, authority));
  return authority;
}

/// Whether the identity is there and good for a while. Files that others may read, and files that
/// are no identity, are errors: nothing is replaced that people may want to look at.
absl::StatusOr<bool> IsGood(const std::string& folder, const std::string& name,
                            const identity::Subject& subject, const identity::Authority& authority,
                            base::WallTime now) {
  if (!Exists(identity::FilesOf(folder, name).certificate)) return false;
  const absl::StatusOr<identity::Identity> own = identity::LoadIdentity(folder, name, now);
  if (own.ok()) {
    // Nodes of the last run may have followed a rotation, and that run's state is gone.
    const bool same_ca = own->authorities.ToPem() == authority.certificate().ToPem();
    return same_ca && own->subject == subject && now < own->certificate.RenewalTime();
  }
  // A certificate that has ended, or that another CA signed, is replaced. So are files that were
  // written in part.
  if (absl::IsUnauthenticated(own.status()) ||
      base::GetReason(own.status()).reason == "KEY_MISMATCH") {
    return false;
  }
  return own.status();
}

absl::Status EnsureIdentity(const std::string& folder, const std::string& name,
                            const identity::Subject& subject, const identity::Authority& authority,
                            base::WallTime now) {
  ONEPIECE_ASSIGN_OR_RETURN(const bool good, IsGood(folder, name, subject, authority, now));
  if (good) return absl::OkStatus();
  const identity::IssueOptions options{.hosts = {"localhost", "127.0.0.1", "::1"}};
  return identity::MakeIdentity(folder, name, subject, authority, now, options).status();
}

absl::StatusOr<identity::Subject> SubjectOf(const NodePlan& node, const std::string& cluster) {
  ONEPIECE_ASSIGN_OR_RETURN(const identity::Role role, identity::ParseRole(node.role));
  return identity::NodeSubject{.cluster = cluster, .id = node.node_id, .roles = {role}};
}

}  // namespace

absl::Status PrepareIdentities(const ClusterPlan& plan, const DataDir& dir, base::WallTime now) {
  ONEPIECE_ASSIGN_OR_RETURN(const identity::Authority authority,
                            EnsureAuthority(dir.Identity(), plan.cluster_id, now));
  ONEPIECE_RETURN_IF_ERROR(
      EnsureIdentity(dir.Identity(), identity::kAdminName,
                     identity::PrincipalSubject{.cluster = plan.cluster_id,
                                                .name = identity::kAdminName,
                                                .tenant = identity::kDefaultTenant,
                                                .scopes = {identity::Scope::kAdmin}},
                     authority, now));
  for (const NodePlan& node : plan.nodes) {
    ONEPIECE_ASSIGN_OR_RETURN(const identity::Subject subject, SubjectOf(node, plan.cluster_id));
    const std::string& folder = node.node->identity();
    ONEPIECE_RETURN_IF_ERROR(EnsureIdentity(folder, identity::kNodeName, subject, authority, now));
    // It has none yet, or an earlier run's, of another CA.
    if (&node == &plan.nodes.front() && !identity::LoadAuthority(folder).ok())
      ONEPIECE_RETURN_IF_ERROR(identity::SaveAuthorityKey(folder, authority));
  }
  return absl::OkStatus();
}

void PrepareCalls() {
  rpc::RequireTls13();
  rpc::PollInBackground();
  rpc::SilenceGrpcLog();
}

absl::Status ShowIdentity(const std::string& folder) {
  if (folder.empty()) {
    rpc::UseCredentials(nullptr);
    return absl::OkStatus();
  }
  ONEPIECE_ASSIGN_OR_RETURN(const contexts::Credentials own, contexts::FindIdentity(folder));
  return contexts::Present(own);
}

}  // namespace onepiece::local
