// Where the workers of a world meet to open their ways to each other.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"

namespace onepiece::collectives {

/// The most workers of a world.
inline constexpr std::uint32_t kMaxWorkers = 64;
/// The longest text that one worker may have for another one in a round.
inline constexpr std::size_t kMaxTextBytes = 6000;

/// One worker's seat. What is said here holds secrets (fabric::Offer), so it must not leave the
/// trust of the control plane.
///
/// Threading: one thread at a time.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  /// A round: gives texts[i] to worker i, and returns what each worker has for this one. All
  /// workers take part in every round; what a worker has for itself comes back to it.
  ///
  /// Blocking: until all workers have come, at most until `deadline`.
  ///
  /// Errors: INVALID_ARGUMENT (BAD_ROUND: not one text for each worker, or a text is too long),
  /// DEADLINE_EXCEEDED (NOT_ALL_CAME), UNAVAILABLE (RENDEZVOUS_GONE). Afterwards the seat is of no
  /// more use.
  virtual absl::StatusOr<std::vector<std::string>> Exchange(std::vector<std::string> texts,
                                                            base::MonotonicTime deadline) = 0;
};

/// Errors: BAD_ROUND of Exchange.
absl::Status CheckRound(const std::vector<std::string>& texts, std::uint32_t workers);

/// The meeting of workers that are threads of one process.
///
/// Ownership: it must outlive its seats.
///
/// Threading: thread-safe.
class LocalMeeting {
 public:
  explicit LocalMeeting(std::uint32_t workers, base::Clock& clock = base::SystemClock())
      : clock_(clock), texts_(workers) {}
  /// REQUIRES: `index` is a worker, and its former seat has gone.
  std::unique_ptr<Rendezvous> Join(std::uint32_t index);

 private:
  class Seat;
  using Texts = std::vector<std::string>;
  absl::StatusOr<Texts> Exchange(std::uint32_t index, Texts texts, base::MonotonicTime deadline);

  base::Clock& clock_;
  base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<Texts> texts_ ABSL_GUARDED_BY(mutex_);  // Of the round under way, by worker.
  std::vector<Texts> last_ ABSL_GUARDED_BY(mutex_);   // Of the round before it.
  std::uint32_t came_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace onepiece::collectives
