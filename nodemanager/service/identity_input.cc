#include "nodemanager/service/identity_input.h"

#include <chrono>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/identity/certificate.h"
#include "cluster/identity/subject.h"

namespace onepiece::nodemanager {
namespace {

constexpr std::size_t kMaxNameBytes = 128;

// NaN is no quota either.
bool IsLimit(double limit) { return std::isfinite(limit) && limit >= 0; }

}  // namespace

absl::Status BadField(const char* reason, const std::string& field, const std::string& message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, reason,
                         absl::StrCat(field, ": ", message), {{"field", field}});
}

absl::Status CheckLength(const std::string& field, const std::string& text) {
  if (text.size() <= kMaxNameBytes) return absl::OkStatus();
  return BadField("TEXT_TOO_LONG", field, absl::StrCat("at most ", kMaxNameBytes, " bytes"));
}

absl::Status CheckTenantName(const std::string& name) {
  return identity::FormatSubject(
             identity::PrincipalSubject{
                 .cluster = "c", .name = "p", .tenant = name, .scopes = {identity::Scope::kSubmit}})
      .status();
}

absl::Status CheckQuota(const v1::Quota& quota) {
  const char* field = quota.jobs_in_flight() < 0               ? "jobs_in_flight"
                      : !IsLimit(quota.jobs_per_s())           ? "jobs_per_s"
                      : !IsLimit(quota.worker_seconds_per_h()) ? "worker_seconds_per_h"
                      : quota.stored_bytes() < 0               ? "stored_bytes"
                                                               : nullptr;
  if (field == nullptr) return absl::OkStatus();
  return BadField("BAD_QUOTA", absl::StrCat("quota.", field), "not negative; 0 is no limit");
}

absl::StatusOr<base::Duration> LifeOf(std::int64_t life_s, base::Duration usual) {
  constexpr std::int64_t kMost = identity::kMaxCertificateLife / std::chrono::seconds(1);
  if (life_s == 0) return usual;
  if (life_s < 0 || life_s > kMost)
    return BadField("BAD_LIFE", "life_s", absl::StrCat("1 to ", kMost, ", not ", life_s));
  return std::chrono::seconds(life_s);
}

std::optional<identity::Role> IdentityRole(v1::Role role) {
  switch (role) {
    case v1::NODE_MANAGER:
      return identity::Role::kNodeManager;
    case v1::PROXY:
      return identity::Role::kProxy;
    case v1::INSTANCE:
      return identity::Role::kInstance;
    case v1::DATABASE:
      return identity::Role::kDatabase;
    case v1::GATEWAY:
      return identity::Role::kGateway;
    case v1::AGENT:
      return identity::Role::kAgent;
    default:
      return std::nullopt;
  }
}

absl::StatusOr<v1::AuthorityStatus> DescribeAuthority(const StateMachine& state,
                                                      const IdentityReports& reports) {
  const IdentityRecords& records = state.identity();
  if (records.authorities().empty()) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "NO_AUTHORITY",
                           "the cluster does not know the key of its CA");
  }
  ONEPIECE_ASSIGN_OR_RETURN(
      const identity::Certificate signing,
      identity::Certificate::FromPem(records.authorities().front().certificate()));
  v1::AuthorityStatus status;
  status.set_fingerprint(signing.Fingerprint());
  status.set_not_after_unix_ms(base::ToUnixMs(signing.not_after()));
  status.set_rotation(records.rotation());
  std::vector<std::string> waiting;
  if (records.rotation() == v1::AuthorityStatus::INTRODUCED) {
    ONEPIECE_ASSIGN_OR_RETURN(
        const identity::Certificate next,
        identity::Certificate::FromPem(records.authorities().back().certificate()));
    status.set_next_fingerprint(next.Fingerprint());
    waiting = reports.WithoutTable(state, records.epoch());
  } else if (records.rotation() == v1::AuthorityStatus::OVERLAP) {
    status.set_next_fingerprint(status.fingerprint());
    waiting = reports.WithoutCertificateOf(state, status.fingerprint());
  }
  for (const std::string& node : waiting) status.add_waiting_for(node);
  return status;
}

}  // namespace onepiece::nodemanager
