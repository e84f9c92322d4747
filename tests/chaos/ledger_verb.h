// Does to a cluster under load what an administrator does: with the command line.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "tests/chaos/ledger_cluster.h"
#include "tests/program.h"

namespace onepiece::ledger {

/// Runs `onepiece ARGUMENTS`, which name the cluster, and returns what it printed.
///
/// Blocking: for a minute at most.
/// Errors: FAILED_PRECONDITION (VERB_FAILED) with what it printed.
inline absl::StatusOr<testing::Outcome> RunVerb(const Cluster& cluster,
                                                const QStringList& arguments) {
  constexpr int kSeconds = 60;
  testing::Outcome outcome = testing::RunProgram(
      QString::fromStdString(cluster.bin_dir() + "/onepiece"), arguments, kSeconds);
  if (outcome.exit_code == 0) return outcome;
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "VERB_FAILED",
                         absl::StrCat(arguments.join(' ').toStdString(), ": exit code ",
                                      outcome.exit_code, ": ", outcome.out, outcome.err));
}

/// The arguments that name the cluster while it works.
inline QStringList InItsDataDir(const Cluster& cluster) {
  return {"--data-dir", QString::fromStdString(cluster.folder() + "/data")};
}

}  // namespace onepiece::ledger
