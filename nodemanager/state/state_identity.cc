// The state machine's commands about who is in the cluster, and who is named in the audit log.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cluster/identity/token.h"
#include "nodemanager/state/plan_state.h"
#include "nodemanager/state/state_machine.h"

namespace onepiece::nodemanager {
namespace {

// Longer names and addresses are cut in the audit log. None that a server finds out is so long.
constexpr std::size_t kMaxCallerBytes = 256;

std::string TokenIdOf(const v1::CreateToken& change) {
  return identity::TokenId(change.has_bearer() ? change.bearer().secret_hash()
                                               : change.join().secret_hash());
}

std::string Describe(const v1::CreateToken& change) {
  if (change.has_join()) {
    return absl::StrCat("join token for ", change.join().roles(), ", uses ",
                        change.join().uses_left());
  }
  const v1::BearerToken& token = change.bearer();
  return absl::StrCat("bearer token of ", token.name(), ", tenant ", token.tenant(), ", scopes ",
                      token.scopes(), token.app_id().empty() ? "" : ", app ", token.app_id());
}

std::string Describe(const v1::Quota& quota) {
  return absl::StrCat("jobs in flight ", quota.jobs_in_flight(), ", jobs/s ", quota.jobs_per_s(),
                      ", worker s/h ", quota.worker_seconds_per_h(), ", bytes ",
                      quota.stored_bytes());
}

std::string WithReason(const std::string& detail, const v1::Command& command) {
  return command.reason().empty() ? detail : absl::StrCat(detail, ": ", command.reason());
}

// "create_token". It is the name of a field that is never renamed (docs/versions.md).
std::string NameOf(const v1::Command& command) {
  const auto* field = v1::Command::descriptor()->FindFieldByNumber(command.change_case());
  return field == nullptr ? "unknown" : field->name();
}

// What a command that people made is about.
std::string SubjectOf(const v1::Command& command) {
  switch (command.change_case()) {
    case v1::Command::kApplyWorkflow:
      return command.apply_workflow().app_id();
    case v1::Command::kDeleteWorkflow:
      return command.delete_workflow();
    case v1::Command::kStartPlan:
      return command.start_plan().plan().plan_id();
    case v1::Command::kDecidePlan:
      return command.decide_plan().plan_id();
    case v1::Command::kSetPoolLimits:
      return command.set_pool_limits().limits().pool();
    case v1::Command::kRemoveNode:
      return command.remove_node().node_id();
    case v1::Command::kCreateToken:
      return TokenIdOf(command.create_token());
    case v1::Command::kEndToken:
      return command.end_token().id();
    case v1::Command::kIssueCertificate:
      return ShortSubject(command.issue_certificate().certificate().subject());
    case v1::Command::kRevokeCertificate:
      return command.revoke_certificate().serial() + command.revoke_certificate().subject();
    case v1::Command::kSetTenant:
      return command.set_tenant().name();
    default:
      return "";
  }
}

}  // namespace

// Secrets are in none of these commands, and hashes and keys are left out of the audit log.
absl::Status StateMachine::ChangeIdentity(const v1::Command& command) {
  ONEPIECE_RETURN_IF_ERROR(CheckPlanText("reason", command.reason()));
  const std::int64_t time = command.time_unix_ms();
  std::string detail;
  switch (command.change_case()) {
    case v1::Command::kSetAuthorities:
      ONEPIECE_RETURN_IF_ERROR(identity_.SetAuthorities(command.set_authorities()));
      detail = v1::AuthorityStatus::Rotation_Name(identity_.rotation());
      break;
    case v1::Command::kCreateToken:
      ONEPIECE_RETURN_IF_ERROR(identity_.CreateToken(command.create_token(), time));
      detail = Describe(command.create_token());
      break;
    case v1::Command::kEndToken:
      ONEPIECE_RETURN_IF_ERROR(identity_.EndToken(command.end_token()));
      break;
    case v1::Command::kIssueCertificate:
      ONEPIECE_RETURN_IF_ERROR(identity_.IssueCertificate(command.issue_certificate(), time));
      // Each node renews now and then. So many entries would push out what people did.
      if (command.issue_certificate().join_token().empty() && command.caller().empty())
        return absl::OkStatus();
      detail = absl::StrCat("serial ", command.issue_certificate().certificate().serial());
      break;
    case v1::Command::kRevokeCertificate:
      ONEPIECE_RETURN_IF_ERROR(identity_.RevokeCertificate(command.revoke_certificate(), time));
      break;
    case v1::Command::kSetTenant:
      ONEPIECE_RETURN_IF_ERROR(identity_.SetTenant(command.set_tenant()));
      detail = Describe(command.set_tenant().quota());
      break;
    default:
      identity_.AddUses(command.add_uses());
      return absl::OkStatus();
  }
  Audit(time, NameOf(command), SubjectOf(command), WithReason(detail, command));
  return absl::OkStatus();
}

// A refusal changes nothing, but people shall see that somebody tried. Only commands with a caller
// get such an entry: what the cluster itself proposes, and what nodes say, is refused now and then
// in the best of order.
void StateMachine::SignAudit(const v1::Command& command, const absl::Status& status) {
  if (version_ < 5 || command.caller().empty()) return;
  if (audited_ == 0) {
    if (status.ok()) return;  // It had no effect.
    Audit(command.time_unix_ms(), NameOf(command), SubjectOf(command), "");
  }
  const std::size_t count = std::min(audited_, audit_.size());
  for (auto entry = audit_.end() - static_cast<std::ptrdiff_t>(count); entry != audit_.end();
       ++entry) {
    entry->set_caller(command.caller().substr(0, kMaxCallerBytes));
    entry->set_caller_address(command.caller_address().substr(0, kMaxCallerBytes));
    entry->set_answer(status.ok() ? "OK" : base::GetReason(status).reason);
  }
}

}  // namespace onepiece::nodemanager
