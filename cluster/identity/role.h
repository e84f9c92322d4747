// Roles: what a node of the cluster is. A node's certificate carries them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/identity/enum_set.h"

namespace onepiece::identity {

enum class Role : std::uint8_t { kNodeManager, kProxy, kInstance, kDatabase, kGateway, kAgent };
using RoleSet = EnumSet<Role>;

/// "nodemanager", as in the name of the program.
std::string WordOf(Role role);
/// The words of the set, in the order of the enum.
std::vector<std::string> WordsOf(RoleSet roles);
/// "nodemanager,proxy".
std::string FormatRoles(RoleSet roles);
/// Parses what FormatRoles() writes, in any order.
///
/// Errors: INVALID_ARGUMENT (BAD_ROLE: none, an unknown one, or one twice; the message lists the
/// roles that there are).
absl::StatusOr<RoleSet> ParseRoles(std::string_view text);
absl::StatusOr<Role> ParseRole(std::string_view word);

// All functions are thread-safe.

}  // namespace onepiece::identity
