// Carries out a schedule of faults on whatever can be hurt by it, and keeps the rules that only a
// run can keep (ledger_run.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/chaos/ledger.h"
#include "tests/chaos/ledger_run.h"
#include "tests/chaos/ledger_schedule.h"

namespace onepiece::ledger {

/// What a schedule hurts.
class Patient {
 public:
  virtual ~Patient() = default;
  using Cure = std::function<absl::Status()>;
  /// Returns what ends the fault. It is called once, at once if the fault heals by itself.
  ///
  /// Errors: why the fault could not be done. UNAVAILABLE means that the victim does not run.
  virtual absl::StatusOr<Cure> Strike(const Injury& injury) = 0;
  /// Whether every process of the role is ready.
  virtual bool IsWhole(Role role) = 0;
  /// Whether all databases have these results, as far as they must be there.
  virtual bool HasCopies(const std::vector<std::string>& uids) = 0;
};

/// Returns once the load has announced enough, and nothing has been hurt for a while.
///
/// Blocking: for a tenth of the run and at most a minute; a load that announces nothing gets a
/// minute, scaled.
void WarmUp(const RunOptions& options, const Ledger& ledger);

/// Strikes and heals until the run's length is over and everything has been healed. Says every
/// fault, and every 30 s what the ledger has so far.
void Hurt(const RunOptions& options, Patient& patient, const Ledger& ledger, RunReport& report);

/// How long the audit may take.
base::Duration AuditLimit(const RunOptions& options);

}  // namespace onepiece::ledger
