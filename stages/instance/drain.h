// Drain: decides when an instance that leaves the routes passes its work on, and when nothing of it
// is left (docs/elasticity.md, "Moves that lose nothing").
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

/// How long running work may go on before it is handed over; scaled.
inline constexpr base::Duration kHandOverAfter = std::chrono::seconds(30);

/// Only decides; its owner looks at the instance and acts. Pure apart from the clock.
///
/// Threading: thread-safe.
class Drain {
 public:
  /// The orders that hold until the next look.
  struct Orders {
    bool pass_on = false;    ///< Send queued and incoming work to other instances of the stage.
    bool hand_over = false;  ///< End running work at its next step boundary and send it there too.
  };

  explicit Drain(base::Clock& clock, base::Duration hand_over_after)
      : clock_(clock), hand_over_after_(hand_over_after) {}

  /// The assignment of `epoch` is draining. If a drain is in progress, only its epoch changes.
  void Begin(std::uint64_t epoch);
  /// The assignment is not draining any more: it is served again, or was replaced.
  void End();
  /// Notes how many messages and items the instance holds in any form, and whether others serve
  /// everything that it serves. If no others do, the work stays and is computed here. Returns
  /// whether drained() has changed.
  bool Look(std::size_t held, bool others);

  [[nodiscard]] bool active() const;
  [[nodiscard]] Orders orders() const;
  /// Returns the epoch of the draining assignment when nothing of it is left: two looks in a row
  /// found nothing. Work that comes late takes this back.
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
