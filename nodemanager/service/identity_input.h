// What requests about identities are checked for, and how the CA is described. Private to this
// folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/identity/authority.h"
#include "cluster/identity/role.h"
#include "nodemanager/service/identity_reports.h"
#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/identity.pb.h"

namespace onepiece::nodemanager {

inline constexpr base::Duration kBearerTokenLife = identity::kDay;
inline constexpr std::uint32_t kMaxJoinTokenUses = 10'000;

/// Errors: INVALID_ARGUMENT (`reason`, with metadata "field").
absl::Status BadField(const char* reason, const std::string& field, const std::string& message);
/// A field that only names something.
///
/// Errors: INVALID_ARGUMENT (TEXT_TOO_LONG).
absl::Status CheckLength(const std::string& field, const std::string& text);
/// Errors: INVALID_ARGUMENT (BAD_SUBJECT).
absl::Status CheckTenantName(const std::string& name);
/// A limit of 0 is none.
///
/// Errors: INVALID_ARGUMENT (BAD_QUOTA: negative, or not a number).
absl::Status CheckQuota(const v1::Quota& quota);
/// The life of a token; `usual` for 0.
///
/// Errors: INVALID_ARGUMENT (BAD_LIFE: negative, or more than identity::kMaxCertificateLife).
absl::StatusOr<base::Duration> LifeOf(std::int64_t life_s, base::Duration usual);
/// The role in certificates. Nothing for a role that has none.
std::optional<identity::Role> IdentityRole(v1::Role role);

/// The CA that signs, the rotation, and which nodes hold up its next step. During an overlap the
/// next CA signs already, so both fingerprints are its own.
///
/// Errors: FAILED_PRECONDITION (NO_AUTHORITY).
absl::StatusOr<v1::AuthorityStatus> DescribeAuthority(const StateMachine& state,
                                                      const IdentityReports& reports);

// All functions are thread-safe.

}  // namespace onepiece::nodemanager
