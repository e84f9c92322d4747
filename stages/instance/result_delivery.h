// Helpers that send the last stage's outputs to the job's database.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/message/message.h"
#include "cluster/node/outbox.h"
#include "cluster/node/routing.h"
#include "cluster/telemetry/spans.h"
#include "cluster/values/remote_values.h"

namespace onepiece::instance {

/// Computes the SHA-256 of each byte artifact that has none. It is computed only here, where the
/// result is made. Reads the bytes.
void AddSha256(std::vector<message::Artifact>& artifacts);

/// How results reach databases. The references are borrowed.
struct ResultWays {
  /// Sends the result by message.
  std::function<absl::StatusOr<node::Delivered>(node::Destination)> send;
  values::ValuePeers& values;
  telemetry::Spans& spans;  ///< Gets a span "send" for each attempt.
  base::Clock& clock;
};

/// Delivers a result to one of the job's databases, the best place first. A large result
/// (values::IsForPut) is written straight into a database's memory. It goes by message when no
/// database takes it so, unless one says that it has no room to keep it: that one would end the job
/// for a result in its ring. A small one goes by message, and is written when it is too large for
/// the rings.
///
/// Blocking: as ResultWays::send does, for `patience` when only writing is left, and 5 s for each
/// database that it is written to, always until `deadline` at most.
///
/// Errors:
///   - UNAVAILABLE (RESULT_NOT_TAKEN): it has to be written, and no database has room for it now.
///     Retry.
///   - FAILED_PRECONDITION (RESULT_BUDGET_EXCEEDED): it has to be written, and is larger than the
///     whole memory of every database. The message names the sizes and the setting.
///   - those of ResultWays::send; MESSAGE_TOO_LARGE only for outputs that nobody can write
///     (values::CanPut).
absl::StatusOr<node::Delivered> DeliverResult(const message::Message& message,
                                              const node::Routing& routing, const ResultWays& ways,
                                              base::Duration patience,
                                              base::MonotonicTime deadline);

}  // namespace onepiece::instance
