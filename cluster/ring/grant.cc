#include "cluster/ring/grant.h"

#include <limits>

#include "cluster/base/status.h"
#include "cluster/fabric/wire.h"
#include "cluster/ring/layout.h"

namespace onepiece::ring {
namespace {

constexpr std::uint64_t kGrantMagic = 0x544e41524752;  // "RGRANT"
// The version of the memory layout, the grant and the rules of docs/ring-protocol.md together.
constexpr std::uint64_t kProtocolVersion = 2;
// The limit of a serialised region, with the longest address and details.
constexpr std::size_t kMaxRegionTextBytes = 8192;

}  // namespace

std::string ProducerGrant::Serialize() const {
  std::string out;
  fabric::AppendU64(out, kGrantMagic);
  fabric::AppendU64(out, kProtocolVersion);
  fabric::AppendText(out, region.Serialize());
  for (const std::uint64_t value : {static_cast<std::uint64_t>(shape), std::uint64_t{owner},
                                    generation.value, capacity_bytes, std::uint64_t{slots}}) {
    fabric::AppendU64(out, value);
  }
  return out;
}

absl::StatusOr<ProducerGrant> ProducerGrant::Parse(std::string_view bytes) {
  fabric::WireReader reader(bytes);
  const std::uint64_t magic = reader.U64();
  const std::uint64_t version = reader.U64();
  if (reader.ok() && magic == kGrantMagic && version != kProtocolVersion) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "PROTOCOL_VERSION",
                           "the consumer speaks version " + std::to_string(version) +
                               " of the ring protocol, this producer version " +
                               std::to_string(kProtocolVersion));
  }
  auto region = fabric::RemoteRegion::Parse(reader.Text(kMaxRegionTextBytes));
  const std::uint64_t shape = reader.U64();
  const std::uint64_t owner = reader.U64();
  const Generation generation(reader.U64());
  const std::uint64_t capacity_bytes = reader.U64();
  const std::uint64_t slots = reader.U64();
  const bool fits = (shape == static_cast<std::uint64_t>(Shape::kShared) ||
                     shape == static_cast<std::uint64_t>(Shape::kPerProducer)) &&
                    owner <= std::numeric_limits<std::uint16_t>::max() && slots <= kMaxSlots;
  const Layout layout{.capacity_bytes = capacity_bytes, .slots = static_cast<std::uint32_t>(slots)};
  if (!reader.Finished() || magic != kGrantMagic || !region.ok() || !fits || !layout.Valid() ||
      layout.RegionBytes() != region->length_bytes) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_GRANT",
                           "not a serialised ring grant");
  }
  return ProducerGrant{.region = *std::move(region),
                       .shape = static_cast<Shape>(shape),
                       .owner = static_cast<std::uint16_t>(owner),
                       .generation = generation,
                       .capacity_bytes = capacity_bytes,
                       .slots = layout.slots};
}

}  // namespace onepiece::ring
