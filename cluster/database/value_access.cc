#include "cluster/database/value_access.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "cluster/base/crc32c.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/job/job_record.h"
#include "cluster/message/layout.h"
#include "cluster/values/no_room.h"

namespace onepiece::database {
namespace {

/// Memory on top of the budget, for results that arrive while the budget is full and for
/// fragmentation.
constexpr std::uint64_t kHeadRoomBytes = std::uint64_t{256} << 20;
/// The index has one entry for this many bytes of budget. Smaller results are cheap to send by
/// message, so they need not all be in the index.
constexpr std::int64_t kBytesPerIndexed = 16384;
constexpr std::int64_t kLeastIndexed = 1024;
constexpr std::size_t kMaxNodeBytes = 128;
constexpr std::size_t kMaxMediaTypeBytes = 127;
constexpr std::size_t kSha256HexBytes = 64;
constexpr std::int64_t kMaxBytes = message::kMaxMessageBytes;

absl::Status Bad(std::string_view reason, std::string_view field, const std::string& what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, reason, what,
                         {{"field", std::string(field)}});
}

absl::Status CheckNode(const std::string& node_id, std::string_view field) {
  if (!node_id.empty() && node_id.size() <= kMaxNodeBytes) return absl::OkStatus();
  return Bad("BAD_NODE", field, "a node id has 1 to 128 bytes");
}

constexpr std::int64_t Aligned(std::int64_t bytes) {
  constexpr std::int64_t kArtifactAlign = message::kArtifactAlignBytes;
  return (bytes + kArtifactAlign - 1) / kArtifactAlign * kArtifactAlign;
}

bool IsLowerHex(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

absl::Status CheckArtifact(const v1::ResultArtifact& artifact) {
  const auto bad = [](const std::string& what) { return Bad("BAD_ARTIFACTS", "artifacts", what); };
  const std::string& name = artifact.artifact();
  if (name.empty() || name.size() > message::kNameBytes || name.find('\0') != std::string::npos) {
    return bad("an artifact's name has 1 to 64 bytes");
  }
  const bool printable =
      std::ranges::all_of(artifact.media_type(), [](char c) { return c > ' ' && c < 0x7f; });
  if (artifact.media_type().size() > kMaxMediaTypeBytes || !printable) {
    return bad("artifact '" + name + "' has a bad media type");
  }
  if (artifact.size_bytes() < 0 || artifact.size_bytes() > kMaxBytes) {
    return bad("artifact '" + name + "' has an absurd size");
  }
  if (artifact.sha256().size() != kSha256HexBytes || !IsLowerHex(artifact.sha256())) {
    return bad("artifact '" + name + "' has no SHA-256 of 64 hex digits");
  }
  return absl::OkStatus();
}

/// Checks the artifacts of a request and returns where the last one ends.
absl::StatusOr<std::int64_t> CheckArtifacts(const v1::ReserveResultRequest& request) {
  if (request.artifacts().empty() ||
      request.artifacts_size() > static_cast<int>(message::kMaxArtifacts)) {
    return Bad("BAD_ARTIFACTS", "artifacts", "a result has 1 to 256 artifacts");
  }
  std::set<std::string_view> names;
  std::int64_t end = 0;
  for (const v1::ResultArtifact& artifact : request.artifacts()) {
    ONEPIECE_RETURN_IF_ERROR(CheckArtifact(artifact));
    if (!names.insert(artifact.artifact()).second) {
      return Bad("BAD_ARTIFACTS", "artifacts", "two artifacts '" + artifact.artifact() + "'");
    }
    end = Aligned(end) + artifact.size_bytes();
    if (end > kMaxBytes) return Bad("BAD_ARTIFACTS", "artifacts", "larger than 4 GiB");
  }
  if (end == 0) return Bad("BAD_ARTIFACTS", "artifacts", "there are no bytes to write");
  return end;
}

// Accepts times up to 2200-01-01, as messages do.
bool IsSane(const google::protobuf::Timestamp& time) {
  return time.seconds() >= 0 && time.seconds() <= 7'258'118'400 && time.nanos() >= 0 &&
         time.nanos() < 1'000'000'000;
}

absl::StatusOr<ResultBundle> BundleOf(const v1::ReserveResultRequest& request,
                                      base::MonotonicTime now) {
  const auto uid = base::Uid::Parse(request.uid());
  if (!uid.has_value()) return Bad("BAD_UID", "uid", "malformed uid");
  if (request.app_id().size() >= message::kNameBytes) {
    return Bad("BAD_APP", "app_id", "an application id has at most 63 bytes");
  }
  if (!IsSane(request.create_time())) {
    return Bad("BAD_TIME", "create_time", "the time is out of range");
  }
  ResultBundle bundle;
  bundle.uid = *uid;
  bundle.app_id = request.app_id();
  bundle.run = request.run();
  bundle.ingress_time = job::FromTimestamp(request.create_time());
  bundle.deadline = now + job::FromProto(request.time_left());
  for (const v1::ResultArtifact& artifact : request.artifacts()) {
    bundle.artifacts.push_back({.info = artifact});
    bundle.total_bytes += artifact.size_bytes();
  }
  return bundle;
}

/// Sets the checksums of the artifacts and returns that of all bytes, in one pass.
std::uint32_t ReadChecksums(std::span<const std::byte> bytes,
                            std::vector<StoredArtifact>& artifacts) {
  std::uint32_t all = 0;
  std::size_t at = 0;
  for (StoredArtifact& artifact : artifacts) {
    const auto begin = static_cast<std::size_t>(Aligned(static_cast<std::int64_t>(at)));
    all = base::ExtendCrc32c(all, bytes.subspan(at, begin - at));
    artifact.crc32c = base::Crc32c(artifact.data.bytes());
    all = base::CombineCrc32c(all, artifact.crc32c, artifact.data.size());
    at = begin + artifact.data.size();
  }
  return all;
}

}  // namespace

absl::Status MemoryFull(std::int64_t bytes) {
  return base::MakeError(absl::StatusCode::kResourceExhausted, values::kMemoryFull,
                         "no room for a result of " + std::to_string(bytes) +
                             " bytes in this database's memory now: try another one, or again");
}

absl::StatusOr<std::unique_ptr<ValueAccess>> ValueAccess::Create(fabric::Fabric& fabric,
                                                                 const ValueAccessOptions& options,
                                                                 base::Clock& clock) {
  const std::int64_t indexed = std::max(
      std::min(options.max_records, options.budget_bytes / kBytesPerIndexed), kLeastIndexed);
  ONEPIECE_ASSIGN_OR_RETURN(
      auto index, values::ValueIndex::Create(fabric, static_cast<std::uint64_t>(indexed)));
  auto slabs = values::Slabs::Create(
      fabric, {.limit_bytes = static_cast<std::uint64_t>(options.budget_bytes) + kHeadRoomBytes},
      clock);
  return std::unique_ptr<ValueAccess>(
      new ValueAccess(std::move(slabs), std::move(index), options.budget_bytes, clock));
}

ValueAccess::ValueAccess(std::shared_ptr<values::Slabs> slabs,
                         std::unique_ptr<values::ValueIndex> index, std::int64_t budget_bytes,
                         base::Clock& clock)
    : budget_bytes_(budget_bytes),
      slabs_(std::move(slabs)),
      index_(std::move(index)),
      reservations_(slabs_,
                    {.budget_bytes = static_cast<std::uint64_t>(budget_bytes),
                     .max_open = kMaxReservations,
                     .lease = kReservationTtl,
                     .fence_limit = kFenceLimit},
                    clock),
      clock_(clock) {}

void ValueAccess::SetBudget(std::int64_t bytes) {
  budget_bytes_ = bytes;
  slabs_->SetLimit(static_cast<std::uint64_t>(bytes) + kHeadRoomBytes);
  reservations_.SetBudget(static_cast<std::uint64_t>(bytes));
}

void ValueAccess::Serve(const base::Uid& uid, const std::vector<StoredArtifact>* artifacts) {
  const base::MutexLock lock(served_mutex_);
  if (const auto before = served_.extract(uid); !before.empty()) {
    for (std::uint32_t i = 0; i < before.mapped(); ++i) index_->Remove({uid, i});
  }
  if (artifacts == nullptr) return;
  bool any = false;
  for (std::uint32_t i = 0; i < artifacts->size(); ++i) {
    const StoredArtifact& artifact = (*artifacts)[i];
    const auto place = slabs_->PlaceOf(artifact.data.bytes());
    // Put fails when its bucket is full. Peers then ask for the value by message.
    any |= place.has_value() && index_->Put({uid, i}, {*place, artifact.crc32c});
  }
  if (any) served_.emplace(uid, static_cast<std::uint32_t>(artifacts->size()));
}

absl::StatusOr<v1::OpenSegmentResponse> ValueAccess::OpenSegment(
    const v1::OpenSegmentRequest& request) {
  ONEPIECE_RETURN_IF_ERROR(CheckNode(request.node_id(), "node_id"));
  ONEPIECE_ASSIGN_OR_RETURN(const fabric::Offer offer, fabric::Offer::Parse(request.offer()));
  // Whoever has reserved room in a segment writes there, everybody else reads.
  const bool writes = reservations_.Writes(request.node_id(), request.segment());
  auto region = request.segment() == 0 ? index_->Enroll(request.node_id(), offer)
                                       : slabs_->Enroll(request.segment(), request.node_id(), offer,
                                                        writes ? fabric::Rights::kReadWrite
                                                               : fabric::Rights::kReadOnly);
  if (!region.ok()) return region.status();
  v1::OpenSegmentResponse response;
  response.set_region(region->Serialize());
  return response;
}

absl::Status ValueAccess::CheckRoom(const Awaited& awaited, std::int64_t bytes,
                                    const Store& store) const {
  if (bytes > budget_bytes_) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, values::kBudgetExceeded,
                           "a result of " + std::to_string(bytes) +
                               " bytes never fits into a database's memory (budget_bytes, " +
                               std::to_string(budget_bytes_) + "): raise that setting");
  }
  // Spares the writer a transfer that the store would refuse. What becomes of a replica is the
  // store's to say.
  if (awaited.kind == message::Kind::kResult && !store.has_room(awaited.bundle.total_bytes))
    return MemoryFull(awaited.bundle.total_bytes);
  return reservations_.CheckRoom(static_cast<std::uint64_t>(bytes));
}

