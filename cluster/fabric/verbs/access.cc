#include "cluster/fabric/verbs/access.h"

#include <cerrno>
#include <string>
#include <utility>

#include "cluster/base/mutex.h"
#include "cluster/base/status.h"

namespace onepiece::fabric::verbs {
namespace {

constexpr std::uint64_t kOfferVersion = 0x3152464f53425256;   // "VRBSOFR1"
constexpr std::uint64_t kRegionVersion = 0x3147455253425256;  // "VRBSREG1"
constexpr int kReaderFlags = IBV_ACCESS_REMOTE_READ;
constexpr int kWriterFlags = kReaderFlags | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
// Binding and invalidating are requests to the owner's device.
constexpr std::uint32_t kDepth = 4;
constexpr base::Duration kBindLimit = std::chrono::seconds(1);
// After this time the fence goes on without the invalidation, because the error state fences by
// itself.
constexpr base::Duration kInvalidateLimit = std::chrono::milliseconds(20);

}  // namespace

std::string OfferDetails::Serialize() const {
  std::string out;
  AppendU64(out, kOfferVersion);
  endpoint.AppendTo(out);
  AppendU64(out, incarnation);
  return out;
}

std::optional<OfferDetails> OfferDetails::Parse(std::string_view bytes) {
  WireReader reader(bytes);
  if (reader.U64() != kOfferVersion) return std::nullopt;
  const auto endpoint = Endpoint::Read(reader);
  const std::uint64_t incarnation = reader.U64();
  if (!endpoint.has_value() || !reader.Finished()) return std::nullopt;
  return OfferDetails{.endpoint = *endpoint, .incarnation = incarnation};
}

std::string RegionDetails::Serialize() const {
  std::string out;
  AppendU64(out, kRegionVersion);
  endpoint.AppendTo(out);
  AppendU64(out, incarnation);
  AppendU64(out, address);
  AppendU64(out, length_bytes);
  AppendU64(out, has_doorbell ? 1 : 0);
  return out;
}

std::optional<RegionDetails> RegionDetails::Parse(std::string_view bytes) {
  WireReader reader(bytes);
  if (reader.U64() != kRegionVersion) return std::nullopt;
  const auto endpoint = Endpoint::Read(reader);
  if (!endpoint.has_value()) return std::nullopt;
  RegionDetails details{.endpoint = *endpoint};
  details.incarnation = reader.U64();
  details.address = reader.U64();
  details.length_bytes = reader.U64();
  const std::uint64_t has_doorbell = reader.U64();
  details.has_doorbell = has_doorbell == 1;
  if (!reader.Finished() || has_doorbell > 1) return std::nullopt;
  return details;
}

std::string RegionDetails::AddressText() const {
  return GidText(endpoint.gid) + "/" + std::to_string(endpoint.queue_pair);
}

absl::StatusOr<std::unique_ptr<Access>> VerbsAccess::Create(std::shared_ptr<Device> device,
                                                            std::shared_ptr<RegionMemory> memory,
                                                            std::shared_ptr<VerbsDoorbell> doorbell,
                                                            const Offer& offer, Rights rights) {
  if (offer.backend != kBackend) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "WRONG_FABRIC",
                           "an offer of " + offer.backend + ", not of verbs");
  }
  const auto details = OfferDetails::Parse(offer.details);
  if (!details.has_value()) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_OFFER",
                           "not the details of a verbs offer");
  }
  ONEPIECE_ASSIGN_OR_RETURN(auto watch, WatchLivingPeer(offer.peer));
  std::unique_ptr<VerbsAccess> access(new VerbsAccess(std::move(device), std::move(memory),
                                                      std::move(doorbell), offer.peer,
                                                      std::move(watch), rights));
  ONEPIECE_RETURN_IF_ERROR(access->Connect(*details));
  return access;
}

int VerbsAccess::peer_flags() const {
  return rights_ == Rights::kReadOnly ? kReaderFlags : kWriterFlags;
}

