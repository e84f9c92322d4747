// Drain: when an instance that is taken out of the routes passes its work on, and when nothing of
// it is left (docs/elasticity.md, "Moves that lose nothing").
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/node/routing.h"

namespace onepiece::instance {

/// Returns whether an instance other than `node_id` serves the application's stage.
bool OthersServe(const node::Routing& table, const std::string& app, const std::string& stage,
                 const std::string& node_id);

/// How long what is computed may go on before it is handed over; scaled.
inline constexpr base::Duration kHandOverAfter = std::chrono::seconds(30);

/// Decides; its owner looks and acts. Pure but for the clock. Thread-safe.
class Drain {
 public:
  /// What to do until the next look.
  struct Orders {
    bool pass_on = false;    ///< Send what is queued, and what comes, to others of the stage.
    bool hand_over = false;  ///< End what is being computed at its next step boundary, likewise.
  };

  explicit Drain(base::Clock& clock, base::Duration hand_over_after)
      : clock_(clock), hand_over_after_(hand_over_after) {}

  /// The assignment of `epoch` is draining. Another epoch of the same drain changes nothing else.
  void Begin(std::uint64_t epoch);
  /// It is not: served again, or replaced.
  void End();
  /// Notes how many messages and items the instance holds in any form, and whether others serve all
  /// that it serves. What is left stays here, and is computed here, when none does. True when
  /// drained() has changed.
  bool Look(std::size_t held, bool others);

  [[nodiscard]] bool active() const;
  [[nodiscard]] Orders orders() const;
  /// Epoch of the draining assignment of which nothing is left: two looks in a row have found
  /// nothing. Taken back when something comes late.
  [[nodiscard]] std::optional<std::uint64_t> drained() const;

 private:
  bool IsDrained() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return epoch_.has_value() && empty_looks_ >= 2;
  }

  base::Clock& clock_;
  const base::Duration hand_over_after_;
  mutable base::Mutex mutex_;
  std::optional<std::uint64_t> epoch_ ABSL_GUARDED_BY(mutex_);
  base::MonotonicTime since_ ABSL_GUARDED_BY(mutex_){};
  bool others_ ABSL_GUARDED_BY(mutex_) = false;
  int empty_looks_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace onepiece::instance