absl::StatusOr<v1::ReserveResultResponse> ValueAccess::Reserve(
    const v1::ReserveResultRequest& request, const Store& store) {
  ONEPIECE_RETURN_IF_ERROR(CheckNode(request.sender(), "sender"));
  ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t length, CheckArtifacts(request));
  Awaited awaited;
  awaited.kind = request.replica() ? message::Kind::kReplica : message::Kind::kResult;
  ONEPIECE_ASSIGN_OR_RETURN(awaited.bundle, BundleOf(request, clock_.Now()));
  v1::ReserveResultResponse response;
  if (!store.wants(awaited.bundle.uid)) return response;
  ONEPIECE_RETURN_IF_ERROR(CheckRoom(awaited, length, store));
  ONEPIECE_ASSIGN_OR_RETURN(values::Slabs::Slab slab,
                            slabs_->Take(static_cast<std::uint64_t>(length)));
  std::int64_t at = 0;
  for (StoredArtifact& artifact : awaited.bundle.artifacts) {
    const auto size = static_cast<std::size_t>(artifact.info.size_bytes());
    at = Aligned(at);
    artifact.data = {slab.owner, slab.bytes.subspan(static_cast<std::size_t>(at), size)};
    at += artifact.info.size_bytes();
  }
  response.set_segment(slab.place.segment);
  response.set_offset(slab.place.offset);
  response.set_length(slab.place.length);
  ONEPIECE_ASSIGN_OR_RETURN(
      const std::uint64_t id,
      reservations_.Add({request.sender(), std::move(slab), std::move(awaited)}));
  response.set_reservation(id);
  return response;
}