absl::Status VerbsAccess::Connect(const OfferDetails& offer) {
  const base::MutexLock lock(mutex_);
  const bool windows = memory_->registration != nullptr;
  if (!windows) {
    // A registration's key holds for its whole protection domain, so the peer gets a domain of its
    // own.
    domain_.reset(ibv_alloc_pd(device_->context()));
    if (domain_ == nullptr) return VerbsError("no protection domain for a peer", errno);
  }
  ONEPIECE_ASSIGN_OR_RETURN(
      pair_,
      QueuePair::Create(
          device_, {.domain = windows ? device_->domain() : domain_.get(),
                    .send_depth = kDepth,
                    .receives = doorbell_ != nullptr ? doorbell_->receives() : nullptr,
                    .receive_queue = doorbell_ != nullptr ? doorbell_->receive_queue() : nullptr}));
  RegionDetails details{.endpoint = pair_->local(),
                        .incarnation = offer.incarnation,
                        .address = reinterpret_cast<std::uint64_t>(memory_->pages->bytes().data()),
                        .length_bytes = memory_->pages->bytes().size(),
                        .has_doorbell = doorbell_ != nullptr};
  details.endpoint.mtu = std::min(details.endpoint.mtu, offer.endpoint.mtu);
  // The connection comes before the window, because a bind is a work request and needs a queue pair
  // that can send.
  ONEPIECE_RETURN_IF_ERROR(pair_->Connect(offer.endpoint, peer_flags()));
  ONEPIECE_ASSIGN_OR_RETURN(const std::uint32_t key, windows ? BindWindow() : RegisterForPeer());
  remote_ = {.backend = kBackend,
             .address = details.AddressText(),
             .length_bytes = details.length_bytes,
             .key = key,
             .details = details.Serialize(),
             .rights = rights_};
  return absl::OkStatus();
}

absl::StatusOr<std::uint32_t> VerbsAccess::BindWindow() {
  window_.reset(ibv_alloc_mw(device_->domain(), IBV_MW_TYPE_2));
  if (window_ == nullptr) return VerbsError("no memory window", errno);
  const std::span<std::byte> bytes = memory_->pages->bytes();
  ibv_send_wr bind{};
  bind.opcode = IBV_WR_BIND_MW;
  bind.bind_mw.mw = window_.get();
  // A window of type 2 needs a new tag, the last byte of its key, for each bind.
  bind.bind_mw.rkey = ibv_inc_rkey(window_->rkey);
  bind.bind_mw.bind_info = {.mr = memory_->registration.get(),
                            .addr = reinterpret_cast<std::uint64_t>(bytes.data()),
                            .length = bytes.size(),
                            .mw_access_flags = static_cast<unsigned>(peer_flags())};
  ONEPIECE_RETURN_IF_ERROR(Do(bind, "cannot bind a memory window"));
  // Revoke invalidates the window by this key.
  window_->rkey = bind.bind_mw.rkey;
  return window_->rkey;
}

absl::StatusOr<std::uint32_t> VerbsAccess::RegisterForPeer() {
  ONEPIECE_ASSIGN_OR_RETURN(registration_, RegisterMemory(domain_.get(), memory_->pages->bytes(),
                                                          IBV_ACCESS_LOCAL_WRITE | peer_flags()));
  return registration_->rkey;
}

// Posts a request to the owner's device and waits for its completion.
absl::Status VerbsAccess::Do(ibv_send_wr& request, const char* what) {
  const bool bind = request.opcode == IBV_WR_BIND_MW;
  request.send_flags = IBV_SEND_SIGNALED;
  ONEPIECE_RETURN_IF_ERROR(pair_->Post(&request));
  base::Clock& real = base::SystemClock();
  const auto completion =
      pair_->completions().Next(real, real.Now() + (bind ? kBindLimit : kInvalidateLimit));
  if (completion.has_value() && completion->status == IBV_WC_SUCCESS) return absl::OkStatus();
  return base::MakeError(
      absl::StatusCode::kInternal, "VERBS_FAILED",
      std::string(what) + ": " +
          (completion.has_value() ? ibv_wc_status_str(completion->status) : "no completion"));
}

VerbsAccess::~VerbsAccess() { (void)Revoke(); }

// Each step that succeeds fences the peer; the last two succeed on every device. The key goes
// first, so that a peer in the middle of a chain gets an error instead of no answer.
bool VerbsAccess::Revoke() {
  const base::MutexLock lock(mutex_);
  if (pair_ == nullptr) return true;
  if (window_ != nullptr) {
    ibv_send_wr invalidate{};
    invalidate.opcode = IBV_WR_LOCAL_INV;
    invalidate.invalidate_rkey = window_->rkey;
    (void)Do(invalidate, "cannot invalidate a memory window");
  }
  (void)pair_->ClearAccess();
  pair_->Stop();
  window_.reset();  // Goes before the queue pair, to which it may still be bound.
  if (!pair_->Destroy()) return false;
  pair_.reset();
  registration_.reset();
  domain_.reset();
  return true;
}

}  // namespace onepiece::fabric::verbs
