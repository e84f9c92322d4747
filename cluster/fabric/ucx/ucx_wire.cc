#include "cluster/fabric/ucx/ucx_wire.h"

#include <span>

#include "cluster/base/crc32c.h"
#include "cluster/base/status.h"
#include "cluster/fabric/wire.h"

namespace onepiece::fabric {
namespace {

constexpr std::uint64_t kDetailsMagic = 0x3158435544504f;  // "OPDUCX1"
constexpr std::uint64_t kOfferMagic = 0x3158434f4f504f;    // "OPOOCX1"
constexpr std::uint64_t kHelloMagic = 0x315843554850'4f;   // "OPHUCX1"
// With the other fields this fits into RemoteRegion::details, which has at most 4096 bytes.
constexpr std::size_t kMaxWorkerAddressBytes = 3072;
constexpr std::size_t kMaxRegionNameBytes = 255;

std::uint64_t Check(std::string_view bytes) {
  return base::Crc32c(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

}  // namespace

std::string UcxDetails::Serialize() const {
  std::string out;
  AppendU64(out, kDetailsMagic);
  AppendU64(out, kUcxProtocolVersion);
  AppendText(out, worker_address);
  AppendU64(out, Check(out));
  return out;
}

absl::StatusOr<UcxDetails> UcxDetails::Parse(std::string_view bytes) {
  WireReader reader(bytes);
  UcxDetails details;
  const std::uint64_t magic = reader.U64();
  const std::uint64_t version = reader.U64();
  details.worker_address = reader.Text(kMaxWorkerAddressBytes);
  const std::uint64_t check = reader.U64();
  // A finished reader has read at least 8 bytes, so the subtraction does not wrap.
  const bool whole = reader.Finished() && check == Check(bytes.substr(0, bytes.size() - 8));
  if (!whole || magic != kDetailsMagic || version != kUcxProtocolVersion ||
      details.worker_address.empty()) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "WRONG_REGION",
                           "the region's details are damaged or of another protocol version");
  }
  return details;
}

std::string SerializeUcxOffer() {
  std::string out;
  AppendU64(out, kOfferMagic);
  AppendU64(out, kUcxProtocolVersion);
  return out;
}

absl::Status CheckUcxOffer(const Offer& offer) {
  if (offer.backend == kUcxBackend && offer.details == SerializeUcxOffer()) {
    return absl::OkStatus();
  }
  return base::MakeError(absl::StatusCode::kInvalidArgument, "WRONG_FABRIC",
                         "the offer is not of ucx, or of another protocol version");
}

std::string UcxHello::Serialize() const {
  std::string out;
  AppendU64(out, kHelloMagic);
  AppendU64(out, version);
  AppendU64(out, key);
  AppendU64(out, length_bytes);
  AppendText(out, address);
  return out;
}

absl::StatusOr<UcxHello> UcxHello::Parse(std::string_view bytes) {
  WireReader reader(bytes);
  UcxHello hello;
  const std::uint64_t magic = reader.U64();
  hello.version = reader.U64();
  hello.key = reader.U64();
  hello.length_bytes = reader.U64();
  hello.address = reader.Text(kMaxRegionNameBytes);
  if (!reader.Finished() || magic != kHelloMagic) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_HELLO", "not a hello");
  }
  return hello;
}

}  // namespace onepiece::fabric
