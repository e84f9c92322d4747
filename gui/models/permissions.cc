#include "gui/models/permissions.h"

#include <QStringList>
#include <string>
#include <utility>

#include "cluster/base/check.h"
#include "cluster/identity/scope.h"
#include "cluster/identity/subject.h"
#include "cluster/rpc/access_rules.h"
#include "cluster/rpc/caller.h"
#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

const rpc::AccessRules& Rules() {
  static const rpc::AccessRules rules = [] {
    auto made =
        rpc::AccessRules::Of({"onepiece.v1.GenerationService", "onepiece.v1.ElasticityService",
                              "onepiece.v1.ConsensusService"});
    ONEPIECE_CHECK(made.ok());  // They are compiled in.
    return *std::move(made);
  }();
  return rules;
}

/// The caller as the server sees it. Words that a newer server has added are left out.
rpc::Caller CallerOf(const v1::WhoAmIResponse& me) {
  if (!IsSecure(me)) return {};
  identity::Subject subject;
  if (me.roles_size() > 0) {
    identity::NodeSubject node{.cluster = me.cluster_id(), .id = me.name(), .roles = {}};
    for (const std::string& word : me.roles()) {
      if (const auto role = identity::ParseRole(word); role.ok()) node.roles.Add(*role);
    }
    subject = std::move(node);
  } else {
    identity::PrincipalSubject principal{
        .cluster = me.cluster_id(), .name = me.name(), .tenant = me.tenant(), .scopes = {}};
    for (const std::string& word : me.scopes()) {
      if (const auto scope = identity::ParseScope(word); scope.ok()) principal.scopes.Add(*scope);
    }
    subject = std::move(principal);
  }
  return {me.shown() == "token" ? rpc::Shown::kToken : rpc::Shown::kCertificate, std::move(subject),
          base::WallTime::max()};
}

QString NameOf(const v1::WhoAmIResponse& me) { return SafeText(me.name(), 40); }

/// "submit, read-own"
QString ScopesOf(const v1::WhoAmIResponse& me) {
  QStringList scopes;
  for (const std::string& scope : me.scopes()) scopes << SafeText(scope, 20);
  return scopes.isEmpty() ? Tr("none") : scopes.join(QStringLiteral(", "));
}

}  // namespace

QString WhyForbidden(const v1::WhoAmIResponse& me, std::string_view method) {
  const rpc::AccessRule* rule = Rules().Find(method);
  ONEPIECE_CHECK(rule != nullptr);
  if (rpc::CheckAccess(*rule, CallerOf(me)).ok()) return {};
  QStringList needed;
  for (const std::string& scope : identity::WordsOf(rule->scopes)) {
    needed << QString::fromStdString(scope);
  }
  if (needed.isEmpty()) return Tr("Only nodes of the cluster may do this");
  return Tr("Needs the scope %1; %2 has %3").arg(needed.join(Tr(" or ")), NameOf(me), ScopesOf(me));
}

QString WhyNotTheirs(const v1::WhoAmIResponse& me, const std::string& tenant) {
  if (CallerOf(me).MayChange(tenant)) return {};
  return Tr("A job of the tenant %1 needs the scope operate; %2 of the tenant %3 has %4")
      .arg(SafeText(tenant.empty() ? identity::kDefaultTenant : tenant, 40), NameOf(me),
           SafeText(me.tenant(), 40), ScopesOf(me));
}

bool AreNodesHidden(const session::Snapshot& snapshot) {
  return snapshot.cluster.value != nullptr &&
         std::string_view(snapshot.cluster.error).starts_with("MISSING_SCOPE");
}

bool IsSecure(const v1::WhoAmIResponse& me) { return me.shown() != "insecure"; }

QString IdentityTitle(const v1::WhoAmIResponse& me) {
  if (!IsSecure(me)) return Tr("Not secure");
  return me.tenant().empty() ? NameOf(me)
                             : NameOf(me) + QStringLiteral(" · ") + SafeText(me.tenant(), 40);
}

QString IdentityText(const v1::WhoAmIResponse& me, std::int64_t now_ms) {
  if (!IsSecure(me)) {
    return Tr(
        "This cluster is not secure: nothing is encrypted, and whoever reaches its ports may "
        "do everything.");
  }
  QStringList lines = {Tr("Logged in as %1, by %2").arg(NameOf(me), SafeText(me.shown(), 40))};
  if (!me.tenant().empty()) lines << Tr("Tenant: %1").arg(SafeText(me.tenant(), 64));
  if (me.roles_size() > 0) {
    QStringList roles;
    for (const std::string& role : me.roles()) roles << SafeText(role, 20);
    lines << Tr("Roles of a node: %1").arg(roles.join(QStringLiteral(", ")));
  } else {
    lines << Tr("Scopes: %1").arg(ScopesOf(me));
  }
  if (me.expires_unix_ms() != 0)
    lines << Tr("Valid until %1").arg(FormatTime(me.expires_unix_ms(), now_ms));
  return lines.join(u'\n');
}

}  // namespace onepiece::gui
