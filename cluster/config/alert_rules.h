// What an alert rule may say (docs/console.md, "Alerts"). The console's rule files and the
// cluster's configuration hold the same rules, and both are checked here.
//
// Threading: may be called from any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "cluster/base/status.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "onepiece/v1/cluster_config.pb.h"

namespace onepiece::config {

/// The error of a rule: "rule 'RULE', KEY: WHAT", with metadata "field".
absl::Status BadRule(std::string_view rule, std::string_view key, std::string_view what);

/// The time that an alert is pending before it fires. Empty: 0.
/// Errors: INVALID_ARGUMENT (BAD_RULE).
absl::StatusOr<std::int64_t> AlertForMs(const v1::AlertRule& rule);

/// Checks everything except that `watches` is a series or condition that exists: a newer program
/// may know more of them (CheckWatches).
/// Errors: INVALID_ARGUMENT (BAD_RULE), which names the rule, the key and what is allowed.
absl::Status CheckAlertRule(const v1::AlertRule& rule);
/// Checks each rule, that no two have one name, and that there are not too many.
/// Errors: as CheckAlertRule().
absl::Status CheckAlertRules(const google::protobuf::RepeatedPtrField<v1::AlertRule>& rules);

}  // namespace onepiece::config
