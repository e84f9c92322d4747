// The audit at the end of a run: asks for every job of the ledger, and fetches what must be there.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tests/chaos/ledger.h"

namespace onepiece::ledger {

/// What the audit asks. The run's implementation asks proxies; that of ledger_test is scripted.
///
/// Errors: NOT_FOUND means that the cluster does not know the job. Any other error of Ask() means
/// that there was no answer.
class Source {
 public:
  virtual ~Source() = default;
  virtual absl::StatusOr<Word> Ask(const std::string& uid) = 0;
  /// Returns the SHA-256 of the result's main artifact.
  virtual absl::StatusOr<std::string> Fetch(const std::string& uid) = 0;
  /// Is called between two looks at the jobs that are not settled. Returns false to end the audit.
  virtual bool Wait() = 0;
};

/// Looks at every job until it is settled: it has an end, and its result was fetched if it must be
/// there. A job that is not settled when Source::Wait() returns false keeps the last answer, so
/// that one failed attempt condemns nobody.
void Audit(Ledger& ledger, Source& source);

}  // namespace onepiece::ledger
