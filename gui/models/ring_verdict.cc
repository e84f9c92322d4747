#include "gui/models/ring_verdict.h"

#include <algorithm>

#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

QString Ms(std::int64_t ms) { return FormatSeconds(static_cast<double>(ms) * 1e-3); }

QString Waiting(const v1::RingHealth& health) {
  return Tr("%1 of %2 slots used, the oldest message for %3")
      .arg(health.used_slots())
      .arg(health.slots())
      .arg(Ms(health.oldest_age_ms()));
}

}  // namespace

std::optional<double> RingFill(const v1::RingHealth& health) {
  std::optional<double> fill;
  const auto take = [&](std::uint64_t used, std::uint64_t all) {
    if (all == 0) return;
    fill = std::max(fill.value_or(0), static_cast<double>(used) / static_cast<double>(all));
  };
  take(health.used_slots(), health.slots());
  take(health.used_bytes(), health.capacity_bytes());
  return fill;
}

RingVerdict JudgeRing(const session::RingEntry& ring, std::int64_t now_ms) {
  const v1::RingHealth& health = ring.health;
  if (ring.as_of_ms <= 0) {
    return {RingState::kNotKnown, ring.error.empty()
                                      ? Tr("It has not answered yet.")
                                      : Tr("It has never answered: %1").arg(SafeText(ring.error))};
  }
  const std::int64_t age_ms = std::max<std::int64_t>(0, now_ms - ring.as_of_ms);
  if (!ring.error.empty()) {
    return {RingState::kNotKnown,
            Tr("It has not answered for %1: %2").arg(Ms(age_ms), SafeText(ring.error))};
  }
  if (age_ms > RingThresholds::kStaleMs) {
    return {RingState::kNotKnown, Tr("Its last answer is %1 old.").arg(Ms(age_ms))};
  }
  const std::uint64_t corrupted = health.counters().corrupted();
  if (ring.rates && ring.rates->corrupted_per_s > 0) {
    return {RingState::kCorrupt, Tr("%1 dropped as corrupt, %2 since it began.")
                                     .arg(FormatRate(ring.rates->corrupted_per_s))
                                     .arg(corrupted)};
  }
  if (ring.rates && ring.rates->stalls_per_s > 0) {
    return {RingState::kStuckProducer,
            Tr("A live producer held it up beyond its time-out: %1, %2 times since it began.")
                .arg(FormatRate(ring.rates->stalls_per_s))
                .arg(health.counters().stalls())};
  }
  const bool waits =
      health.used_slots() > 0 && health.oldest_age_ms() >= RingThresholds::kWaitingMs;
  if (ring.rates && ring.rates->messages_per_s <= 0 && waits) {
    return {RingState::kStuckConsumer, Waiting(health) + Tr(", and none is taken out.")};
  }
  const std::optional<double> fill = RingFill(health);
  if (fill && *fill >= RingThresholds::kFull) {
    return {RingState::kBackpressured,
            Tr("%1 full: %2, %3 of %4.")
                .arg(FormatShare(fill), Waiting(health),
                     FormatBytes(static_cast<double>(health.used_bytes())),
                     FormatBytes(static_cast<double>(health.capacity_bytes())))};
  }
  if (!ring.rates) {
    return {RingState::kNotKnown,
            Waiting(health) + Tr("; how fast it flows is known from its second answer on.")};
  }
  if (health.used_slots() == 0 && ring.rates->messages_per_s <= 0) {
    const auto connected =
        std::ranges::count_if(health.producers(), [](const auto& one) { return one.connected(); });
    return {RingState::kStarved,
            connected == 0
                ? Tr("Empty, and no producer is connected.")
                : Tr("Empty, and nothing comes from %1 connected producers.").arg(connected)};
  }
  return {RingState::kFlowing,
          Tr("%1 taken out; %2.").arg(FormatRate(ring.rates->messages_per_s), Waiting(health))};
}

QString RingStateName(RingState state) {
  switch (state) {
    case RingState::kNotKnown:
      return Tr("Not known");
    case RingState::kFlowing:
      return Tr("Flowing");
    case RingState::kStarved:
      return Tr("Starved");
    case RingState::kBackpressured:
      return Tr("Backpressured");
    case RingState::kStuckConsumer:
      return Tr("Stuck consumer");
    case RingState::kStuckProducer:
      return Tr("Stuck producer");
    case RingState::kCorrupt:
      return Tr("Corrupt");
  }
  return {};
}

StatusTone RingStateTone(RingState state) {
  switch (state) {
    case RingState::kNotKnown:
      return StatusTone::kUnknown;
    case RingState::kFlowing:
      return StatusTone::kGood;
    case RingState::kStarved:
      return StatusTone::kNeutral;
    case RingState::kBackpressured:
      return StatusTone::kWarning;
    case RingState::kStuckConsumer:
    case RingState::kStuckProducer:
    case RingState::kCorrupt:
      return StatusTone::kBad;
  }
  return StatusTone::kUnknown;
}

QString RingThresholdsText() {
  return Tr("Corrupt: messages are being dropped. Stuck producer: stalls go up. Stuck consumer: "
            "the "
            "oldest message waits for %1 or more and none is taken out. Backpressured: %2 of slots "
            "or bytes used, or more. Starved: empty, nothing comes. Not known: no answer for %3.")
      .arg(Ms(RingThresholds::kWaitingMs), FormatShare(RingThresholds::kFull),
           Ms(RingThresholds::kStaleMs));
}

}  // namespace onepiece::gui
