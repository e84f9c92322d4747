#include "cluster/fabric/shm/shm_fabric.h"

#include <dirent.h>
#include <sys/mman.h>

#include <charconv>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/fabric/process.h"
#include "cluster/fabric/shm/segment.h"
#include "cluster/fabric/wire.h"

namespace onepiece::fabric {
namespace {

constexpr char kBackend[] = "shm";
constexpr char kShmFolder[] = "/dev/shm";
// The size of a doorbell's segment. The doorbell's word is in the header, so the least size will
// do.
constexpr std::uint64_t kDoorbellBytes = sizeof(std::uint64_t);
// A sender notices within this time that the region's owner is dead.
constexpr base::Duration kOwnerCheckInterval = std::chrono::milliseconds(10);
// A chain checks its deadline when it starts, and after each write of at least this many bytes.
constexpr std::uint64_t kLongBytes = 65536;

// Names are /onepiece.CLUSTER.PID-START-RANDOM.LABEL, so that people see whose a segment is.
std::string NamePrefix(std::string_view cluster_id) {
  // A cluster id has no dot. So no cluster's prefix begins another one's, and UnlinkStale leaves
  // the segments of other clusters alone.
  return "/onepiece." + std::string(cluster_id) + ".";
}

std::string Hex(std::uint64_t value) {
  char text[17];
  const auto end = std::to_chars(text, text + sizeof text, value, 16).ptr;
  return {text, end};
}

absl::Status InvalidArgument(const char* reason, const std::string& message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, reason, message);
}

// A doorbell lives in a segment of its own, so that it can serve several regions and outlive each.
class ShmDoorbell final : public Doorbell {
 public:
  ShmDoorbell(std::shared_ptr<ShmSegment> segment, std::string name)
      : segment_(std::move(segment)), name_(std::move(name)) {}
  ~ShmDoorbell() override { shm_unlink(name_.c_str()); }
  ShmDoorbell(const ShmDoorbell&) = delete;
  ShmDoorbell& operator=(const ShmDoorbell&) = delete;

  std::uint32_t count() const override { return segment_->doorbell(); }
  void Wait(std::uint32_t seen, base::Duration limit) override {
    segment_->WaitDoorbell(seen, limit);
  }
  void Ring() override { segment_->RingDoorbell(); }
  /// A peer attaches the doorbell with this. It travels in RemoteRegion::details.
  std::string Details() const {
    std::string out;
    AppendText(out, name_);
    AppendU64(out, segment_->key());
    return out;
  }

 private:
  const std::shared_ptr<ShmSegment> segment_;
  const std::string name_;
};

class ShmAccess final : public Access {
 public:
  ShmAccess(RemoteRegion remote, const PeerIdentity& peer, std::unique_ptr<ProcessWatch> watch)
      : remote_(std::move(remote)), peer_(peer), watch_(std::move(watch)) {}
  const RemoteRegion& remote() const override { return remote_; }
  const PeerIdentity& peer() const override { return peer_; }
  bool PeerIsDead() const override { return watch_->IsDead(); }
  // A mapping cannot be taken from a living process.
  bool Revoke() override { return watch_->IsDead(); }

 private:
  const RemoteRegion remote_;
  const PeerIdentity peer_;
  const std::unique_ptr<ProcessWatch> watch_;
};

class ShmRegion final : public Region {
 public:
  ShmRegion(std::shared_ptr<ShmSegment> segment, std::string name,
            std::shared_ptr<ShmDoorbell> doorbell)
      : segment_(std::move(segment)),
        doorbell_(std::move(doorbell)),
        remote_{.backend = kBackend,
                .address = std::move(name),
                .length_bytes = segment_->bytes().size(),
                .key = segment_->key(),
                .details = doorbell_ != nullptr ? doorbell_->Details() : std::string()} {}
  ~ShmRegion() override {
    // shm_unlink takes only the name away: a peer keeps what it has mapped. The flag breaks its
    // channel.
    segment_->Retire();
    shm_unlink(remote_.address.c_str());
  }
  ShmRegion(const ShmRegion&) = delete;
  ShmRegion& operator=(const ShmRegion&) = delete;

