// Gives any bytes to what a producer and a consumer decode of each other: offers, regions and
// grants. Then an offer goes to a region's owner and a grant to a dialer, with the parts corrected
// that no damaged text could have (who the peer is, the region's name and key), so that the checks
// behind those run too. Whatever is accepted lies inside the region.
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "cluster/base/check.h"
#include "cluster/fabric/fabric.h"
#include "cluster/ring/grant.h"
#include "spdlog/spdlog.h"
#ifdef ONEPIECE_HAVE_VERBS
#include "cluster/fabric/verbs/access.h"
#endif

namespace onepiece::ring {
namespace {

constexpr Layout kLayout{.capacity_bytes = 4096, .slots = 4};

/// A region of this process and a peer that was let in.
struct Shared {
  base::ManualClock clock;
  std::unique_ptr<fabric::Fabric> fabric =
      *fabric::Fabric::Open("shm://fuzz-" + std::to_string(getpid()), clock);
  std::unique_ptr<fabric::Region> region = *fabric->Register(kLayout.RegionBytes(), "fuzz");
  std::unique_ptr<fabric::Dialer> dialer = *fabric->Dial();
  std::unique_ptr<fabric::Access> access = *region->Accept(dialer->offer());
};

void OfferComes(Shared& shared, std::string_view bytes) {
  auto offer = fabric::Offer::Parse(bytes);
  if (!offer.ok()) return;
  const auto again = fabric::Offer::Parse(offer->Serialize());
  ONEPIECE_CHECK(again.ok() && *again == *offer);
#ifdef ONEPIECE_HAVE_VERBS
  if (const auto details = fabric::verbs::OfferDetails::Parse(offer->details))
    ONEPIECE_CHECK(details->Serialize() == offer->details);
#endif
  (void)shared.region->Accept(*offer);
  offer->backend = shared.dialer->offer().backend;
  offer->peer = shared.dialer->offer().peer;
  (void)shared.region->Accept(*offer);
}

/// A peer that is let in reaches the last word of what it was promised, and nothing behind it.
void Use(Shared& shared, const fabric::RemoteRegion& region) {
  const auto dialer = *shared.fabric->Dial();  // Each connects once.
  const auto channel = dialer->Connect(region);
  if (!channel.ok()) return;
  constexpr std::uint64_t kWord = 8;
  ONEPIECE_CHECK(region.length_bytes == shared.region->bytes().size());
  const std::array<std::uint64_t, 1> words = {7};
  const auto write = [&](std::uint64_t at) {
    const fabric::Op op = fabric::Op::WriteWords("fuzz", at, words);
    return (*channel)->Execute({&op, 1}, base::MonotonicTime::max());
  };
  ONEPIECE_CHECK(write(region.length_bytes - kWord).ok());
}

void RegionComes(Shared& shared, fabric::RemoteRegion region) {
  const auto again = fabric::RemoteRegion::Parse(region.Serialize());
  ONEPIECE_CHECK(again.ok() && *again == region);
#ifdef ONEPIECE_HAVE_VERBS
  if (const auto details = fabric::verbs::RegionDetails::Parse(region.details))
    ONEPIECE_CHECK(details->Serialize() == region.details);
#endif
  region.backend = shared.access->remote().backend;
  region.address = shared.access->remote().address;
  Use(shared, region);
  region.key = shared.access->remote().key;
  Use(shared, region);
}

void GrantComes(Shared& shared, std::string_view bytes) {
  const auto grant = ProducerGrant::Parse(bytes);
  if (!grant.ok()) return;
  const Layout layout{.capacity_bytes = grant->capacity_bytes, .slots = grant->slots};
  ONEPIECE_CHECK(layout.Valid() && layout.RegionBytes() == grant->region.length_bytes);
  ONEPIECE_CHECK(grant->Serialize() == bytes);
  RegionComes(shared, grant->region);
}

}  // namespace
}  // namespace onepiece::ring

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onepiece::ring;
  static const bool quiet = (spdlog::set_level(spdlog::level::off), true);
  (void)quiet;
  static Shared shared;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  OfferComes(shared, bytes);
  GrantComes(shared, bytes);
  if (auto region = onepiece::fabric::RemoteRegion::Parse(bytes); region.ok())
    RegionComes(shared, *std::move(region));
  return 0;
}
