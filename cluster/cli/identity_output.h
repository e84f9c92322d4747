// Quotas, uses and join lines as text and JSON, for the verbs about people, programs and nodes.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cluster/terminal/json.h"
#include "onepiece/v1/identity.pb.h"

namespace onepiece::cli {

using terminal::Json;

/// Parses "jobs=4,rate=2/s,worker-seconds=3600/h,bytes=10G", any part of it, or "none": no limits.
/// K, M, G and T are powers of 1024.
///
/// Errors: INVALID_ARGUMENT (USAGE), also for a limit of 0: the cluster takes 0 for no limit.
absl::StatusOr<v1::Quota> ParseQuota(std::string_view text);
/// What ParseQuota() reads back.
std::string QuotaText(const v1::Quota& quota);
/// A limit that is not set is null.
Json QuotaDocument(const v1::Quota& quota);

/// The command that a new host runs: "onepiece join HOST:PORT --token OP1…".
std::string JoinLine(const std::string& address, const std::string& token);

}  // namespace onepiece::cli
