// Writes what is seen of a cluster into one SQLite file, from which Recording gives every instant
// back (docs/console.md, "Recordings").
//
// What       One compressed frame of numbers for each tick; the cluster's shape (nodes, workflows,
// plans)
//            as a keyframe every minute and events in between; jobs and alerts as events; gaps, so
//            that nobody takes silence for rest.
// Ownership  Owns the file's connection.
// Threading  Externally synchronised.
// Errors     absl::Status; RESOURCE_EXHAUSTED (DISK_LOW) when the disk has less than
// `keep_free_bytes`:
//            nothing is written, the next Record tries again and notes the gap. A killed process
//            leaves a file that is intact up to its last tick.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cluster/session/link.h"
#include "cluster/session/snapshot.h"

namespace onepiece::gui::history {

struct Limits {
  std::int64_t max_bytes = std::int64_t{2} << 30;  ///< Of the file; then the oldest goes.
  std::int64_t max_age_ms = std::int64_t{7} * 24 * 3600 * 1000;
  std::int64_t keep_free_bytes = std::int64_t{1} << 30;
};

class Recorder {
 public:
  /// Creates the file or goes on with it (a gap is noted). Errors: NOT_FOUND (NO_FILE: no such
  /// folder), FAILED_PRECONDITION (FOREIGN_FILE, OLDER_FORMAT, NEWER_FORMAT, IN_USE: another
  /// recorder has it), DATA_LOSS (DAMAGED: it is moved aside as FILE.damaged-TIME and said so,
  /// never overwritten).
  static absl::StatusOr<std::unique_ptr<Recorder>> Open(const std::string& path,
                                                        const Limits& limits = {});
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// One tick, about once a second. The same at_ms as before is nothing new; a clock that was set
  /// back is noted as a gap, and time goes on from there. While nothing is heard no tick is
  /// written, and the next one ends the gap. Errors besides the above: FAILED_PRECONDITION
  /// (OTHER_CLUSTER), INVALID_ARGUMENT (NOT_LIVE).
  absl::Status Record(const Snapshot& snapshot, const LinkStatus& link);
  /// A mark with people's words.
  absl::Status Bookmark(std::int64_t at_ms, std::string_view text);
  [[nodiscard]] std::int64_t bytes() const;
  /// Written since Open().
  [[nodiscard]] std::int64_t ticks() const;

 private:
  class Impl;
  explicit Recorder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace onepiece::gui::history