  std::span<std::byte> bytes() override { return segment_->bytes(); }

  absl::StatusOr<std::unique_ptr<Access>> Accept(const Offer& offer, Rights rights) override {
    if (offer.backend != kBackend || offer.peer.host != SelfIdentity().host) {
      return InvalidArgument("WRONG_FABRIC", "the offer is not of shared memory on this host");
    }
    ONEPIECE_ASSIGN_OR_RETURN(auto watch, WatchLivingPeer(offer.peer));
    RemoteRegion remote = remote_;
    remote.rights = rights;
    // Ringing writes into the doorbell's segment.
    if (rights == Rights::kReadOnly) remote.details.clear();
    return std::make_unique<ShmAccess>(std::move(remote), offer.peer, std::move(watch));
  }

 private:
  const std::shared_ptr<ShmSegment> segment_;
  const std::shared_ptr<ShmDoorbell> doorbell_;
  const RemoteRegion remote_;
};

class ShmChannel final : public Channel {
 public:
  /// `doorbell` may be null.
  ShmChannel(std::shared_ptr<ShmSegment> segment, std::shared_ptr<ShmSegment> doorbell,
             std::unique_ptr<ProcessWatch> owner, Rights rights, base::Clock& clock)
      : Channel(segment->bytes().size(), rights),
        segment_(std::move(segment)),
        doorbell_(std::move(doorbell)),
        memory_(segment_->bytes().data()),
        owner_(std::move(owner)),
        clock_(clock) {}

 protected:
  absl::Status Run(std::span<const Op> chain, base::MonotonicTime deadline) override {
    base::MonotonicTime now = clock_.Now();
    ONEPIECE_RETURN_IF_ERROR(CheckOwner(now));
    for (std::size_t i = 0; i < chain.size(); ++i) {
      if (now >= deadline) {
        return base::MakeError(absl::StatusCode::kDeadlineExceeded, "CHAIN_TIMEOUT",
                               std::string("deadline passed before operation ") + chain[i].name);
      }
      Do(chain[i], FencedLater(chain.subspan(i + 1)));
      if (chain[i].kind == Op::Kind::kWrite && chain[i].size_bytes() >= kLongBytes) {
        now = clock_.Now();
      }
    }
    CountPosted(chain.size(), 1);
    return absl::OkStatus();
  }

 private:
  // Others see the stores of one chain in their order anyway. The stores must be globally visible
  // only before the chain reads, and that fence costs as much as all the rest of a small message.
  // Returns true when a later operation of the chain fences before any of them reads.
  static bool FencedLater(std::span<const Op> rest) {
    for (const Op& op : rest) {
      switch (op.kind) {
        case Op::Kind::kWrite:
          continue;
        case Op::Kind::kWriteWords:
        case Op::Kind::kCompareAndSwap:
        case Op::Kind::kFetchAdd:
          return true;
        case Op::Kind::kRead:
        case Op::Kind::kReadWords:
        case Op::Kind::kNotify:
          return false;
      }
    }
    return false;
  }

  absl::Status CheckOwner(base::MonotonicTime now) {
    if (segment_->retired()) {
      return base::MakeError(absl::StatusCode::kUnavailable, "REGION_RETIRED",
                             "the region was retired by its owner");
    }
    if (now < next_owner_check_) return absl::OkStatus();
    next_owner_check_ = now + kOwnerCheckInterval;
    if (!owner_->IsDead()) return absl::OkStatus();
    return base::MakeError(absl::StatusCode::kUnavailable, "PEER_GONE",
                           "the region's owner is dead");
  }

