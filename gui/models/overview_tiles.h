// The six numbers of the page "Overview": how the cluster is at a glance.
//
// Threading: thread-confined.
#pragma once

#include <QString>
#include <array>
#include <cstdint>
#include <memory>

#include "cluster/session/snapshot.h"
#include "gui/models/format.h"

namespace onepiece::gui {

struct OverviewTile {
  QString title;    ///< "Jobs"
  QString value;    ///< "12 running"
  QString detail;   ///< What the value is made of, and how sure it is: "3 queued".
  QString view_id;  ///< The page that shows more.
  QString entity;   ///< What that page shall select. Empty if nothing.
  StatusTone tone = StatusTone::kNeutral;
};

/// Computes the tiles.
class OverviewTiles {
 public:
  static constexpr std::int64_t kWindowMs = 15 * 60 * 1000;
  static constexpr int kMinSamples = 5;  ///< With fewer samples no percentile is given.

  /// The tiles, in this order: jobs, throughput, p95 latency, utilisation, rings, nodes.
  std::array<OverviewTile, 6> Of(const session::Snapshot& snapshot);

 private:
  void CountJobs(const session::Snapshot& snapshot);

  struct JobNumbers {
    int running = 0, queued = 0, uncertain = 0;
    int succeeded = 0, failed = 0;  ///< Within kWindowMs.
    double p95_s = 0;
  };
  // Counting 10^5 jobs is slow. They are counted again when the list has changed or the window has
  // moved by a second.
  JobNumbers jobs_;
  std::shared_ptr<const session::JobList> counted_;
  std::int64_t counted_at_ms_ = 0;
};

}  // namespace onepiece::gui
