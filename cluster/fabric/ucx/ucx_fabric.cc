#include "cluster/fabric/ucx/ucx_fabric.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/fabric/process.h"
#include "cluster/fabric/ucx/listening_sockets.h"
#include "cluster/fabric/ucx/ucx_link.h"
#include "cluster/fabric/ucx/ucx_target.h"
#include "cluster/fabric/ucx/ucx_wire.h"
#include "cluster/fabric/ucx/ucx_worker.h"
#include "cluster/fabric/wire.h"

namespace onepiece::fabric {
namespace {

constexpr base::Duration kConnectTimeout = std::chrono::seconds(5);
// From the owner's answer to the peer's hello. The answer travels on the control plane first.
constexpr base::Duration kHandshakeLimit = std::chrono::seconds(30);
constexpr std::uint64_t kMaxRegionBytes = std::uint64_t{1} << 46;
constexpr char kAddressPrefix[] = "ucx-";

absl::Status InvalidArgument(const char* reason, const std::string& message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, reason, message);
}

std::string NewAddress() {
  char text[17];
  const auto end = std::to_chars(text, text + sizeof text, base::RandomU64(), 16).ptr;
  return kAddressPrefix + std::string(text, end);
}

class UcxAccess final : public Access {
 public:
  UcxAccess(UcxProgress& progress, std::shared_ptr<UcxTarget> target, RemoteRegion remote,
            const PeerIdentity& peer, std::unique_ptr<ProcessWatch> watch)
      : progress_(progress),
        target_(std::move(target)),
        remote_(std::move(remote)),
        peer_(peer),
        watch_(std::move(watch)) {}
  ~UcxAccess() override { progress_.Remove(*target_); }
  UcxAccess(const UcxAccess&) = delete;
  UcxAccess& operator=(const UcxAccess&) = delete;

  const RemoteRegion& remote() const override { return remote_; }
  const PeerIdentity& peer() const override { return peer_; }
  bool PeerIsDead() const override { return watch_->IsDead(); }
  // Only the target's worker executes what the peer has sent. Once it is closed, nothing does.
  bool Revoke() override {
    progress_.Remove(*target_);
    return true;
  }

 private:
  UcxProgress& progress_;
  const std::shared_ptr<UcxTarget> target_;
  const RemoteRegion remote_;
  const PeerIdentity peer_;
  const std::unique_ptr<ProcessWatch> watch_;
};

class UcxRegion final : public Region {
 public:
  UcxRegion(std::shared_ptr<UcxContext> context, UcxProgress& progress,
            std::shared_ptr<UcxMemory> memory, std::shared_ptr<UcxDoorbell> doorbell,
            FrameProtection protection)
      : context_(std::move(context)),
        progress_(progress),
        protection_(protection),
        memory_(std::move(memory)),
        doorbell_(std::move(doorbell)) {}
  std::span<std::byte> bytes() override { return memory_->bytes(); }

  absl::StatusOr<std::unique_ptr<Access>> Accept(const Offer& offer, Rights rights) override {
    ONEPIECE_ASSIGN_OR_RETURN(const UcxOffer theirs, UcxOffer::Parse(offer));
    ONEPIECE_RETURN_IF_ERROR(CheckSameProtection(protection_, theirs.protection));
    ONEPIECE_ASSIGN_OR_RETURN(auto watch, WatchLivingPeer(offer.peer));
    const std::uint64_t length_bytes = memory_->bytes().size();
    RemoteRegion remote{.backend = kUcxBackend,
                        .address = NewAddress(),
                        .length_bytes = length_bytes,
                        .key = base::RandomU64(),
                        .rights = rights};
    const std::string secret = NewUcxSecret();
    ONEPIECE_ASSIGN_OR_RETURN(auto target, UcxTarget::Open(context_, memory_, doorbell_,
                                                           {.offer_secret = theirs.secret,
                                                            .grant_secret = secret,
                                                            .protection = protection_,
                                                            .key = remote.key,
                                                            .length_bytes = length_bytes,
                                                            .address = remote.address},
                                                           rights));
    if (!theirs.sources.empty()) target->AdmitOnly(theirs.sources);
    remote.details =
        UcxDetails{
            .worker_address = target->worker_address(), .protection = protection_, .secret = secret}
            .Serialize();
    ONEPIECE_RETURN_IF_ERROR(progress_.Add(target));
    return std::make_unique<UcxAccess>(progress_, std::move(target), std::move(remote), offer.peer,
                                       std::move(watch));
  }

 private:
  const std::shared_ptr<UcxContext> context_;
  UcxProgress& progress_;
  const FrameProtection protection_;
  const std::shared_ptr<UcxMemory> memory_;
  const std::shared_ptr<UcxDoorbell> doorbell_;
};

class UcxChannel final : public Channel {
 public:
  UcxChannel(std::unique_ptr<UcxLink> link, const RemoteRegion& remote, base::Clock& clock)
      : Channel(remote.length_bytes, remote.rights), clock_(clock), link_(std::move(link)) {}

 protected:
  // Operations on the network take real time, whatever clock the deadline belongs to.
  absl::Status Run(std::span<const Op> chain, base::MonotonicTime deadline) override {
    const base::Duration left = deadline - clock_.Now();
    if (left <= base::Duration::zero()) {
      return base::MakeError(absl::StatusCode::kDeadlineExceeded, "CHAIN_TIMEOUT",
                             "the deadline had passed before the first operation");
    }
    const base::MonotonicTime now = base::SystemClock().Now();
    const absl::Status status =
        link_->Execute(chain, now + std::min(left, base::MonotonicTime::max() - now));
    CountPosted(link_->work_requests(), link_->round_trips());
    // UCX may still use the caller's memory, so the link goes before Run returns.
    if (!status.ok()) link_.reset();
    return status;
  }

