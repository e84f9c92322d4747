// Follows the rings of every process that owns one, and calculates their rates.
#include "cluster/session/fan_out.h"
#include "onepiece/v1/ring.grpc.pb.h"

namespace onepiece::session {
namespace {

std::optional<RingRates> RatesBetween(const v1::RingCounters& a, const v1::RingCounters& b,
                                      std::int64_t between_ms) {
  // A counter that fell belongs to a ring that began anew. The unsigned difference would be a huge
  // rate.
  const bool fell = b.delivered() < a.delivered() || b.delivered_bytes() < a.delivered_bytes() ||
                    b.stalls() < a.stalls() || b.corrupted() < a.corrupted() ||
                    b.duplicates() < a.duplicates();
  if (fell || between_ms <= 0) return std::nullopt;
  const double seconds = static_cast<double>(between_ms) / 1000;
  const auto rate = [seconds](std::uint64_t before, std::uint64_t after) {
    return static_cast<double>(after - before) / seconds;
  };
  return RingRates{.messages_per_s = rate(a.delivered(), b.delivered()),
                   .bytes_per_s = rate(a.delivered_bytes(), b.delivered_bytes()),
                   .stalls_per_s = rate(a.stalls(), b.stalls()),
                   .corrupted_per_s = rate(a.corrupted(), b.corrupted()),
                   .duplicates_per_s = rate(a.duplicates(), b.duplicates())};
}

}  // namespace

void FollowRings(Feeds& feeds, const std::stop_token& stop) {
  ProcessTable<RingEntry> rings;
  std::uint64_t wakes = 0;
  const auto take = [](v1::RingHealth health, const Asked& process, RingEntry& entry) {
    const bool same = entry.as_of_ms != 0 && entry.incarnation == process.incarnation;
    entry.rates.reset();
    if (same)
      entry.rates =
          RatesBetween(entry.health.counters(), health.counters(), NowMs() - entry.as_of_ms);
    entry.incarnation = process.incarnation;
    entry.health = std::move(health);
  };
  do {
    rings.Poll(
        feeds, [](v1::Role role) { return role == v1::INSTANCE || role == v1::DATABASE; },
        &v1::RingService::Stub::PrepareAsyncGetRingHealth, take, &Snapshot::rings, stop);
  } while (feeds.board.Sleep(feeds.options.poll_interval, stop, wakes));
}

}  // namespace onepiece::session
