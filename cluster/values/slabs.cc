#include "cluster/values/slabs.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/values/enrollments.h"

namespace onepiece::values {
namespace {

constexpr std::uint64_t kAlignBytes = 64;

constexpr std::uint64_t RoundUp(std::uint64_t value, std::uint64_t step) {
  return (value + step - 1) / step * step;
}

// The numbers start at random, so that a peer does not take a segment for one of a former process.
std::uint32_t NextSegmentId() {
  static std::atomic<std::uint32_t> next{static_cast<std::uint32_t>(base::RandomU64())};
  std::uint32_t id = 0;
  while (id == 0) id = next++;
  return id;
}

struct Segment {
  std::uint32_t id = 0;
  bool single = false;                     // One slab takes the whole segment.
  bool discarded = false;                  // Nothing is taken from it any more.
  std::unique_ptr<fabric::Region> region;  // Constant once the segment is in segments_.
  std::shared_ptr<const void> hooked;      // What the hook returned; goes before the region.
  // The enrollments have a lock of their own, so that a peer that is let in holds up nobody. They
  // come after the region, so that their accesses are destroyed first.
  Enrollments enrollments;
  std::map<std::uint64_t, std::uint64_t> free;  // Offset → length; neighbours are joined.
  std::map<std::uint64_t, std::uint64_t> used;  // Offset → length asked for.
  base::MonotonicTime empty_since{};

  [[nodiscard]] std::uint64_t size() const { return region->bytes().size(); }
};
using Retired = std::vector<std::shared_ptr<Segment>>;

absl::Status Full(std::uint64_t bytes, std::uint64_t limit) {
  return base::MakeError(absl::StatusCode::kResourceExhausted, "VALUE_MEMORY_FULL",
                         "no room for " + std::to_string(bytes) + " bytes in the " +
                             std::to_string(limit) + " bytes of memory for values");
}

class SlabsImpl final : public Slabs, public std::enable_shared_from_this<SlabsImpl> {
 public:
  SlabsImpl(fabric::Fabric& fabric, SlabsOptions options, base::Clock& clock)
      : fabric_(fabric),
        options_(std::move(options)),
        clock_(clock),
        limit_bytes_(options_.limit_bytes) {}

  absl::StatusOr<Slab> Take(std::uint64_t bytes) override;
  void SetLimit(std::uint64_t bytes) override { limit_bytes_ = bytes; }
  std::uint64_t max_bytes() const override {
    const std::uint64_t limit = limit_bytes_.load();
    const std::uint64_t step = SingleStep(limit);
    return limit / step * step;
  }
  std::optional<Place> PlaceOf(std::span<const std::byte> bytes) const override;
  absl::StatusOr<fabric::RemoteRegion> Enroll(std::uint32_t segment, const std::string& peer,
                                              const fabric::Offer& offer,
                                              fabric::Rights rights) override;
  bool Fence(std::uint32_t segment, const std::string& peer) override;
  void Discard(std::uint32_t segment) override;
  void Trim() override;
  SlabsStats stats() const override;

