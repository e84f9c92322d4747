// Room in slabs that peers have reserved and write into with one-sided operations.
#pragma once

#include <any>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/values/slabs.h"

namespace onepiece::values {

struct ReservationsOptions {
  std::uint64_t budget_bytes = 0;  ///< Of all open reservations together.
  std::size_t max_open = 64;
  base::Duration lease = std::chrono::seconds(10);  ///< Scaled.
  /// How long the room of a reservation that is over waits for a writer that cannot be fenced,
  /// before its segment is discarded. Scaled.
  base::Duration fence_limit = std::chrono::seconds(60);
};

/// A reservation lasts until its owner takes it, or until its lease is over: its writer may have
/// died. Then it cannot be taken any more, and its room is used again once its writer is fenced.
/// Room whose writer lives and cannot be fenced is never used again: its segment is discarded.
///
/// Ownership: an open reservation keeps its slab. `clock` must outlive it.
///
/// Threading: thread-safe.
///
/// Blocking: Reclaim and GiveUp wait as Slabs::Fence does, and hold up no other call.
///
/// Invariants: at most max_open are open, with at most budget_bytes in total.
class Reservations {
 public:
  Reservations(std::shared_ptr<Slabs> slabs, ReservationsOptions options,
               base::Clock& clock = base::SystemClock());

  struct Reservation {
    std::string sender;  ///< The peer that writes, by its name in Slabs::Enroll.
    Slabs::Slab slab;
    std::any note;              ///< What the caller keeps with it.
    std::uint64_t request = 0;  ///< The sender's number of its request. 0: it has none.
  };
  /// How a reservation stands.
  enum class Fate : std::uint8_t {
    kOpen,
    kOver,  ///< Its lease ended, or it was spoilt. Nobody can take it any more.
    kNone,  ///< It was taken, or has never been one of these.
  };
  struct Stats {
    std::size_t open = 0;
    std::uint64_t open_bytes = 0;
    std::uint64_t over = 0;  ///< Reservations whose lease ended, so far.
  };

  /// Sets budget_bytes. What is open stays open.
  void SetBudget(std::uint64_t bytes);
  /// Whether another reservation of `bytes` may be opened.
  ///
  /// Errors: RESOURCE_EXHAUSTED (TOO_MANY_RESERVATIONS).
  absl::Status CheckRoom(std::uint64_t bytes) const;
  /// Opens a reservation and returns its number, which is never 0.
  ///
  /// Errors: as CheckRoom, and ALREADY_EXISTS when Find finds one for the same request.
  absl::StatusOr<std::uint64_t> Add(Reservation reservation);
  /// An open reservation, as its writer knows it.
  struct Known {
    std::uint64_t id = 0;
    Place place;
  };
  /// The open reservation of `length` bytes that this request of the sender has made before, with a
  /// fresh lease. None for request 0.
  std::optional<Known> Find(const std::string& sender, std::uint64_t request, std::uint64_t length);
  /// Who writes into a reservation that was neither taken nor reclaimed yet.
  [[nodiscard]] std::optional<std::string> SenderOf(std::uint64_t id) const;
  /// Whether `sender` has an open reservation in this segment.
  [[nodiscard]] bool Writes(const std::string& sender, std::uint32_t segment) const;
  /// Begins its lease anew, unless it is over.
  Fate Renew(std::uint64_t id);
  /// Ends a reservation and returns it; nullopt when its fate is not kOpen.
  std::optional<Reservation> Take(std::uint64_t id);
  /// Says that what was written into a reservation that was taken is not what its writer meant. Its
  /// fate is kOver from now on, for as long as that of others.
  void Spoil(std::uint64_t id);
  /// Ends a reservation that its writer gives up, also one that is over: fences the writer, so that
  /// a write on its way cannot land in what comes next. False when there is none.
  bool GiveUp(std::uint64_t id);
  /// Says whether a reservation may end. Asked while nobody can take or renew one.
  using MayEnd = std::function<bool()>;
  /// Ends the reservations whose lease is over, so that nobody can take or renew them. When a lease
  /// is found to have run out, `ask` (none: they end at once) says who decides about the
  /// reservation from then on. Until that one agrees it stays open, and a renewal makes it as new.
  void Expire(const std::function<MayEnd()>& ask = nullptr);
  /// Fences the writers of the reservations that are over, and gives their room back.
  void Reclaim();
  [[nodiscard]] Stats stats() const;

 private:
  struct Open {
    Reservation reservation;
    base::MonotonicTime expires{};
    MayEnd may_end;     ///< Since its lease was found to have run out.
    bool over = false;  ///< Nobody can take it any more, but its writer is not fenced yet.
  };
  absl::Status CheckRoomLocked(std::uint64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  using OpenMap = std::map<std::uint64_t, Open>;
  OpenMap::iterator FindLocked(const std::string& sender, std::uint64_t request,
                               std::uint64_t length) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Reservation Remove(OpenMap::iterator at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteOver(std::uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<Slabs> slabs_;
  const ReservationsOptions options_;
  base::Clock& clock_;
  mutable base::Mutex mutex_;
  OpenMap open_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t budget_bytes_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t open_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t over_ ABSL_GUARDED_BY(mutex_) = 0;
  // The numbers of the last reservations whose lease ended, or that were spoilt.
  std::deque<std::uint64_t> over_ids_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::values