  void Do(const Op& op, bool fenced_later) {
    std::byte* at = memory_ + op.offset;
    switch (op.kind) {
      case Op::Kind::kWrite:
        for (const auto& piece : op.pieces) {
          if (!piece.empty()) std::memcpy(at, piece.data(), piece.size());
          at += piece.size();
        }
        break;
      case Op::Kind::kWriteWords:
        StoreWords(at, op.words,
                   fenced_later ? std::memory_order_release : std::memory_order_seq_cst);
        break;
      case Op::Kind::kRead:
        if (!op.into.empty()) std::memcpy(op.into.data(), at, op.into.size());
        break;
      case Op::Kind::kReadWords:
        LoadWords(at, op.words_into);
        break;
      case Op::Kind::kCompareAndSwap: {
        // A swap that succeeds leaves `seen` alone, and then `compare` is the former value.
        std::uint64_t seen = op.compare;
        std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(at))
            .compare_exchange_strong(seen, op.value);
        *op.old_value = seen;
        break;
      }
      case Op::Kind::kFetchAdd:
        *op.old_value = std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(at))
                            .fetch_add(op.value);
        break;
      case Op::Kind::kNotify:
        if (doorbell_ != nullptr) doorbell_->RingDoorbell();
        break;
    }
  }

  const std::shared_ptr<ShmSegment> segment_;
  const std::shared_ptr<ShmSegment> doorbell_;
  std::byte* const memory_;
  const std::unique_ptr<ProcessWatch> owner_;
  base::Clock& clock_;
  base::MonotonicTime next_owner_check_{};
};

class ShmDialer final : public Dialer {
 public:
  ShmDialer(std::string prefix, base::Clock& clock)
      : prefix_(std::move(prefix)),
        clock_(clock),
        offer_{.backend = kBackend, .peer = SelfIdentity(), .details = {}} {}
  const Offer& offer() const override { return offer_; }

  absl::StatusOr<std::unique_ptr<Channel>> Connect(const RemoteRegion& remote) override {
    if (remote.backend != kBackend) {
      return InvalidArgument("WRONG_FABRIC", "a region of " + remote.backend + ", not of shm");
    }
    ONEPIECE_ASSIGN_OR_RETURN(auto segment, Attach(remote));
    std::shared_ptr<ShmSegment> doorbell;
    if (!remote.details.empty()) {
      WireReader reader(remote.details);
      RemoteRegion bell{.backend = kBackend, .length_bytes = kDoorbellBytes};
      bell.address = reader.Text(remote.details.size());
      bell.key = reader.U64();
      if (!reader.Finished()) return InvalidArgument("WRONG_REGION", "malformed details");
      ONEPIECE_ASSIGN_OR_RETURN(doorbell, Attach(bell));
    }
    // A dead owner's segment stays in /dev/shm until UnlinkStale, so a mapping does not prove that
    // the owner lives.
    ONEPIECE_ASSIGN_OR_RETURN(auto owner, WatchProcess(segment->owner()));
    if (owner->IsDead()) {
      return base::MakeError(absl::StatusCode::kUnavailable, "PEER_GONE",
                             "the region's owner is dead");
    }
    return std::make_unique<ShmChannel>(std::move(segment), std::move(doorbell), std::move(owner),
                                        remote.rights, clock_);
  }

 private:
  absl::StatusOr<std::shared_ptr<ShmSegment>> Attach(const RemoteRegion& remote) const {
    // The name came over the control plane, and must not open a segment of another cluster.
    if (!remote.address.starts_with(prefix_) || remote.address.find('/', 1) != std::string::npos) {
      return InvalidArgument("WRONG_FABRIC",
                             "region " + remote.address + " is not of this cluster");
    }
    ONEPIECE_ASSIGN_OR_RETURN(auto segment, ShmSegment::Attach(remote));
    if (segment->retired()) {
      return base::MakeError(absl::StatusCode::kUnavailable, "REGION_RETIRED",
                             "the region was retired by its owner");
    }
    return segment;
  }

