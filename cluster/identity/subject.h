// Who a certificate speaks for, and the URI in its subject alternative name that says so:
//
//   onepiece://CLUSTER/node/ID?role=ROLE[&role=ROLE…]
//   onepiece://CLUSTER/principal/NAME?tenant=TENANT&scope=SCOPE[&scope=SCOPE…]
//
// There is one way to write each subject: roles and scopes stand in the order of their enums, no
// character is escaped, and nothing is left out. Whatever else is refused, so two texts that differ
// never mean the same subject.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "absl/status/statusor.h"
#include "cluster/identity/role.h"
#include "cluster/identity/scope.h"

namespace onepiece::identity {

/// Longer URIs are refused before they are looked at.
inline constexpr std::size_t kMaxSubjectBytes = 512;
/// Every URI of ours begins so.
inline constexpr std::string_view kUriScheme = "onepiece://";

/// The tenant of jobs that are older than tenants, of the first admin, and of whoever calls an
/// insecure cluster.
inline constexpr char kDefaultTenant[] = "default";

/// A process of the cluster.
struct NodeSubject {
  std::string cluster;  ///< 1 to 64 letters, digits, '-' and '_'.
  std::string id;       ///< 1 to 128 letters, digits, '-', '_' and '.', but not "." or "..".
  RoleSet roles;        ///< At least one.
  bool operator==(const NodeSubject&) const = default;
};

/// A person or a program.
struct PrincipalSubject {
  std::string cluster;  ///< As of a node.
  std::string name;     ///< 1 to 128 letters, digits, '-', '_', '.' and '@'.
  std::string tenant;   ///< 1 to 64 letters, digits, '-', '_' and '.'.
  ScopeSet scopes;      ///< At least one.
  bool operator==(const PrincipalSubject&) const = default;
};

using Subject = std::variant<NodeSubject, PrincipalSubject>;

/// Returns the URI.
///
/// Errors: INVALID_ARGUMENT (BAD_SUBJECT, which names the part that breaks the rules above).
absl::StatusOr<std::string> FormatSubject(const Subject& subject);
/// Parses a URI. `FormatSubject(*ParseSubject(uri)) == uri` for every one that is accepted.
///
/// Errors: INVALID_ARGUMENT (BAD_SUBJECT, BAD_ROLE, BAD_SCOPE).
absl::StatusOr<Subject> ParseSubject(std::string_view uri);

/// Checks a cluster's id.
///
/// Errors: INVALID_ARGUMENT (BAD_SUBJECT).
absl::Status CheckClusterId(std::string_view cluster);

const std::string& ClusterOf(const Subject& subject);
/// For people: "node nm-1 (nodemanager) of cluster pirates", "principal ci (submit) of tenant t in
/// cluster pirates".
std::string Describe(const Subject& subject);

// All functions are thread-safe.

}  // namespace onepiece::identity
