#include "cluster/identity/subject.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_split.h"
#include "cluster/base/status.h"

namespace onepiece::identity {
namespace {

constexpr std::size_t kMaxClusterBytes = 64, kMaxNameBytes = 128, kMaxTenantBytes = 64;

absl::Status BadSubject(const std::string& message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_SUBJECT", message);
}

bool IsLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// Checks a name of 1 to `most` letters, digits and `others`.
absl::Status CheckName(const std::string& what, std::string_view name, std::size_t most,
                       std::string_view others) {
  const bool fits = !name.empty() && name.size() <= most && std::ranges::all_of(name, [&](char c) {
    return IsLetterOrDigit(c) || others.find(c) != std::string_view::npos;
  });
  // A name may become a file's name.
  if (fits && name != "." && name != "..") return absl::OkStatus();
  std::string listed;
  for (const char c : others) listed += std::string(", '") + c + "'";
  return BadSubject("a " + what + " has 1 to " + std::to_string(most) + " letters, digits" +
                    listed + ", not \"" + std::string(name.substr(0, most)) + "\"");
}

absl::StatusOr<std::string> Format(const NodeSubject& node) {
  ONEPIECE_RETURN_IF_ERROR(CheckClusterId(node.cluster));
  ONEPIECE_RETURN_IF_ERROR(CheckName("node id", node.id, kMaxNameBytes, "-_."));
  if (node.roles.empty()) return BadSubject("node " + node.id + " has no role");
  std::string uri = std::string(kUriScheme) + node.cluster + "/node/" + node.id;
  char before = '?';
  for (const std::string& role : WordsOf(node.roles)) {
    uri += before + ("role=" + role);
    before = '&';
  }
  return uri;
}

absl::StatusOr<std::string> Format(const PrincipalSubject& principal) {
  ONEPIECE_RETURN_IF_ERROR(CheckClusterId(principal.cluster));
  ONEPIECE_RETURN_IF_ERROR(CheckName("principal's name", principal.name, kMaxNameBytes, "-_.@"));
  ONEPIECE_RETURN_IF_ERROR(CheckName("tenant", principal.tenant, kMaxTenantBytes, "-_."));
  if (principal.scopes.empty()) return BadSubject("principal " + principal.name + " has no scope");
  std::string uri = std::string(kUriScheme) + principal.cluster + "/principal/" + principal.name +
                    "?tenant=" + principal.tenant;
  for (const std::string& scope : WordsOf(principal.scopes)) uri += "&scope=" + scope;
  return uri;
}

/// Takes `prefix` off the front of `text`. Returns false when it does not stand there.
bool Take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// Takes what stands before the next `end` off the front of `text`, and the `end` too.
std::string TakeUntil(std::string_view& text, char end) {
  const std::size_t at = std::min(text.find(end), text.size());
  std::string part(text.substr(0, at));
  text.remove_prefix(std::min(at + 1, text.size()));
  return part;
}

absl::StatusOr<Subject> ParseNode(std::string cluster, std::string_view rest) {
  NodeSubject node{.cluster = std::move(cluster), .id = TakeUntil(rest, '?'), .roles = {}};
  for (const auto& part : absl::StrSplit(base::AbslView(rest), '&')) {
    std::string_view word = base::View(part);
    if (!Take(word, "role=")) return BadSubject("role=ROLE stands behind a node's id");
    ONEPIECE_ASSIGN_OR_RETURN(const Role role, ParseRole(word));
    node.roles.Add(role);
  }
  return node;
}

absl::StatusOr<Subject> ParsePrincipal(std::string cluster, std::string_view rest) {
  PrincipalSubject principal{
      .cluster = std::move(cluster), .name = TakeUntil(rest, '?'), .tenant = {}, .scopes = {}};
  if (!Take(rest, "tenant=")) return BadSubject("tenant=T stands behind a principal's name");
  principal.tenant = TakeUntil(rest, '&');
  for (const auto& part : absl::StrSplit(base::AbslView(rest), '&')) {
    std::string_view word = base::View(part);
    if (!Take(word, "scope=")) return BadSubject("scope=SCOPE stands behind a principal's tenant");
    ONEPIECE_ASSIGN_OR_RETURN(const Scope scope, ParseScope(word));
    principal.scopes.Add(scope);
  }
  return principal;
}

absl::StatusOr<Subject> ParseKind(std::string_view rest) {
  std::string cluster = TakeUntil(rest, '/');
  const std::string kind = TakeUntil(rest, '/');
  if (kind == "node") return ParseNode(std::move(cluster), rest);
  if (kind == "principal") return ParsePrincipal(std::move(cluster), rest);
  return BadSubject("behind the cluster stands node/ or principal/");
}

}  // namespace

absl::Status CheckClusterId(std::string_view cluster) {
  return CheckName("cluster's id", cluster, kMaxClusterBytes, "-_");
}

absl::StatusOr<std::string> FormatSubject(const Subject& subject) {
  return std::visit([](const auto& one) { return Format(one); }, subject);
}

absl::StatusOr<Subject> ParseSubject(std::string_view uri) {
  if (uri.size() > kMaxSubjectBytes) {
    return BadSubject("a subject's URI has at most " + std::to_string(kMaxSubjectBytes) +
                      " bytes, not " + std::to_string(uri.size()));
  }
  std::string_view rest = uri;
  if (!Take(rest, kUriScheme))
    return BadSubject("a subject's URI begins with " + std::string(kUriScheme));
  ONEPIECE_ASSIGN_OR_RETURN(Subject subject, ParseKind(rest));
  ONEPIECE_ASSIGN_OR_RETURN(const std::string canonical, FormatSubject(subject));
  if (canonical != uri) return BadSubject("this subject is written " + canonical);
  return subject;
}

const std::string& ClusterOf(const Subject& subject) {
  return std::visit([](const auto& one) -> const std::string& { return one.cluster; }, subject);
}

std::string Describe(const Subject& subject) {
  if (const auto* node = std::get_if<NodeSubject>(&subject)) {
    return "node " + node->id + " (" + FormatRoles(node->roles) + ") of cluster " + node->cluster;
  }
  const auto& principal = std::get<PrincipalSubject>(subject);
  return "principal " + principal.name + " (" + FormatScopes(principal.scopes) + ") of tenant " +
         principal.tenant + " in cluster " + principal.cluster;
}

}  // namespace onepiece::identity