absl::StatusOr<v1::CommitResultResponse> ValueAccess::Commit(const v1::CommitResultRequest& request,
                                                             const Store& store) {
  v1::CommitResultResponse response;
  if (request.abandon() && reservations_.GiveUp(request.reservation())) return response;
  auto reservation = reservations_.Take(request.reservation());
  if (!reservation.has_value()) {
    return base::MakeError(absl::StatusCode::kNotFound, "RESERVATION_UNKNOWN",
                           "no such reservation (they last 10 s); send the result by message");
  }
  auto awaited = std::any_cast<Awaited>(std::move(reservation->note));
  if (ReadChecksums(reservation->slab.bytes, awaited.bundle.artifacts) == request.crc32c()) {
    ONEPIECE_ASSIGN_OR_RETURN(const bool stored,
                              store.keep(awaited.bundle, awaited.kind, reservation->sender));
    response.set_stored(stored);
    return response;
  }
  // The writer is fenced, so that a write that is still on its way cannot land in another value.
  (void)slabs_->Fence(reservation->slab.place.segment, reservation->sender);
  return base::MakeError(absl::StatusCode::kDataLoss, "BAD_CHECKSUM",
                         "the reserved bytes are not those of the checksum");
}

void ValueAccess::Sweep() {
  slabs_->Trim();
  index_->Trim();
  reservations_.Expire();
  reservations_.Reclaim();
}

std::size_t ValueAccess::reservations() const { return reservations_.stats().open; }

}  // namespace onepiece::database
