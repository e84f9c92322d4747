// The six numbers that say how a cluster is.
//
// Threading  Thread-confined.
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
  QString detail;   ///< "3 queued": what it is of, and how sure.
  QString view_id;  ///< The page that shows more.
  QString entity;   ///< What it is to focus on; empty: nothing.
  StatusTone tone = StatusTone::kNeutral;
};

class OverviewTiles {
 public:
  static constexpr std::int64_t kWindowMs = 15 * 60 * 1000;
  static constexpr int kMinSamples = 5;  ///< Below that no percentile is given.

  /// Jobs, throughput, p95 latency, utilisation, rings, nodes.
  std::array<OverviewTile, 6> Of(const Snapshot& snapshot);

 private:
  void CountJobs(const Snapshot& snapshot);

  struct JobNumbers {
    int running = 0, queued = 0, uncertain = 0;
    int succeeded = 0, failed = 0;  ///< In the window.
    double p95_s = 0;
  };
  // 10^5 jobs are counted when they have changed, or the window has moved by a second.
  JobNumbers jobs_;
  std::shared_ptr<const JobList> counted_;
  std::int64_t counted_at_ms_ = 0;
};

}  // namespace onepiece::gui
