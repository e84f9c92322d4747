// Who may call which method, as the methods' proto options say (proto/onepiece/v1/access.proto).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/rpc/caller.h"

namespace onepiece::rpc {

/// Who may call a method. A caller that fits one part may.
struct AccessRule {
  bool anybody = false;        ///< Also callers that showed nothing.
  bool authenticated = false;  ///< Every node and every principal.
  bool any_node = false;
  identity::RoleSet roles;
  identity::ScopeSet scopes;  ///< One of them is enough.
  bool is_stream = false;     ///< Of answers. It may stay under way for long.
};

/// Errors: UNAUTHENTICATED (NO_CREDENTIALS), PERMISSION_DENIED (WRONG_ROLE, MISSING_SCOPE, which
/// names what is missing).
absl::Status CheckAccess(const AccessRule& rule, const Caller& caller);

/// The rules of a server's methods.
///
/// Threading: thread-safe to read.
class AccessRules {
 public:
  /// Reads the options of all methods of `services` ("onepiece.v1.ProxyService"). The standard
  /// services have no options: health answers anybody, and reflection answers whoever is known.
  ///
  /// Errors: FAILED_PRECONDITION (NO_ACCESS_RULE: a method without the option, or of a service that
  /// nobody has decided about), INVALID_ARGUMENT (BAD_ROLE, BAD_SCOPE).
  static absl::StatusOr<AccessRules> Of(const std::vector<std::string>& services);

  /// `path` is "/onepiece.v1.Service/Method". Null when there is no such method.
  [[nodiscard]] const AccessRule* Find(std::string_view path) const;

 private:
  std::map<std::string, AccessRule, std::less<>> rules_;
};

}  // namespace onepiece::rpc
