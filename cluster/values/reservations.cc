#include "cluster/values/reservations.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "spdlog/spdlog.h"

namespace onepiece::values {
namespace {

/// Reservations that are remembered as over. With 64 open ones and a lease of 10 s a writer may ask
/// ten minutes late.
constexpr std::size_t kMaxOver = 4096;

}  // namespace

Reservations::Reservations(std::shared_ptr<Slabs> slabs, ReservationsOptions options,
                           base::Clock& clock)
    : slabs_(std::move(slabs)),
      options_(options),
      clock_(clock),
      budget_bytes_(options.budget_bytes) {}

void Reservations::SetBudget(std::uint64_t bytes) {
  const base::MutexLock lock(mutex_);
  budget_bytes_ = bytes;
}

absl::Status Reservations::CheckRoomLocked(std::uint64_t bytes) const {
  if (open_.size() < options_.max_open && bytes <= budget_bytes_ &&
      open_bytes_ <= budget_bytes_ - bytes) {
    return absl::OkStatus();
  }
  return base::MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_RESERVATIONS",
                         std::to_string(open_.size()) + " reservations of " +
                             std::to_string(open_bytes_) + " bytes are being written");
}

absl::Status Reservations::CheckRoom(std::uint64_t bytes) const {
  const base::MutexLock lock(mutex_);
  return CheckRoomLocked(bytes);
}

absl::StatusOr<std::uint64_t> Reservations::Add(Reservation reservation) {
  const std::uint64_t bytes = reservation.slab.bytes.size();
  const base::MonotonicTime expires = clock_.Now() + base::Scaled(options_.lease);
  const base::MutexLock lock(mutex_);
  if (FindLocked(reservation.sender, reservation.request, bytes) != open_.end()) {
    return base::MakeError(absl::StatusCode::kAlreadyExists, "ALREADY_RESERVED",
                           "this request has a reservation");
  }
  ONEPIECE_RETURN_IF_ERROR(CheckRoomLocked(bytes));
  std::uint64_t id = 0;
  while (id == 0 || open_.contains(id)) id = base::RandomU64();
  open_bytes_ += bytes;
  open_.emplace(id, Open{.reservation = std::move(reservation), .expires = expires});
  return id;
}

Reservations::OpenMap::iterator Reservations::FindLocked(const std::string& sender,
                                                         std::uint64_t request,
                                                         std::uint64_t length) {
  if (request == 0) return open_.end();
  return std::ranges::find_if(open_, [&](const OpenMap::value_type& entry) {
    const Reservation& known = entry.second.reservation;
    return !entry.second.over && known.request == request && known.sender == sender &&
           known.slab.bytes.size() == length;
  });
}

std::optional<Reservations::Known> Reservations::Find(const std::string& sender,
                                                      std::uint64_t request, std::uint64_t length) {
  const base::MutexLock lock(mutex_);
  const auto found = FindLocked(sender, request, length);
  if (found == open_.end()) return std::nullopt;
  found->second.expires = clock_.Now() + base::Scaled(options_.lease);
  found->second.may_end = nullptr;
  return Known{.id = found->first, .place = found->second.reservation.slab.place};
}

std::optional<std::string> Reservations::SenderOf(std::uint64_t id) const {
  const base::MutexLock lock(mutex_);
  const auto found = open_.find(id);
  if (found == open_.end()) return std::nullopt;
  return found->second.reservation.sender;
}

bool Reservations::Writes(const std::string& sender, std::uint32_t segment) const {
  const base::MutexLock lock(mutex_);
  return std::ranges::any_of(open_, [&](const OpenMap::value_type& entry) {
    const Reservation& open = entry.second.reservation;
    return !entry.second.over && open.slab.place.segment == segment && open.sender == sender;
  });
}

Reservations::Fate Reservations::Renew(std::uint64_t id) {
  const base::MutexLock lock(mutex_);
  const auto found = open_.find(id);
  if (found != open_.end() && !found->second.over) {
    found->second.expires = clock_.Now() + base::Scaled(options_.lease);
    found->second.may_end = nullptr;
    return Fate::kOpen;
  }
  return std::ranges::find(over_ids_, id) != over_ids_.end() ? Fate::kOver : Fate::kNone;
}

Reservations::Reservation Reservations::Remove(OpenMap::iterator at) {
  Reservation removed = std::move(at->second.reservation);
  open_bytes_ -= removed.slab.bytes.size();
  open_.erase(at);
  return removed;
}

std::optional<Reservations::Reservation> Reservations::Take(std::uint64_t id) {
  const base::MutexLock lock(mutex_);
  const auto found = open_.find(id);
  if (found == open_.end() || found->second.over) return std::nullopt;
  return Remove(found);
}

void Reservations::NoteOver(std::uint64_t id) {
  over_ids_.push_back(id);
  if (over_ids_.size() > kMaxOver) over_ids_.pop_front();
}

void Reservations::Spoil(std::uint64_t id) {
  const base::MutexLock lock(mutex_);
  NoteOver(id);
}

bool Reservations::GiveUp(std::uint64_t id) {
  Reservation gone;  // Its room is released after the fence, without the lock.
  {
    const base::MutexLock lock(mutex_);
    const auto found = open_.find(id);
    if (found == open_.end()) return false;
    gone = Remove(found);
  }
  (void)slabs_->Fence(gone.slab.place.segment, gone.sender);
  return true;
}

void Reservations::Expire(const std::function<MayEnd()>& ask) {
  const base::MonotonicTime now = clock_.Now();
  MayEnd fresh;  // For the leases that this call finds to have run out.
  const base::MutexLock lock(mutex_);
  for (auto& [id, open] : open_) {
    if (open.over || open.expires > now) continue;
    if (ask) {
      if (!open.may_end) {
        if (!fresh) fresh = ask();
        open.may_end = fresh;
      }
      if (!open.may_end()) continue;
    }
    open.over = true;
    ++over_;
    NoteOver(id);
  }
}

void Reservations::Reclaim() {
  const base::MonotonicTime now = clock_.Now();
  struct Writer {
    std::uint64_t id;
    std::uint32_t segment;
    std::string sender;
  };
  std::vector<Writer> writers;  // Of the reservations that are over.
  {
    const base::MutexLock lock(mutex_);
    for (const auto& [id, open] : open_) {
      if (open.over)
        writers.push_back({id, open.reservation.slab.place.segment, open.reservation.sender});
    }
  }
  for (const Writer& writer : writers) {
    // A fence takes a while on some fabrics, so the lock is not held.
    const bool fenced = slabs_->Fence(writer.segment, writer.sender);
    Reservation gone;  // Its room is released after the lock.
    {
      const base::MutexLock lock(mutex_);
      const auto found = open_.find(writer.id);
      if (found == open_.end()) continue;  // Its writer gave it up meanwhile.
      if (!fenced && now < found->second.expires + base::Scaled(options_.fence_limit)) continue;
      gone = Remove(found);
    }
    if (fenced) continue;
    // Writers give up within seconds, so this one's process stands still, perhaps in the middle of
    // its write. When it goes on, it writes into memory that nobody else has.
    slabs_->Discard(writer.segment);
    spdlog::warn(
        "op=reserve sender={} bytes={} its memory is discarded: the writer cannot be fenced",
        gone.sender, gone.slab.bytes.size());
  }
}

Reservations::Stats Reservations::stats() const {
  const base::MutexLock lock(mutex_);
  return {.open = open_.size(), .open_bytes = open_bytes_, .over = over_};
}

}  // namespace onepiece::values
