// What a ring's health comes to, in a word and a sentence.
//
// Threading  Pure functions.
#pragma once

#include <QString>
#include <cstdint>

#include "cluster/session/snapshot.h"
#include "gui/models/format.h"

namespace onepiece::gui {

/// Worst last but for kNotKnown, which is none of them.
enum class RingState {
  kNotKnown,
  kFlowing,
  kStarved,        ///< Empty, and its consumer waits.
  kBackpressured,  ///< Nearly full: senders are told BUSY.
  kStuckConsumer,  ///< Messages wait, and none is taken out.
  kStuckProducer,  ///< A live producer holds it up.
  kCorrupt,        ///< Messages are dropped as corrupt.
};

/// The thresholds, which the page shows. The waiting time is the alert ring-stuck's.
struct RingThresholds {
  static constexpr std::int64_t kStaleMs = 5000;    ///< Since its last answer: not known.
  static constexpr double kFull = 0.8;              ///< Of slots or bytes: backpressured.
  static constexpr std::int64_t kWaitingMs = 5000;  ///< The oldest message, none taken: stuck.
};

struct RingVerdict {
  RingState state = RingState::kNotKnown;
  QString text;  ///< One sentence with the numbers that decided.
};

/// At `now_ms`, by the clock of RingEntry::as_of_ms. Of several that hold: not known, corrupt,
/// stuck producer, stuck consumer, backpressured, starved, flowing, in this order.
RingVerdict JudgeRing(const RingEntry& ring, std::int64_t now_ms);
QString RingStateName(RingState state);
StatusTone RingStateTone(RingState state);
/// The fuller of slots and bytes, 0 to 1; nullopt: it has neither.
std::optional<double> RingFill(const v1::RingHealth& health);
/// "Starved: …" of every state, with the thresholds used.
QString RingThresholdsText();

}  // namespace onepiece::gui
