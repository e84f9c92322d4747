// The faults of a ledger run, each a small class behind one interface.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "tests/chaos/ledger_cluster.h"
#include "tests/chaos/ledger_schedule.h"

namespace onepiece::ledger {

/// One fault of one process, from Strike() to Heal(). It remembers what it must undo: a process
/// that died meanwhile has another number.
///
/// Threading: thread-confined.
class Fault {
 public:
  virtual ~Fault() = default;
  /// Errors: why the fault could not be done. Then nothing is to be healed. UNAVAILABLE means that
  /// the victim does not run just now.
  virtual absl::Status Strike(Cluster& cluster, const Injury& injury) = 0;
  /// Is called once after a Strike() that succeeded, at once if the fault heals by itself.
  virtual absl::Status Heal(Cluster& cluster, const Injury& injury) = 0;
};

std::unique_ptr<Fault> MakeFault(Kind kind);

}  // namespace onepiece::ledger