  const std::string prefix_;
  base::Clock& clock_;
  const Offer offer_;
};

class ShmFabric final : public Fabric {
 public:
  ShmFabric(std::string_view cluster_id, base::Clock& clock)
      : prefix_(NamePrefix(cluster_id)), clock_(clock) {}

  base::Clock& clock() const override { return clock_; }
  absl::StatusOr<std::shared_ptr<Doorbell>> MakeDoorbell(std::string_view label) override {
    std::string name;
    ONEPIECE_ASSIGN_OR_RETURN(auto segment, NewSegment(kDoorbellBytes, label, name));
    return std::make_shared<ShmDoorbell>(std::move(segment), std::move(name));
  }

  absl::StatusOr<std::unique_ptr<Region>> Register(std::uint64_t length_bytes,
                                                   std::string_view label,
                                                   std::shared_ptr<Doorbell> doorbell) override {
    auto bell = std::dynamic_pointer_cast<ShmDoorbell>(doorbell);
    if (doorbell != nullptr && bell == nullptr) {
      return InvalidArgument("WRONG_FABRIC", "the doorbell is of another fabric");
    }
    std::string name;
    ONEPIECE_ASSIGN_OR_RETURN(auto segment, NewSegment(length_bytes, label, name));
    return std::make_unique<ShmRegion>(std::move(segment), std::move(name), std::move(bell));
  }

  absl::StatusOr<std::unique_ptr<Dialer>> Dial() override {
    return std::make_unique<ShmDialer>(prefix_, clock_);
  }

 private:
  absl::StatusOr<std::shared_ptr<ShmSegment>> NewSegment(std::uint64_t length_bytes,
                                                         std::string_view label,
                                                         std::string& name) const {
    if (length_bytes == 0 || length_bytes % sizeof(std::uint64_t) != 0 ||
        length_bytes > (std::uint64_t{1} << 46) || !ValidNamePart(label)) {
      return InvalidArgument("BAD_REGION", "a region needs a length in whole words and a label");
    }
    const PeerIdentity self = SelfIdentity();
    name = prefix_ + std::to_string(self.pid) + "-" + std::to_string(self.start_time) + "-" +
           Hex(base::RandomU64()) + "." + std::string(label);
    return ShmSegment::Create(name, length_bytes, self);
  }

  const std::string prefix_;
  base::Clock& clock_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Fabric>> OpenShmFabric(std::string_view cluster_id,
                                                      base::Clock& clock) {
  if (!ValidNamePart(cluster_id)) {
    return InvalidArgument("BAD_FABRIC_URI",
                           "a cluster id is 1 to 64 letters, digits, '-' or '_', not \"" +
                               std::string(cluster_id) + "\"");
  }
  return std::make_unique<ShmFabric>(cluster_id, clock);
}

absl::StatusOr<int> UnlinkStale(std::string_view cluster_id) {
  if (!ValidNamePart(cluster_id)) return InvalidArgument("BAD_CLUSTER_ID", "bad cluster id");
  const std::string prefix = NamePrefix(cluster_id).substr(1);
  DIR* folder = opendir(kShmFolder);
  if (folder == nullptr) {
    return base::MakeError(absl::StatusCode::kInternal, "SHARED_MEMORY_FAILED",
                           std::string(kShmFolder) + ": " + std::strerror(errno));
  }
  std::vector<std::string> names;
  while (const dirent* entry = readdir(folder)) {
    if (std::string_view(entry->d_name).starts_with(prefix)) names.emplace_back(entry->d_name);
  }
  closedir(folder);
  int removed = 0;
  for (const std::string& name : names) {
    ONEPIECE_ASSIGN_OR_RETURN(const bool unlinked, ShmSegment::UnlinkIfOwnerless("/" + name));
    if (unlinked) ++removed;
  }
  return removed;
}

}  // namespace onepiece::fabric
