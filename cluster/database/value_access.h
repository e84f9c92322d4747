// One-sided access of peers to this database's values: which peer may read and write which memory,
// and the reservations through which large results arrive (docs/database.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
#include "cluster/values/reservations.h"
#include "cluster/values/slabs.h"
#include "cluster/values/value_index.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::database {

struct ValueAccessOptions {
  std::int64_t budget_bytes = std::int64_t{1} << 30;  ///< The store's budget for results.
  std::int64_t max_records = 100'000;
};

/// The error of a database that has no room for a result of so many bytes now.
absl::Status MemoryFull(std::int64_t bytes);

/// Lets peers read results from this database's memory and write large results into it.
///
/// Ownership: owns the slabs and the index. `fabric` and `clock` must outlive it.
/// Threading: thread-safe.
/// Invariants: at most kMaxReservations wait to be written, with at most budget_bytes in total.
class ValueAccess {
 public:
  static constexpr std::size_t kMaxReservations = 64;
  static constexpr base::Duration kReservationTtl = std::chrono::seconds(10);  ///< Scaled.
  /// How long the room of an expired reservation waits for a writer that cannot be fenced. Scaled.
  static constexpr base::Duration kFenceLimit = std::chrono::seconds(60);

  /// The store that the results go to.
  struct Store {
    /// Returns false when the result is here already, or when the job accepts none any more.
    std::function<bool(const base::Uid&)> wants;
    /// Returns whether there is room for a result of so many bytes now. It may make room.
    std::function<bool(std::int64_t bytes)> has_room;
    /// Returns whether the result was kept.
    ///
    /// Errors: RESOURCE_EXHAUSTED when there is no room for a kResult. Its job has not ended by
    /// that, because another database may have room.
    std::function<absl::StatusOr<bool>(const ResultBundle&, message::Kind,
                                       const std::string& sender)>
        keep;
  };

  /// Errors: those of ValueIndex::Create.
  static absl::StatusOr<std::unique_ptr<ValueAccess>> Create(
      fabric::Fabric& fabric, const ValueAccessOptions& options,
      base::Clock& clock = base::SystemClock());

  [[nodiscard]] values::Slabs& slabs() { return *slabs_; }
  /// Lets peers find these artifacts of a job from now on, as far as they lie in slabs; with
  /// nullptr, none. Call it before the memory of the former artifacts is released.
  void Serve(const base::Uid& uid, const std::vector<StoredArtifact>* artifacts);
  /// Sets ValueAccessOptions::budget_bytes. What lies in the memory, or is being written, stays.
  /// The index keeps its size.
  void SetBudget(std::int64_t bytes);

  /// Grants a peer access to a segment: to write while it has a reservation there, else to read.
  ///
  /// Errors: INVALID_ARGUMENT (BAD_NODE, MALFORMED_OFFER), those of Slabs::Admit.
  absl::StatusOr<v1::OpenSegmentResponse> OpenSegment(const v1::OpenSegmentRequest& request);
  /// Reserves memory that a peer writes a result into.
  ///
  /// Errors: INVALID_ARGUMENT (BAD_UID, BAD_NODE, BAD_TIME, BAD_ARTIFACTS), RESOURCE_EXHAUSTED
  /// (TOO_MANY_RESERVATIONS, VALUE_MEMORY_FULL: it may come by message; RESULT_MEMORY_FULL: the
  /// store has no room for it now; RESULT_BUDGET_EXCEEDED: it is larger than the whole budget, so
  /// there will never be room).
  absl::StatusOr<v1::ReserveResultResponse> Reserve(const v1::ReserveResultRequest& request,
                                                    const Store& store);
  /// Ends a reservation and keeps the written result. It reads the bytes once, to check them.
  ///
  /// Errors: NOT_FOUND (RESERVATION_UNKNOWN: the peer took too long), DATA_LOSS (BAD_CHECKSUM: the
  /// memory holds other bytes; the reservation is gone), those of Store::keep (the reservation is
  /// gone).
  absl::StatusOr<v1::CommitResultResponse> Commit(const v1::CommitResultRequest& request,
                                                  const Store& store);
  /// Who writes into a reservation; nullopt when there is none.
  [[nodiscard]] std::optional<std::string> SenderOf(std::uint64_t reservation) const {
    return reservations_.SenderOf(reservation);
  }
  /// Drops reservations whose time is over, and returns memory that was long unused. A reservation
  /// whose writer cannot be fenced lasts up to kFenceLimit longer.
  void Sweep();
  [[nodiscard]] std::size_t reservations() const;

 private:
  /// What is written into a reservation.
  struct Awaited {
    message::Kind kind = message::Kind::kResult;
    ResultBundle bundle;  ///< The data of its artifacts lie in the slab.
  };

  ValueAccess(std::shared_ptr<values::Slabs> slabs, std::unique_ptr<values::ValueIndex> index,
              std::int64_t budget_bytes, base::Clock& clock);

  absl::Status CheckRoom(const Awaited& awaited, std::int64_t bytes, const Store& store) const;

  std::atomic<std::int64_t> budget_bytes_;
  const std::shared_ptr<values::Slabs> slabs_;
  const std::unique_ptr<values::ValueIndex> index_;
  values::Reservations reservations_;
  base::Clock& clock_;
  base::Mutex served_mutex_;
  // The number of each job's values in the index.
  std::unordered_map<base::Uid, std::uint32_t> served_ ABSL_GUARDED_BY(served_mutex_);
};

}  // namespace onepiece::database
