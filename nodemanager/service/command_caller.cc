#include "nodemanager/service/command_caller.h"

#include "cluster/rpc/door.h"
#include "grpcpp/security/auth_context.h"
#include "grpcpp/server_context.h"

namespace onepiece::nodemanager {

rpc::Caller CallerOf(const rpc::Door* door, const grpc::ServerContextBase* context) {
  return context == nullptr ? rpc::Caller() : rpc::CallerOf(door, *context);
}

void SignCommand(const rpc::Door* door, const grpc::ServerContextBase* context,
                 v1::Command& command) {
  command.set_caller(CallerOf(door, context).name());
  if (context != nullptr) command.set_caller_address(context->peer());
}

std::string ShownCertificate(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> shown = context.auth_context();
  if (shown == nullptr || !shown->IsPeerAuthenticated()) return "";
  const auto pem = shown->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return pem.empty() ? "" : std::string(pem.front().data(), pem.front().size());
}

std::string ShownAuthorization(const grpc::ServerContextBase& context) {
  const auto token = context.client_metadata().find("authorization");
  if (token == context.client_metadata().end()) return "";
  return {token->second.data(), token->second.size()};
}

}  // namespace onepiece::nodemanager
