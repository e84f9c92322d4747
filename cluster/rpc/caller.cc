#include "cluster/rpc/caller.h"

#include "cluster/base/status.h"

namespace onepiece::rpc {
namespace {

const std::string& DefaultTenant() {
  static const std::string tenant(identity::kDefaultTenant);
  return tenant;
}

const std::string& TenantOrDefault(const std::string& tenant) {
  return tenant.empty() ? DefaultTenant() : tenant;
}

}  // namespace

const identity::NodeSubject* Caller::node() const {
  return subject_ ? std::get_if<identity::NodeSubject>(&*subject_) : nullptr;
}

const identity::PrincipalSubject* Caller::principal() const {
  return subject_ ? std::get_if<identity::PrincipalSubject>(&*subject_) : nullptr;
}

bool Caller::Has(identity::Scope scope) const {
  if (insecure()) return true;
  return principal() != nullptr && identity::Allows(principal()->scopes, scope);
}

const std::string& Caller::tenant() const {
  return principal() != nullptr ? principal()->tenant : DefaultTenant();
}

bool Caller::MaySee(const std::string& tenant) const {
  return Has(identity::Scope::kRead) ||
         (principal() != nullptr && this->tenant() == TenantOrDefault(tenant));
}

bool Caller::MayChange(const std::string& tenant) const {
  return Has(identity::Scope::kOperate) ||
         (principal() != nullptr && this->tenant() == TenantOrDefault(tenant));
}

std::string Caller::name() const {
  if (node() != nullptr) return "node/" + node()->id;
  if (principal() != nullptr) return "principal/" + principal()->name;
  return insecure() ? "insecure" : "nobody";
}

absl::Status Caller::CheckNode(const std::string& node_id,
                               std::optional<identity::Role> role) const {
  if (insecure()) return absl::OkStatus();
  if (node() == nullptr || node()->id != node_id) {
    return base::MakeError(absl::StatusCode::kPermissionDenied, "FOREIGN_NODE",
                           name() + " speaks for node '" + node_id + "'");
  }
  if (role && !node()->roles.Has(*role)) {
    return base::MakeError(absl::StatusCode::kPermissionDenied, "WRONG_ROLE",
                           "the certificate of node '" + node_id + "' is for role " +
                               identity::FormatRoles(node()->roles) + ", not " +
                               identity::WordOf(*role));
  }
  return absl::OkStatus();
}

}  // namespace onepiece::rpc
