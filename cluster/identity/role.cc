#include "cluster/identity/role.h"

#include "cluster/identity/words.h"

namespace onepiece::identity {
namespace {

constexpr std::string_view kRoleNames[] = {"nodemanager", "proxy",   "instance",
                                           "database",    "gateway", "agent"};
constexpr Words kRoleWords{.kind = "role", .reason = "BAD_ROLE", .words = kRoleNames};

}  // namespace

std::string WordOf(Role role) { return std::string(kRoleNames[static_cast<std::size_t>(role)]); }

std::vector<std::string> WordsOf(RoleSet roles) { return WordsOf(kRoleWords, roles); }

std::string FormatRoles(RoleSet roles) { return absl::StrJoin(WordsOf(roles), ","); }

absl::StatusOr<RoleSet> ParseRoles(std::string_view text) {
  return ParseWords<Role>(kRoleWords, text);
}

absl::StatusOr<Role> ParseRole(std::string_view word) { return ParseWord<Role>(kRoleWords, word); }

}  // namespace onepiece::identity