 private:
  // A slab before it has an owner.
  struct Cut {
    Place place;
    std::byte* data = nullptr;
  };
  bool IsLarge(std::uint64_t bytes) const { return bytes > options_.segment_bytes / 4; }
  static std::uint64_t Rounded(std::uint64_t bytes) { return RoundUp(bytes, kAlignBytes); }
  // Rounds coarsely, so that the segment of one large value fits others that are about as large.
  static std::uint64_t SingleBytes(std::uint64_t bytes) {
    return RoundUp(bytes, SingleStep(bytes));
  }
  static std::uint64_t SingleStep(std::uint64_t bytes) {
    return std::max(std::bit_floor(bytes) / 16, kAlignBytes);
  }
  absl::Status Grow(std::uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(grow_mutex_);
  std::optional<Cut> CutFrom(std::uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Cut CutAt(Segment& segment, std::uint64_t offset, std::uint64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddFree(Segment& segment, std::uint64_t offset, std::uint64_t length)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveFree(Segment& segment, std::uint64_t offset, std::uint64_t length)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Retire(std::uint32_t id, Retired& retired) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RetireLongEmpty(Retired& retired) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::uint64_t EmptyBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns null when the segment is gone.
  std::shared_ptr<Segment> Find(std::uint32_t id) const;

  void GiveBack(const Place& place);

  fabric::Fabric& fabric_;
  const SlabsOptions options_;
  base::Clock& clock_;
  std::atomic<std::uint64_t> limit_bytes_;
  base::Mutex grow_mutex_;  // Held while a segment is registered.
  // What the last registration said, and when the next one may be tried.
  absl::Status refused_ ABSL_GUARDED_BY(grow_mutex_);
  base::MonotonicTime again_ ABSL_GUARDED_BY(grow_mutex_){};
  mutable base::Mutex mutex_ ABSL_ACQUIRED_AFTER(grow_mutex_);
  // Shared with the calls that let a peer into a segment, or fence one, at the moment.
  std::map<std::uint32_t, std::shared_ptr<Segment>> segments_ ABSL_GUARDED_BY(mutex_);
  std::map<const std::byte*, Segment*> by_address_ ABSL_GUARDED_BY(mutex_);
  // (length, segment, offset) of the free extents in segments of many slabs.
  std::set<std::tuple<std::uint64_t, std::uint32_t, std::uint64_t>> free_ ABSL_GUARDED_BY(mutex_);
  // Segments without slabs, the longest empty first.
  std::deque<std::uint32_t> empty_ ABSL_GUARDED_BY(mutex_);
  SlabsStats stats_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<Slabs::Slab> SlabsImpl::Take(std::uint64_t bytes) {
  if (bytes == 0) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_SIZE", "a slab of no bytes");
  }
  if (const std::uint64_t limit = limit_bytes_.load(); bytes > limit) return Full(bytes, limit);
  const auto try_cut = [&] {
    const base::MutexLock lock(mutex_);
    return CutFrom(bytes);
  };
  std::optional<Cut> cut = try_cut();
  if (!cut.has_value()) {
    const base::MutexLock grow(grow_mutex_);
    // Another thread that held the lock may have made room. Between Grow and the next try a faster
    // thread may take the new room, so there are a few rounds.
    for (int round = 0; round < 3 && !cut.has_value(); ++round) {
      if (cut = try_cut(); cut.has_value()) break;
      ONEPIECE_RETURN_IF_ERROR(Grow(bytes));
      cut = try_cut();
    }
    if (!cut.has_value()) return Full(bytes, limit_bytes_.load());
  }
  auto give_back = [self = shared_from_this(), place = cut->place](std::byte*) {
    self->GiveBack(place);
  };
  return Slab{.owner = std::shared_ptr<const void>(cut->data, std::move(give_back)),
              .bytes = {cut->data, bytes},
              .place = cut->place};
}

std::optional<SlabsImpl::Cut> SlabsImpl::CutFrom(std::uint64_t bytes) {
  if (IsLarge(bytes)) {
    for (const std::uint32_t id : empty_) {
      Segment& segment = *segments_.at(id);
      if (segment.single && segment.size() == SingleBytes(bytes)) return CutAt(segment, 0, bytes);
    }
    return std::nullopt;
  }
  // The tightest fit keeps large extents large.
  const auto fit = free_.lower_bound({Rounded(bytes), 0, 0});
  if (fit == free_.end()) return std::nullopt;
  const auto [length, id, offset] = *fit;
  return CutAt(*segments_.at(id), offset, bytes);
}

SlabsImpl::Cut SlabsImpl::CutAt(Segment& segment, std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t taken = segment.single ? segment.size() : Rounded(bytes);
  const std::uint64_t room = segment.free.at(offset);
  RemoveFree(segment, offset, room);
  if (room > taken) AddFree(segment, offset + taken, room - taken);
  if (segment.used.empty()) std::erase(empty_, segment.id);
  segment.used.emplace(offset, bytes);
  stats_.used_bytes += bytes;
  stats_.taken_bytes += taken;
  ++stats_.slabs;
  return {.place = {.segment = segment.id, .offset = offset, .length = bytes},
          .data = segment.region->bytes().data() + offset};
}

void SlabsImpl::AddFree(Segment& segment, std::uint64_t offset, std::uint64_t length) {
  segment.free.emplace(offset, length);
  if (!segment.single && !segment.discarded) free_.emplace(length, segment.id, offset);
}

void SlabsImpl::RemoveFree(Segment& segment, std::uint64_t offset, std::uint64_t length) {
  segment.free.erase(offset);
  if (!segment.single) free_.erase({length, segment.id, offset});
}

absl::Status SlabsImpl::Grow(std::uint64_t bytes) {
  if (!refused_.ok() && clock_.Now() < again_) return refused_;
  const bool single = IsLarge(bytes);
  std::uint64_t size = single ? SingleBytes(bytes) : Rounded(options_.segment_bytes);
  const std::uint64_t least = single ? size : Rounded(bytes);
  const std::uint64_t limit = limit_bytes_.load();
  Retired retired;  // Freed before the new segment is made.
  {
    const base::MutexLock lock(mutex_);
    // Empty segments that are kept for later give way to the one that is needed now.
    while (stats_.registered_bytes + size > limit && !empty_.empty()) {
      Retire(empty_.front(), retired);
    }
    const std::uint64_t left = limit - std::min(limit, stats_.registered_bytes);
    size = std::min(size, left / kAlignBytes * kAlignBytes);
    if (size < least) return Full(bytes, limit);
    stats_.registered_bytes += size;
  }
  retired.clear();
  auto region = fabric_.Register(size, options_.label);
  refused_ = region.status();
  again_ = clock_.Now() + kRegisterPause;
  if (!region.ok()) {
    const base::MutexLock lock(mutex_);
    stats_.registered_bytes -= size;
    return region.status();
  }
  std::unique_ptr<fabric::Region> fresh = *std::move(region);
  std::shared_ptr<const void> hooked = options_.hook ? options_.hook(fresh->bytes()) : nullptr;
  const base::MutexLock lock(mutex_);
  auto segment = std::make_shared<Segment>();
  segment->id = NextSegmentId();
  segment->single = single;
  segment->empty_since = clock_.Now();
  segment->region = std::move(fresh);
  segment->hooked = std::move(hooked);
  AddFree(*segment, 0, size);
  empty_.push_back(segment->id);
  by_address_.emplace(segment->region->bytes().data(), segment.get());
  segments_.emplace(segment->id, std::move(segment));
  ++stats_.segments;
  return absl::OkStatus();
}

void SlabsImpl::GiveBack(const Place& place) {
  Retired retired;  // Freed without the lock.
  const base::MutexLock lock(mutex_);
  // The segment is still here: only segments in empty_ are retired, and they have no slabs.
  Segment& segment = *segments_.at(place.segment);
  segment.used.erase(place.offset);
  std::uint64_t offset = place.offset;
  std::uint64_t length = segment.single ? segment.size() : Rounded(place.length);
  stats_.used_bytes -= place.length;
  stats_.taken_bytes -= length;
  --stats_.slabs;
  const auto next = segment.free.find(offset + length);
  if (next != segment.free.end()) {
    const std::uint64_t joined = next->second;
    RemoveFree(segment, offset + length, joined);
    length += joined;
  }
  auto before = segment.free.lower_bound(offset);
  if (before != segment.free.begin()) {
    --before;
    const auto [start, room] = *before;
    if (start + room == offset) {
      RemoveFree(segment, start, room);
      offset = start;
      length += room;
    }
  }
  AddFree(segment, offset, length);
  if (!segment.used.empty()) return;
  segment.empty_since = clock_.Now();
  empty_.push_back(segment.id);
  if (segment.discarded) return Retire(place.segment, retired);
  RetireLongEmpty(retired);
}

void SlabsImpl::Discard(std::uint32_t id) {
  Retired retired;  // Freed without the lock.
  const base::MutexLock lock(mutex_);
  const auto found = segments_.find(id);
  if (found == segments_.end()) return;
  Segment& segment = *found->second;
  segment.discarded = true;
  for (const auto& [offset, length] : segment.free) free_.erase({length, id, offset});
  if (segment.used.empty()) Retire(id, retired);
}

void SlabsImpl::Trim() {
  Retired retired;  // Freed without the lock.
  std::vector<std::shared_ptr<Segment>> rest;
  {
    const base::MutexLock lock(mutex_);
    RetireLongEmpty(retired);
    for (const auto& [id, segment] : segments_) rest.push_back(segment);
  }
  for (const std::shared_ptr<Segment>& segment : rest) segment->enrollments.DropDead();
}

void SlabsImpl::RetireLongEmpty(Retired& retired) {
  const base::MonotonicTime before = clock_.Now() - options_.keep_time;
  while (EmptyBytes() > options_.keep_bytes &&
         segments_.at(empty_.front())->empty_since <= before) {
    Retire(empty_.front(), retired);
  }
}

std::uint64_t SlabsImpl::EmptyBytes() const {
  std::uint64_t bytes = 0;
  for (const std::uint32_t id : empty_) bytes += segments_.at(id)->size();
  return bytes;
}

void SlabsImpl::Retire(std::uint32_t id, Retired& retired) {
  const auto found = segments_.find(id);
  Segment& segment = *found->second;
  stats_.registered_bytes -= segment.size();
  --stats_.segments;
  // GiveBack joins neighbours, so an empty segment is one free extent.
  RemoveFree(segment, 0, segment.size());
  by_address_.erase(segment.region->bytes().data());
  std::erase(empty_, id);
  retired.push_back(std::move(found->second));
  segments_.erase(found);
}

std::shared_ptr<Segment> SlabsImpl::Find(std::uint32_t id) const {
  const base::MutexLock lock(mutex_);
  const auto found = segments_.find(id);
  return found == segments_.end() ? nullptr : found->second;
}

std::optional<Place> SlabsImpl::PlaceOf(std::span<const std::byte> bytes) const {
  const base::MutexLock lock(mutex_);
  auto above = by_address_.upper_bound(bytes.data());
  if (above == by_address_.begin()) return std::nullopt;
  const auto& [begin, segment] = *--above;
  // When `bytes` is other memory, the difference is beyond every slab of the segment.
  const auto offset = static_cast<std::uint64_t>(bytes.data() - begin);
  auto slab = segment->used.upper_bound(offset);
  if (slab == segment->used.begin()) return std::nullopt;
  --slab;
  const std::uint64_t end = slab->first + slab->second;
  if (offset > end || bytes.size() > end - offset) return std::nullopt;
  return Place{.segment = segment->id, .offset = offset, .length = bytes.size()};
}

absl::StatusOr<fabric::RemoteRegion> SlabsImpl::Enroll(std::uint32_t id, const std::string& peer,
                                                       const fabric::Offer& offer,
                                                       fabric::Rights rights) {
  const std::shared_ptr<Segment> segment = Find(id);
  if (segment == nullptr) {
    return base::MakeError(absl::StatusCode::kNotFound, "SEGMENT_UNKNOWN",
                           "segment " + std::to_string(id) + " is gone; look the value up again");
  }
  return segment->enrollments.Enroll(*segment->region, peer, offer, rights);
}

bool SlabsImpl::Fence(std::uint32_t id, const std::string& peer) {
  const std::shared_ptr<Segment> segment = Find(id);
  return segment == nullptr || segment->enrollments.Fence(peer);
}

SlabsStats SlabsImpl::stats() const {
  const base::MutexLock lock(mutex_);
  return stats_;
}

}  // namespace

std::shared_ptr<Slabs> Slabs::Create(fabric::Fabric& fabric, SlabsOptions options,
                                     base::Clock& clock) {
  return std::make_shared<SlabsImpl>(fabric, std::move(options), clock);
}

}  // namespace onepiece::values
