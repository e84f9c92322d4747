// Subjects, times and certificates that the tests of identities share.
#pragma once

#include <string>

#include "cluster/base/clock.h"
#include "cluster/identity/authority.h"
#include "cluster/identity/subject.h"

namespace onepiece::identity::testing {

/// 2026-11-26T00:00:00Z.
inline constexpr base::WallTime kNow{std::chrono::seconds(1795651200)};

inline Subject Node(const std::string& cluster = "pirates", RoleSet roles = {Role::kProxy}) {
  return NodeSubject{.cluster = cluster, .id = "proxy-1", .roles = roles};
}

inline Subject Principal(const std::string& cluster = "pirates",
                         ScopeSet scopes = {Scope::kSubmit, Scope::kReadOwn}) {
  return PrincipalSubject{.cluster = cluster, .name = "ci", .tenant = "films", .scopes = scopes};
}

/// A certificate and its key.
struct Issued {
  PrivateKey key;
  Certificate certificate;
};

inline Issued Issue(const Authority& authority, const Subject& subject, base::WallTime now = kNow,
                    const IssueOptions& options = {}) {
  PrivateKey key = PrivateKey::Generate();
  Certificate certificate = *authority.Issue(SigningRequest::Make(key), subject, now, options);
  return {.key = std::move(key), .certificate = std::move(certificate)};
}

}  // namespace onepiece::identity::testing
