// Scopes: what a principal (a person or a program) may do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/identity/enum_set.h"

namespace onepiece::identity {

enum class Scope : std::uint8_t {
  kSubmit,     ///< Submit jobs.
  kReadOwn,    ///< See the jobs of the own tenant, fetch and acknowledge their results.
  kRead,       ///< See the jobs of all tenants, the cluster and its configuration.
  kCancelOwn,  ///< Cancel and delete jobs of the own tenant.
  kOperate,    ///< Change the cluster: configuration, plans, drains, any tenant's jobs.
  kAdmin,      ///< Everything, tokens and certificates too.
};
using ScopeSet = EnumSet<Scope>;

/// Returns `granted` and all that it implies:
///
///   admin    every scope
///   operate  read, read-own, cancel-own
///   read     read-own
///
/// `operate` does not imply `submit`: who runs a cluster does not spend a tenant's quota. `submit`
/// implies nothing: a program may submit jobs whose results another one reads.
[[nodiscard]] ScopeSet WithImplied(ScopeSet granted);

/// Says whether who was granted `granted` may do what needs `needed`.
[[nodiscard]] inline bool Allows(ScopeSet granted, Scope needed) {
  return WithImplied(granted).Has(needed);
}

/// "read-own".
std::string WordOf(Scope scope);
/// The words of the set, in the order of the enum. What is implied is not added.
std::vector<std::string> WordsOf(ScopeSet scopes);
/// "submit,read-own".
std::string FormatScopes(ScopeSet scopes);
/// Parses what FormatScopes() writes, in any order.
///
/// Errors: INVALID_ARGUMENT (BAD_SCOPE: none, an unknown one, or one twice; the message lists the
/// scopes that there are).
absl::StatusOr<ScopeSet> ParseScopes(std::string_view text);
absl::StatusOr<Scope> ParseScope(std::string_view word);

// All functions are thread-safe.

}  // namespace onepiece::identity
