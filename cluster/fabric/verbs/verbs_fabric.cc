#include "cluster/fabric/verbs/verbs_fabric.h"

#include <string>
#include <utility>

#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/fabric/verbs/access.h"
#include "cluster/fabric/verbs/channel.h"

namespace onepiece::fabric {
namespace verbs {
namespace {

constexpr std::uint64_t kMaxRegionBytes = std::uint64_t{1} << 46;
// The limit of the probe. The device gives a silent peer up before that.
constexpr base::Duration kProbeLimit = std::chrono::seconds(5);

absl::Status WrongRegion(const std::string& what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "WRONG_REGION", what);
}

class VerbsRegion final : public Region {
 public:
  VerbsRegion(std::shared_ptr<Device> device, std::shared_ptr<RegionMemory> memory,
              std::shared_ptr<VerbsDoorbell> doorbell)
      : device_(std::move(device)), memory_(std::move(memory)), doorbell_(std::move(doorbell)) {}
  std::span<std::byte> bytes() override { return memory_->pages->bytes(); }
  absl::StatusOr<std::unique_ptr<Access>> Accept(const Offer& offer, Rights rights) override {
    return VerbsAccess::Create(device_, memory_, doorbell_, offer, rights);
  }

 private:
  const std::shared_ptr<Device> device_;
  const std::shared_ptr<RegionMemory> memory_;
  const std::shared_ptr<VerbsDoorbell> doorbell_;
};

class VerbsDialer final : public Dialer {
 public:
  VerbsDialer(std::shared_ptr<Device> device, std::shared_ptr<StagingPool> pool,
              std::unique_ptr<QueuePair> pair, base::Clock& clock)
      : device_(std::move(device)),
        pool_(std::move(pool)),
        clock_(clock),
        incarnation_(base::RandomU64()),
        offer_{
            .backend = kBackend,
            .peer = SelfIdentity(),
            .details =
                OfferDetails{.endpoint = pair->local(), .incarnation = incarnation_}.Serialize()},
        pair_(std::move(pair)) {}
  const Offer& offer() const override { return offer_; }

  absl::StatusOr<std::unique_ptr<Channel>> Connect(const RemoteRegion& remote) override {
    ONEPIECE_ASSIGN_OR_RETURN(const RegionDetails details, Check(remote));
    // The other end gets no rights (0): only this end reads and writes.
    ONEPIECE_RETURN_IF_ERROR(pair_->Connect(details.endpoint, 0));
    auto channel =
        std::make_unique<VerbsChannel>(device_, pool_, std::move(pair_),
                                       PeerMemory{.address = details.address,
                                                  .length_bytes = details.length_bytes,
                                                  .key = static_cast<std::uint32_t>(remote.key),
                                                  .has_doorbell = details.has_doorbell,
                                                  .rights = remote.rights},
                                       clock_);
    ONEPIECE_RETURN_IF_ERROR(channel->Probe(clock_.Now() + base::Scaled(kProbeLimit)));
    return channel;
  }

 private:
  absl::StatusOr<RegionDetails> Check(const RemoteRegion& remote) const {
    if (remote.backend != kBackend) {
      return base::MakeError(absl::StatusCode::kInvalidArgument, "WRONG_FABRIC",
                             "a region of " + remote.backend + ", not of verbs");
    }
    if (pair_ == nullptr) return WrongRegion("this dialer has been used");
    const auto details = RegionDetails::Parse(remote.details);
    if (!details.has_value() || details->AddressText() != remote.address) {
      return WrongRegion("not the details of a verbs region");
    }
    if (details->incarnation != incarnation_) {
      return WrongRegion("the region answers another offer than ours");
    }
    if (details->length_bytes != remote.length_bytes || remote.key > 0xffffffff) {
      return WrongRegion("the region has another length or key");
    }
    if (details->length_bytes % sizeof(std::uint64_t) != 0 || details->length_bytes == 0 ||
        details->address % sizeof(std::uint64_t) != 0 ||
        details->address > ~std::uint64_t{0} - details->length_bytes) {
      return WrongRegion("the region does not consist of whole words");
    }
    return *details;
  }

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<StagingPool> pool_;
  base::Clock& clock_;
  const std::uint64_t incarnation_;
  const Offer offer_;
  // This member comes last, because the initialiser of offer_ still uses the parameter `pair`.
  std::unique_ptr<QueuePair> pair_;  // Null once connected.
};

class VerbsFabric final : public Fabric {
 public:
  VerbsFabric(std::shared_ptr<Device> device, base::Clock& clock, bool windows)
      : device_(std::move(device)),
        pool_(std::make_shared<StagingPool>(device_)),
        clock_(clock),
        windows_(windows) {}

  base::Clock& clock() const override { return clock_; }
  absl::StatusOr<std::shared_ptr<Doorbell>> MakeDoorbell(std::string_view label) override {
    if (!ValidNamePart(label)) return BadRegion();
    return VerbsDoorbell::Create(device_);
  }

  absl::StatusOr<std::unique_ptr<Region>> Register(std::uint64_t length_bytes,
                                                   std::string_view label,
                                                   std::shared_ptr<Doorbell> doorbell) override {
    auto bell = std::dynamic_pointer_cast<VerbsDoorbell>(doorbell);
    if (doorbell != nullptr && bell == nullptr) {
      return base::MakeError(absl::StatusCode::kInvalidArgument, "WRONG_FABRIC",
                             "the doorbell is of another fabric");
    }
    if (length_bytes == 0 || length_bytes % sizeof(std::uint64_t) != 0 ||
        length_bytes > kMaxRegionBytes || !ValidNamePart(label)) {
      return BadRegion();
    }
    auto memory = std::make_shared<RegionMemory>();
    ONEPIECE_ASSIGN_OR_RETURN(memory->pages, Pages::Allocate(length_bytes));
    if (windows_) {
      ONEPIECE_ASSIGN_OR_RETURN(memory->registration,
                                RegisterMemory(device_->domain(), memory->pages->bytes(),
                                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
    }
    return std::make_unique<VerbsRegion>(device_, std::move(memory), std::move(bell));
  }

  absl::StatusOr<std::unique_ptr<Dialer>> Dial() override {
    ONEPIECE_ASSIGN_OR_RETURN(
        auto pair, QueuePair::Create(device_, {.domain = device_->domain(),
                                               .send_depth = VerbsChannel::kDepth,
                                               .pieces = VerbsChannel::kPieces,
                                               .inline_bytes = VerbsChannel::kInlineBytes,
                                               .waiting = CompletionQueue::Waiting::kSleeps}));
    return std::make_unique<VerbsDialer>(device_, pool_, std::move(pair), clock_);
  }

 private:
  static absl::Status BadRegion() {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_REGION",
                           "a region needs a length in whole words and a label");
  }

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<StagingPool> pool_;
  base::Clock& clock_;
  const bool windows_;
};

}  // namespace
}  // namespace verbs

absl::StatusOr<std::unique_ptr<Fabric>> OpenVerbsFabric(std::string_view address,
                                                        base::Clock& clock, VerbsKeys keys) {
  ONEPIECE_ASSIGN_OR_RETURN(const auto parsed, verbs::DeviceAddress::Parse(address));
  ONEPIECE_ASSIGN_OR_RETURN(auto device, verbs::Device::Open(parsed));
  const bool windows = keys == VerbsKeys::kBest && device->HasWindows();
  return std::make_unique<verbs::VerbsFabric>(std::move(device), clock, windows);
}

}  // namespace onepiece::fabric
