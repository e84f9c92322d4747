#include "cluster/fabric/ucx/ucx_wire.h"

#include <algorithm>
#include <optional>
#include <span>

#include "cluster/base/crc32c.h"
#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/fabric/wire.h"

namespace onepiece::fabric {
namespace {

constexpr std::uint64_t kDetailsMagic = 0x3158435544504f;  // "OPDUCX1"
constexpr std::uint64_t kOfferMagic = 0x3158434f4f504f;    // "OPOOCX1"
constexpr std::uint64_t kHelloMagic = 0x315843554850'4f;   // "OPHUCX1"
// With the other fields this fits into RemoteRegion::details, which has at most 4096 bytes.
constexpr std::size_t kMaxWorkerAddressBytes = 3072;
constexpr std::size_t kMaxSourceBytes = 16;  // An address of IPv6.

std::uint64_t Check(std::string_view bytes) {
  return base::Crc32c(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

std::optional<FrameProtection> ReadProtection(WireReader& reader) {
  const std::uint64_t value = reader.U64();
  if (value < static_cast<std::uint64_t>(FrameProtection::kNone) ||
      value > static_cast<std::uint64_t>(FrameProtection::kAead)) {
    return std::nullopt;
  }
  return static_cast<FrameProtection>(value);
}

}  // namespace

std::string NewUcxSecret() {
  std::string secret(kUcxSecretBytes, '\0');
  base::FillRandom(secret.data(), secret.size());
  return secret;
}

namespace {

// As the configuration writes it.
const char* NameOf(FrameProtection protection) {
  switch (protection) {
    case FrameProtection::kDefault:
      return "default";
    case FrameProtection::kNone:
      return "none";
    case FrameProtection::kMac:
      return "mac";
    case FrameProtection::kAead:
      return "aead";
  }
  return "unknown";
}

}  // namespace

absl::Status CheckSameProtection(FrameProtection ours, FrameProtection theirs) {
  if (ours == theirs) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kInvalidArgument, "PROTECTION_DIFFERS",
                         std::string("this process protects frames of ucx by ") + NameOf(ours) +
                             ", the peer by " + NameOf(theirs) +
                             ": set node.protect alike on both nodes");
}

std::string UcxDetails::Serialize() const {
  std::string out;
  AppendU64(out, kDetailsMagic);
  AppendU64(out, kUcxProtocolVersion);
  AppendText(out, worker_address);
  AppendU64(out, static_cast<std::uint64_t>(protection));
  AppendText(out, secret);
  AppendU64(out, Check(out));
  return out;
}

absl::StatusOr<UcxDetails> UcxDetails::Parse(std::string_view bytes) {
  WireReader reader(bytes);
  UcxDetails details;
  const std::uint64_t magic = reader.U64();
  const std::uint64_t version = reader.U64();
  details.worker_address = reader.Text(kMaxWorkerAddressBytes);
  const auto protection = ReadProtection(reader);
  details.secret = reader.Text(kUcxSecretBytes);
  const std::uint64_t check = reader.U64();
  // A finished reader has read at least 8 bytes, so the subtraction does not wrap.
  const bool whole = reader.Finished() && check == Check(bytes.substr(0, bytes.size() - 8));
  if (!whole || magic != kDetailsMagic || version != kUcxProtocolVersion ||
      details.worker_address.empty() || !protection.has_value() ||
      details.secret.size() != kUcxSecretBytes) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "WRONG_REGION",
                           "the region's details are damaged or of another protocol version");
  }
  details.protection = *protection;
  return details;
}

std::string UcxOffer::Serialize() const {
  std::string out;
  AppendU64(out, kOfferMagic);
  AppendU64(out, kUcxProtocolVersion);
  AppendU64(out, static_cast<std::uint64_t>(protection));
  AppendText(out, secret);
  AppendU64(out, sources.size());
  for (const std::string& source : sources) AppendText(out, source);
  return out;
}

absl::StatusOr<UcxOffer> UcxOffer::Parse(const Offer& offer) {
  WireReader reader(offer.details);
  UcxOffer parsed;
  const std::uint64_t magic = reader.U64();
  const std::uint64_t version = reader.U64();
  const auto protection = ReadProtection(reader);
  parsed.secret = reader.Text(kUcxSecretBytes);
  const std::uint64_t count = reader.U64();
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(count, kUcxMaxSources); ++i) {
    parsed.sources.push_back(reader.Text(kMaxSourceBytes));
  }
  const bool addresses = std::ranges::all_of(
      parsed.sources, [](const auto& source) { return source.size() == 4 || source.size() == 16; });
  if (!addresses || offer.backend != kUcxBackend || !reader.Finished() || magic != kOfferMagic ||
      version != kUcxProtocolVersion || !protection.has_value() ||
      parsed.secret.size() != kUcxSecretBytes) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "WRONG_FABRIC",
                           "the offer is not of ucx, or of another protocol version");
  }
  parsed.protection = *protection;
  return parsed;
}

std::string UcxHello::Serialize() const {
  std::string out;
  AppendU64(out, kHelloMagic);
  AppendU64(out, version);
  AppendText(out, nonce);
  AppendText(out, tag);
  return out;
}

absl::StatusOr<UcxHello> UcxHello::Parse(std::string_view bytes) {
  WireReader reader(bytes);
  UcxHello hello;
  const std::uint64_t magic = reader.U64();
  hello.version = reader.U64();
  hello.nonce = reader.Text(kUcxSecretBytes);
  hello.tag = reader.Text(kUcxSecretBytes);
  if (!reader.Finished() || magic != kHelloMagic || hello.nonce.size() != kUcxSecretBytes) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_HELLO", "not a hello");
  }
  return hello;
}

std::string UcxAnswerToHello::Serialize() const {
  std::string out;
  AppendU64(out, static_cast<std::uint64_t>(verdict));
  AppendText(out, tag);
  return out;
}

absl::StatusOr<UcxAnswerToHello> UcxAnswerToHello::Parse(std::string_view bytes) {
  WireReader reader(bytes);
  UcxAnswerToHello answer{.verdict = UcxVerdict{reader.U64()}};
  answer.tag = reader.Text(kUcxSecretBytes);
  if (!reader.Finished() || answer.verdict < UcxVerdict::kWelcome ||
      answer.verdict > UcxVerdict::kWrongRegion) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_ANSWER", "no verdict");
  }
  return answer;
}

}  // namespace onepiece::fabric
