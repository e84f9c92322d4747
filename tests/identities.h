// Identities for programs under test: a CA of the test's own, and certificates that it has signed.
#pragma once

#include <string>

#include "cluster/base/check.h"
#include "cluster/base/clock.h"
#include "cluster/identity/authority.h"
#include "cluster/identity/identity_folder.h"

namespace onepiece::testing {

/// A CA whose certificates are valid from `age` ago. With an age, the clocks of a test may jump
/// back by as much.
class TestAuthority {
 public:
  explicit TestAuthority(const std::string& cluster, base::Duration age = base::Duration::zero(),
                         base::Duration life = identity::kCertificateLife)
      : cluster_(cluster),
        begin_(base::SystemClock().WallNow() - age),
        life_(life),
        authority_(*identity::Authority::Create(cluster, begin_)) {}

  [[nodiscard]] const identity::Authority& authority() const { return authority_; }

  /// Writes node.key, node.pem and ca.pem into `folder`.
  void SaveNode(const std::string& folder, const std::string& id, identity::RoleSet roles) const {
    Save(folder, identity::kNodeName,
         identity::NodeSubject{.cluster = cluster_, .id = id, .roles = roles});
  }
  /// Writes NAME.key, NAME.pem and ca.pem into `folder`.
  void SavePrincipal(const std::string& folder, const std::string& name, identity::ScopeSet scopes,
                     const std::string& tenant = identity::kDefaultTenant) const {
    Save(folder, name,
         identity::PrincipalSubject{
             .cluster = cluster_, .name = name, .tenant = tenant, .scopes = scopes});
  }
  void Save(const std::string& folder, const std::string& name,
            const identity::Subject& subject) const {
    ONEPIECE_CHECK(
        identity::MakeIdentity(folder, name, subject, authority_, begin_, {.life = life_}).ok());
  }

 private:
  const std::string cluster_;
  const base::WallTime begin_;
  const base::Duration life_;
  const identity::Authority authority_;
};

}  // namespace onepiece::testing
