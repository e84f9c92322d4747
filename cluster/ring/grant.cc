#include "cluster/ring/grant.h"

#include <limits>

#include "cluster/base/status.h"
#include "cluster/fabric/wire.h"
#include "cluster/ring/layout.h"

namespace onepiece::ring {
namespace {

constexpr std::uint64_t kGrantMagic = 0x31544e41524752;  // "RGRANT1"
constexpr std::size_t kMaxRegionTextBytes = 1024;

}  // namespace

std::string ProducerGrant::Serialize() const {
  std::string out;
  fabric::AppendU64(out, kGrantMagic);
  fabric::AppendText(out, region.Serialize());
  for (const std::uint64_t value :
       {std::uint64_t{owner}, generation, capacity_bytes, std::uint64_t{slots}}) {
    fabric::AppendU64(out, value);
  }
  return out;
}

absl::StatusOr<ProducerGrant> ProducerGrant::Parse(std::string_view bytes) {
  fabric::WireReader reader(bytes);
  const std::uint64_t magic = reader.U64();
  auto region = fabric::RemoteRegion::Parse(reader.Text(kMaxRegionTextBytes));
  const std::uint64_t owner = reader.U64();
  const std::uint64_t generation = reader.U64();
  const std::uint64_t capacity_bytes = reader.U64();
  const std::uint64_t slots = reader.U64();
  const bool fits = owner <= std::numeric_limits<std::uint16_t>::max() && slots <= kMaxSlots;
  const Layout layout{.capacity_bytes = capacity_bytes, .slots = static_cast<std::uint32_t>(slots)};
  if (!reader.Finished() || magic != kGrantMagic || !region.ok() || !fits || !layout.Valid() ||
      layout.RegionBytes() != region->length_bytes) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_GRANT",
                           "not a serialised ring grant");
  }
  return ProducerGrant{.region = *std::move(region),
                       .owner = static_cast<std::uint16_t>(owner),
                       .generation = generation,
                       .capacity_bytes = capacity_bytes,
                       .slots = layout.slots};
}

}  // namespace onepiece::ring