 private:
  base::Clock& clock_;
  std::unique_ptr<UcxLink> link_;  // Null once broken, when Run is not called any more.
};

// The offer must stay below its bound, so a host with very many addresses names none.
std::vector<std::string> Sources() {
  std::vector<std::string> addresses = AddressesOfThisHost();
  if (addresses.size() > kUcxMaxSources) addresses.clear();
  return addresses;
}

class UcxDialer final : public Dialer {
 public:
  UcxDialer(std::shared_ptr<UcxContext> context, FrameProtection protection, base::Clock& clock)
      : context_(std::move(context)),
        clock_(clock),
        ours_{.protection = protection, .secret = NewUcxSecret(), .sources = Sources()},
        offer_{.backend = kUcxBackend, .peer = SelfIdentity(), .details = ours_.Serialize()} {}
  const Offer& offer() const override { return offer_; }

  absl::StatusOr<std::unique_ptr<Channel>> Connect(const RemoteRegion& remote) override {
    if (remote.backend != kUcxBackend) {
      return InvalidArgument("WRONG_FABRIC", "a region of " + remote.backend + ", not of ucx");
    }
    const base::MonotonicTime deadline = base::SystemClock().Now() + base::Scaled(kConnectTimeout);
    ONEPIECE_ASSIGN_OR_RETURN(auto link, UcxLink::Connect(context_, ours_, remote, deadline));
    return std::make_unique<UcxChannel>(std::move(link), remote, clock_);
  }

 private:
  const std::shared_ptr<UcxContext> context_;
  base::Clock& clock_;
  const UcxOffer ours_;
  const Offer offer_;
};

class UcxFabric final : public Fabric {
 public:
  UcxFabric(std::shared_ptr<UcxContext> context, std::unique_ptr<UcxProgress> progress,
            FrameProtection protection, base::Clock& clock)
      : context_(std::move(context)),
        progress_(std::move(progress)),
        protection_(protection),
        clock_(clock) {}

  base::Clock& clock() const override { return clock_; }
  absl::StatusOr<std::shared_ptr<Doorbell>> MakeDoorbell(std::string_view label) override {
    if (!ValidNamePart(label)) return InvalidArgument("BAD_REGION", "a doorbell needs a label");
    return std::make_shared<UcxDoorbell>();
  }

  absl::StatusOr<std::unique_ptr<Region>> Register(std::uint64_t length_bytes,
                                                   std::string_view label,
                                                   std::shared_ptr<Doorbell> doorbell) override {
    auto bell = std::dynamic_pointer_cast<UcxDoorbell>(doorbell);
    if (doorbell != nullptr && bell == nullptr) {
      return InvalidArgument("WRONG_FABRIC", "the doorbell is of another fabric");
    }
    if (length_bytes == 0 || length_bytes % sizeof(std::uint64_t) != 0 ||
        length_bytes > kMaxRegionBytes || !ValidNamePart(label)) {
      return InvalidArgument("BAD_REGION", "a region needs a length in whole words and a label");
    }
    ONEPIECE_ASSIGN_OR_RETURN(auto memory, UcxMemory::Allocate(length_bytes));
    return std::make_unique<UcxRegion>(context_, *progress_, std::move(memory), std::move(bell),
                                       protection_);
  }

  absl::StatusOr<std::unique_ptr<Dialer>> Dial() override {
    return std::make_unique<UcxDialer>(context_, protection_, clock_);
  }

 private:
  const std::shared_ptr<UcxContext> context_;
  const std::unique_ptr<UcxProgress> progress_;
  const FrameProtection protection_;
  base::Clock& clock_;
};

// True when `devices` names loopback interfaces alone. Without names UCX takes all interfaces.
bool IsLoopback(std::string_view devices) {
  ifaddrs* all = nullptr;
  if (devices.empty() || getifaddrs(&all) != 0) return false;
  const std::string names = "," + std::string(devices) + ",";
  bool loopback = true;
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    const bool named = names.find("," + std::string(at->ifa_name) + ",") != std::string::npos;
    if (named && (at->ifa_flags & IFF_LOOPBACK) == 0) loopback = false;
  }
  freeifaddrs(all);
  return loopback;
}

absl::Status CheckInterfaces(std::string_view devices) {
  while (true) {
    const std::size_t comma = devices.find(',');
    const std::string name(devices.substr(0, comma));
    if (if_nametoindex(name.c_str()) == 0) {
      return InvalidArgument("BAD_FABRIC_URI", "there is no network interface \"" + name + "\"");
    }
    if (comma == std::string_view::npos) return absl::OkStatus();
    devices.remove_prefix(comma + 1);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Fabric>> OpenUcxFabric(std::string_view devices, base::Clock& clock,
                                                      FrameProtection protection) {
  if (!devices.empty()) ONEPIECE_RETURN_IF_ERROR(CheckInterfaces(devices));
  if (protection == FrameProtection::kDefault) {
    protection = IsLoopback(devices) ? FrameProtection::kNone : FrameProtection::kMac;
  }
  ONEPIECE_ASSIGN_OR_RETURN(auto context,
                            UcxContext::Open(devices.empty() ? "all" : std::string(devices)));
  ONEPIECE_ASSIGN_OR_RETURN(auto progress, UcxProgress::Start(base::Scaled(kHandshakeLimit)));
  return std::make_unique<UcxFabric>(std::move(context), std::move(progress), protection, clock);
}

}  // namespace onepiece::fabric
