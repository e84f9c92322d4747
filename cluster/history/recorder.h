// The recorder writes what is seen of a cluster into one SQLite file, from which Recording gives
// back every instant (docs/console.md, "Recordings").
//
// Each tick is one compressed frame of numbers. The cluster's shape (nodes, workflows, plans) is a
// keyframe every minute and changes in between. Jobs and alerts are part of the shape. Gaps are
// written down, so that nobody takes silence for quiet. A killed process leaves a file that is
// intact up to its last tick.
//
// Ownership: owns the file's connection.
// Threading: needs external synchronisation.
// Errors: absl::Status. After RESOURCE_EXHAUSTED (DISK_LOW), because the disk has less than
// `keep_free_bytes`, nothing is written. The next Record() tries again and notes the gap.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cluster/session/link.h"
#include "cluster/session/snapshot.h"

namespace onepiece::history {

struct Limits {
  std::int64_t max_bytes = std::int64_t{2} << 30;  ///< Of the file. Then the oldest minutes go.
  std::int64_t max_age_ms = std::int64_t{7} * 24 * 3600 * 1000;
  std::int64_t keep_free_bytes = std::int64_t{1} << 30;
};

class Recorder {
 public:
  /// Creates the file, or continues it and notes a gap.
  ///
  /// Errors: NOT_FOUND (NO_FILE: there is no such folder), FAILED_PRECONDITION (FOREIGN_FILE,
  /// OLDER_FORMAT, NEWER_FORMAT, IN_USE: another recorder has it), DATA_LOSS (DAMAGED: the message
  /// says that the file was moved to FILE.damaged-TIME; it is never overwritten).
  static absl::StatusOr<std::unique_ptr<Recorder>> Open(const std::string& path,
                                                        const Limits& limits = {});
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Records one tick, about once a second. A snapshot with the same at_ms as before is ignored. A
  /// clock that was set back is noted as a gap, and time goes on from the last tick. While nothing
  /// is heard no tick is written, and the next tick ends the gap.
  ///
  /// Errors: also FAILED_PRECONDITION (OTHER_CLUSTER), INVALID_ARGUMENT (NOT_LIVE).
  absl::Status Record(const session::Snapshot& snapshot, const session::LinkStatus& link);
  /// Sets a mark with a text of people.
  absl::Status Bookmark(std::int64_t at_ms, std::string_view text);
  [[nodiscard]] std::int64_t bytes() const;
  /// Returns the number of ticks written since Open().
  [[nodiscard]] std::int64_t ticks() const;

 private:
  class Impl;
  explicit Recorder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace onepiece::history
