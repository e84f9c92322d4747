#include "cluster/rpc/access_rules.h"

#include <google/protobuf/descriptor.h>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "onepiece/v1/access.pb.h"

namespace onepiece::rpc {
namespace {

absl::Status NoRule(const std::string& what) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "NO_ACCESS_RULE",
                         what + " says nowhere who may call it");
}

absl::StatusOr<AccessRule> RuleOf(const v1::Access& access) {
  AccessRule rule{.anybody = access.anybody(), .any_node = access.nodes() == "any"};
  if (!access.nodes().empty() && !rule.any_node) {
    ONEPIECE_ASSIGN_OR_RETURN(rule.roles, identity::ParseRoles(access.nodes()));
  }
  if (!access.scopes().empty()) {
    ONEPIECE_ASSIGN_OR_RETURN(rule.scopes, identity::ParseScopes(access.scopes()));
  }
  return rule;
}

bool HasOneOf(const Caller& caller, identity::ScopeSet scopes) {
  return caller.principal() != nullptr &&
         identity::WithImplied(caller.principal()->scopes).HasAnyOf(scopes);
}

/// The methods of gRPC's own services, which carry no option of ours.
const std::map<std::string, std::map<std::string, AccessRule>>& StandardServices() {
  static const std::map<std::string, std::map<std::string, AccessRule>> services = {
      {"grpc.health.v1.Health", {{"Check", {.anybody = true}}, {"Watch", {.anybody = true}}}},
      {"grpc.reflection.v1alpha.ServerReflection",
       {{"ServerReflectionInfo", {.authenticated = true}}}}};
  return services;
}

}  // namespace

absl::Status CheckAccess(const AccessRule& rule, const Caller& caller) {
  if (rule.anybody || caller.insecure()) return absl::OkStatus();
  if (caller.shown() == Shown::kNothing) {
    return base::MakeError(absl::StatusCode::kUnauthenticated, "NO_CREDENTIALS",
                           "this call needs a client certificate or a token");
  }
  if (rule.authenticated) return absl::OkStatus();
  if (const identity::NodeSubject* node = caller.node(); node != nullptr) {
    if (rule.any_node || node->roles.HasAnyOf(rule.roles)) return absl::OkStatus();
    return base::MakeError(absl::StatusCode::kPermissionDenied, "WRONG_ROLE",
                           absl::StrCat(caller.name(), " (", identity::FormatRoles(node->roles),
                                        ") may not call this"));
  }
  if (HasOneOf(caller, rule.scopes)) return absl::OkStatus();
  if (rule.scopes.empty()) {
    return base::MakeError(absl::StatusCode::kPermissionDenied, "NODES_ONLY",
                           "only nodes of the cluster call this");
  }
  const std::string needed = identity::FormatScopes(rule.scopes);
  return base::MakeError(absl::StatusCode::kPermissionDenied, "MISSING_SCOPE",
                         absl::StrCat(caller.name(), " lacks scope ", needed), {{"scope", needed}});
}

absl::StatusOr<AccessRules> AccessRules::Of(const std::vector<std::string>& services) {
  AccessRules rules;
  for (const std::string& name : services) {
    if (const auto known = StandardServices().find(name); known != StandardServices().end()) {
      for (const auto& [method, rule] : known->second)
        rules.rules_.emplace(absl::StrCat("/", name, "/", method), rule);
      continue;
    }
    const auto* service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    if (service == nullptr) return NoRule("service " + name);
    for (int i = 0; i < service->method_count(); ++i) {
      const google::protobuf::MethodDescriptor& method = *service->method(i);
      if (!method.options().HasExtension(v1::access)) return NoRule(method.full_name());
      ONEPIECE_ASSIGN_OR_RETURN(AccessRule rule, RuleOf(method.options().GetExtension(v1::access)));
      rule.is_stream = method.server_streaming();
      rules.rules_.emplace(absl::StrCat("/", name, "/", method.name()), rule);
    }
  }
  return rules;
}

const AccessRule* AccessRules::Find(std::string_view path) const {
  const auto found = rules_.find(path);
  return found == rules_.end() ? nullptr : &found->second;
}

}  // namespace onepiece::rpc
