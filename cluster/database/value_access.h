// One-sided access of peers to this database's values: who may read and write which memory, and the
// reservations by which large results arrive (docs/database.md).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/database/result_bundle.h"
#include "cluster/fabric/fabric.h"
#include "cluster/message/message.h"
#include "cluster/values/slabs.h"
#include "cluster/values/value_index.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::database {

struct ValueAccessOptions {
  std::int64_t budget_bytes = std::int64_t{1} << 30;  ///< Of results, as the store has it.
  std::int64_t max_records = 100'000;
};

/// Ownership: Owns the slabs and the index. `fabric` and `clock` outlive it.
/// Threading: Thread-safe.
/// Invariants: At most kMaxReservations wait to be written, of at most budget_bytes together.
class ValueAccess {
 public:
  static constexpr std::size_t kMaxReservations = 64;
  static constexpr base::Duration kReservationTtl = std::chrono::seconds(10);  ///< Scaled.

  /// What the results go to.
  struct Store {
    /// False: it is here, or the job takes no result any more.
    std::function<bool(const base::Uid&)> wants;
    /// True: it is kept.
    std::function<bool(const ResultBundle&, message::Kind, const std::string& sender)> keep;
  };

  /// Errors: those of ValueIndex::Create.
  static absl::StatusOr<std::unique_ptr<ValueAccess>> Create(
      fabric::Fabric& fabric, const ValueAccessOptions& options,
      base::Clock& clock = base::SystemClock());

  [[nodiscard]] values::Slabs& slabs() { return *slabs_; }
  /// What peers find of a job from now on, as far as it is in slabs; nullptr: nothing. Call it
  /// before bytes may go.
  void Serve(const base::Uid& uid, const std::vector<StoredArtifact>* artifacts);

  /// Errors: INVALID_ARGUMENT (BAD_NODE, MALFORMED_OFFER); those of Slabs::Admit.
  absl::StatusOr<v1::OpenSegmentResponse> OpenSegment(const v1::OpenSegmentRequest& request);
  /// Errors: INVALID_ARGUMENT (BAD_UID, BAD_NODE, BAD_TIME, BAD_ARTIFACTS), RESOURCE_EXHAUSTED
  /// (TOO_MANY_RESERVATIONS, VALUE_MEMORY_FULL): send it by message then.
  absl::StatusOr<v1::ReserveResultResponse> Reserve(const v1::ReserveResultRequest& request,
                                                    const Store& store);
  /// Reads the bytes once.
  /// Errors: NOT_FOUND (RESERVATION_UNKNOWN: it took too long), DATA_LOSS (BAD_CHECKSUM: other
  /// bytes are there; the reservation is gone).
  absl::StatusOr<v1::CommitResultResponse> Commit(const v1::CommitResultRequest& request,
                                                  const Store& store);
  /// Forgets reservations whose time is over, and gives back memory that was long unused.
  void Sweep();
  [[nodiscard]] std::size_t reservations() const;

 private:
  struct Reservation {
    message::Kind kind = message::Kind::kResult;
    std::string sender;
    ResultBundle bundle;  ///< Its artifacts' data are places in the slab.
    values::Slabs::Slab slab;
    base::MonotonicTime expires{};
    bool abandoned = false;  ///< Waits until its writer can do no harm.
  };

  ValueAccess(std::shared_ptr<values::Slabs> slabs, std::unique_ptr<values::ValueIndex> index,
              std::int64_t budget_bytes, base::Clock& clock);
  absl::Status CheckRoom(std::int64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<values::Slabs> slabs_;
  const std::unique_ptr<values::ValueIndex> index_;
  const std::int64_t budget_bytes_;
  base::Clock& clock_;
  mutable base::Mutex mutex_;
  std::map<std::uint64_t, Reservation> reservations_ ABSL_GUARDED_BY(mutex_);
  std::int64_t reserved_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  base::Mutex served_mutex_;
  // How many of a job's values there are.
  std::unordered_map<base::Uid, std::uint32_t> served_ ABSL_GUARDED_BY(served_mutex_);
};

}  // namespace onepiece::database
