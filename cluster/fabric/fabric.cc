#include "cluster/fabric/fabric.h"

#include <limits>

#include "cluster/base/status.h"
#include "cluster/fabric/shm/shm_fabric.h"
#include "cluster/fabric/wire.h"
#ifdef ONEPIECE_HAVE_UCX
#include "cluster/fabric/ucx/ucx_fabric.h"
#endif
#ifdef ONEPIECE_HAVE_VERBS
#include "cluster/fabric/verbs/verbs_fabric.h"
#endif

namespace onepiece::fabric {
namespace {

constexpr std::uint64_t kRegionMagic = 0x314e4f4947455250;  // "PREGION1"
// The version of offers and regions, and of how backends use them.
constexpr std::uint64_t kProtocolVersion = 1;
constexpr std::size_t kMaxBackendBytes = 16;
constexpr std::uint64_t kOfferMagic = 0x3152454646'4f504f;  // "OPOFFER1"
constexpr std::size_t kMaxAddressBytes = 255;
constexpr std::size_t kMaxDetailsBytes = 4096;
constexpr std::uint64_t kMaxRegionBytes = std::uint64_t{1} << 46;

}  // namespace

std::string RemoteRegion::Serialize() const {
  std::string out;
  AppendU64(out, kRegionMagic);
  AppendText(out, backend);
  AppendText(out, address);
  AppendU64(out, length_bytes);
  AppendU64(out, key);
  AppendText(out, details);
  // Only a region that is for reading says so: the others are read by older peers as well.
  if (rights != Rights::kReadWrite) AppendU64(out, static_cast<std::uint64_t>(rights));
  return out;
}

absl::StatusOr<RemoteRegion> RemoteRegion::Parse(std::string_view bytes) {
  WireReader reader(bytes);
  RemoteRegion region;
  const std::uint64_t magic = reader.U64();
  region.backend = reader.Text(kMaxBackendBytes);
  region.address = reader.Text(kMaxAddressBytes);
  region.length_bytes = reader.U64();
  region.key = reader.U64();
  region.details = reader.Text(kMaxDetailsBytes);
  bool known_rights = true;
  if (reader.ok() && !reader.Finished()) {
    known_rights = reader.U64() == static_cast<std::uint64_t>(Rights::kReadOnly);
    region.rights = Rights::kReadOnly;
  }
  // The shm backend makes a C string of the address. A NUL would cut it short after the checks.
  const bool plausible = magic == kRegionMagic && known_rights && !region.backend.empty() &&
                         !region.address.empty() && region.length_bytes > 0 &&
                         region.length_bytes <= kMaxRegionBytes &&
                         region.address.find('\0') == std::string::npos;
  if (!reader.Finished() || !plausible) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_REGION",
                           "not a serialised region");
  }
  return region;
}

std::string Offer::Serialize() const {
  std::string out;
  AppendU64(out, kOfferMagic);
  AppendU64(out, kProtocolVersion);
  AppendText(out, backend);
  AppendU64(out, peer.host);
  AppendU64(out, static_cast<std::uint64_t>(peer.pid));
  AppendU64(out, peer.start_time);
  AppendText(out, details);
  return out;
}

absl::StatusOr<Offer> Offer::Parse(std::string_view bytes) {
  WireReader reader(bytes);
  Offer offer;
  const std::uint64_t magic = reader.U64();
  const std::uint64_t version = reader.U64();
  // The version is judged before the other fields. Another version may lay them out differently,
  // and its peer must hear PROTOCOL_VERSION and not MALFORMED_OFFER.
  if (reader.ok() && magic == kOfferMagic && version != kProtocolVersion) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "PROTOCOL_VERSION",
                           "the peer speaks version " + std::to_string(version) +
                               " of the fabric protocol, this process version " +
                               std::to_string(kProtocolVersion));
  }
  offer.backend = reader.Text(kMaxBackendBytes);
  offer.peer.host = reader.U64();
  const std::uint64_t pid = reader.U64();
  offer.peer.start_time = reader.U64();
  offer.details = reader.Text(kMaxDetailsBytes);
  const bool plausible = magic == kOfferMagic && !offer.backend.empty() && pid > 0 &&
                         pid <= std::uint64_t{std::numeric_limits<std::int32_t>::max()};
  if (!reader.Finished() || !plausible) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_OFFER",
                           "not a serialised offer");
  }
  offer.peer.pid = static_cast<std::int32_t>(pid);
  return offer;
}

absl::StatusOr<Loopback> ConnectLoopback(Fabric& fabric, Region& region) {
  ONEPIECE_ASSIGN_OR_RETURN(const auto dialer, fabric.Dial());
  Loopback loopback;
  ONEPIECE_ASSIGN_OR_RETURN(loopback.access, region.Accept(dialer->offer()));
  ONEPIECE_ASSIGN_OR_RETURN(loopback.channel, dialer->Connect(loopback.access->remote()));
  return loopback;
}

absl::StatusOr<std::unique_ptr<Fabric>> Fabric::Open(std::string_view uri, base::Clock& clock,
                                                     const FabricOptions& options) {
  if (options.protection > FrameProtection::kAead) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_PROTECTION",
                           "frames are protected by none, mac or aead");
  }
  const std::size_t colon = uri.find("://");
  const std::string_view scheme = uri.substr(0, colon);
  if (colon == std::string_view::npos) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_FABRIC_URI",
                           "a fabric is written as shm://CLUSTER-ID, not " + std::string(uri));
  }
  if (scheme == "shm") return OpenShmFabric(uri.substr(colon + 3), clock);
#ifdef ONEPIECE_HAVE_UCX
  if (scheme == "ucx") return OpenUcxFabric(uri.substr(colon + 3), clock, options.protection);
#endif
#ifdef ONEPIECE_HAVE_VERBS
  if (scheme == "verbs") return OpenVerbsFabric(uri.substr(colon + 3), clock);
#endif
  if (scheme == "verbs" || scheme == "ucx") {
    return base::MakeError(absl::StatusCode::kUnimplemented, "FABRIC_NOT_BUILT",
                           "the fabric " + std::string(scheme) + ":// is not part of this build");
  }
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_FABRIC_URI",
                         "unknown fabric " + std::string(scheme) + "://");
}

}  // namespace onepiece::fabric
