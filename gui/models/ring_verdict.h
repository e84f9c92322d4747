// The verdict on a ring's health, in a word and a sentence.
//
// Threading: pure functions.
#pragma once

#include <QString>
#include <cstdint>

#include "cluster/session/snapshot.h"
#include "gui/models/format.h"

namespace onepiece::gui {

/// Ordered from good to bad. kNotKnown, the first, says neither.
enum class RingState {
  kNotKnown,
  kFlowing,
  kStarved,        ///< Empty, and nothing comes.
  kBackpressured,  ///< Nearly full: senders get BUSY.
  kStuckConsumer,  ///< Messages wait, and none is taken out.
  kStuckProducer,  ///< A live producer stalls.
  kCorrupt,        ///< Messages are dropped as corrupt.
};

/// The thresholds, which the page shows. kWaitingMs equals that of the alert `ring-stuck`.
struct RingThresholds {
  static constexpr std::int64_t kStaleMs = 5000;  ///< Not known if its last answer is older.
  static constexpr double kFull = 0.8;  ///< Backpressured from this share of slots or bytes.
  /// Stuck if the oldest message waits for so long.
  static constexpr std::int64_t kWaitingMs = 5000;
};

struct RingVerdict {
  RingState state = RingState::kNotKnown;
  QString text;  ///< One sentence with the numbers that decided.
};

/// Judges a ring at `now_ms`, by the clock of RingEntry::as_of_ms. If several states apply, the
/// first of these counts: not known, corrupt, stuck producer, stuck consumer, backpressured,
/// starved, flowing. After its first answer a ring has no rates yet: it is backpressured if it is
/// nearly full, and not known otherwise.
RingVerdict JudgeRing(const session::RingEntry& ring, std::int64_t now_ms);
QString RingStateName(RingState state);
StatusTone RingStateTone(RingState state);
/// The larger share of used slots and used bytes, 0 to 1. nullopt if the ring has neither.
std::optional<double> RingFill(const v1::RingHealth& health);
/// All states in words, with their thresholds.
QString RingThresholdsText();

}  // namespace onepiece::gui
