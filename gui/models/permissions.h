// What the identity that this console shows may do, so that what is forbidden can be disabled and
// the missing scope named. The servers decide by themselves; this only says it before they do.
//
// Who may call a method is written in one place, its proto option `access`. This reads it there.
//
// Threading: pure functions.
#pragma once

#include <QString>
#include <cstdint>
#include <string>
#include <string_view>

#include "cluster/session/snapshot.h"
#include "onepiece/v1/identity.pb.h"

namespace onepiece::gui {

/// The methods that the console's actions call, as gRPC names them.
namespace methods {

inline constexpr std::string_view kSubmitJob = "/onepiece.v1.GenerationService/SubmitJob";
inline constexpr std::string_view kCancelJob = "/onepiece.v1.GenerationService/CancelJob";
inline constexpr std::string_view kDeleteJob = "/onepiece.v1.GenerationService/DeleteJob";
inline constexpr std::string_view kFetchResult = "/onepiece.v1.GenerationService/FetchResult";
inline constexpr std::string_view kProposePlan = "/onepiece.v1.ElasticityService/ProposePlan";
inline constexpr std::string_view kApplyPlan = "/onepiece.v1.ElasticityService/ApplyPlan";
inline constexpr std::string_view kConfirmPlan = "/onepiece.v1.ElasticityService/ConfirmPlan";
inline constexpr std::string_view kUndoPlan = "/onepiece.v1.ElasticityService/UndoPlan";
inline constexpr std::string_view kSetHold = "/onepiece.v1.ElasticityService/SetHold";
inline constexpr std::string_view kSetPoolLimits = "/onepiece.v1.ElasticityService/SetPoolLimits";
inline constexpr std::string_view kStepDown = "/onepiece.v1.ConsensusService/StepDown";
inline constexpr std::string_view kTakeSnapshot = "/onepiece.v1.ConsensusService/TakeSnapshot";

}  // namespace methods

/// Why `me` may not call `method`: "Needs the scope operate; ci has submit, read-own". Empty if it
/// may. `method` is one of the above.
QString WhyForbidden(const v1::WhoAmIResponse& me, std::string_view method);
/// Why `me` may not cancel or delete a job of `tenant`. Empty if it may, as far as the tenant
/// decides.
QString WhyNotTheirs(const v1::WhoAmIResponse& me, const std::string& tenant);

/// Whether the cluster keeps its nodes from us, for want of the scope `read`: only proxies are in
/// the snapshot, and nothing follows from what is not there (session::FollowWithoutRead).
bool AreNodesHidden(const session::Snapshot& snapshot);

/// False if the cluster is insecure: nothing is encrypted, and everybody may do everything.
bool IsSecure(const v1::WhoAmIResponse& me);
/// In a few words: "admin · default" (name and tenant), "Not secure".
QString IdentityTitle(const v1::WhoAmIResponse& me);
/// In full, in lines: name, tenant, scopes, how that was shown, and until when it is valid.
QString IdentityText(const v1::WhoAmIResponse& me, std::int64_t now_ms);

}  // namespace onepiece::gui
