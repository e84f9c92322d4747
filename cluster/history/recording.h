// Reads a recording: any instant as a Snapshot, series for charts, and marks and gaps for the time
// line.
//
// Ownership: owns its read-only connections. It may read a file that a Recorder writes at the same
// time.
// Threading: may be used from any thread.
// Blocking: At() and Info() wait only for each other. At() takes less than 5 ms, so that it can be
// called at every step of the scrubber. Gaps(), Marks(), ListSeries() and Series() share another
// connection, and each Export() has its own. These calls and Open() may take long, so do not make
// them on the GUI thread.
// Errors: FAILED_PRECONDITION (FOREIGN_FILE, OLDER_FORMAT, NEWER_FORMAT), DATA_LOSS (DAMAGED),
// which says what can still be read, OUT_OF_RANGE (nothing was recorded then), NOT_FOUND.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/mutex.h"
#include "cluster/session/snapshot.h"

namespace onepiece::history {

/// Writes a time for people, in their time zone.
std::string TimeText(std::int64_t at_ms);

struct Interval {
  std::int64_t from_ms = 0, to_ms = 0;
};

struct Gap {
  Interval interval;
  std::string reason;  ///< "recorder closed", "connection lost: …", "disk full", "clock set back …"
};

/// Something that happened, for the time line and the list of changes.
struct Mark {
  enum class Kind { kTopology, kPlan, kAlert, kJobFailed, kBookmark, kConnection };
  std::int64_t at_ms = 0;
  Kind kind = Kind::kTopology;
  std::string entity;  ///< As Alert::entity.
  std::string text;    ///< "instance-3 died", "plan 7f… started by operator:ada: more diffusion"
};

struct SeriesInfo {
  std::string name;  ///< "node/instance-1/utilization", "ring/database-1/used_slots",
                     ///< "pool/default/…/utilization"
  /// "ratio", "bytes", "bytes/s", "1/s", "ms", "s", "s2", "1", "celsius", "watts"
  std::string unit;
};

/// A bucket of a series. It holds several samples when the range is long. NaN means that nothing
/// was known, because of a gap or because a device does not tell.
struct SeriesPoint {
  std::int64_t at_ms = 0;  ///< When the bucket begins.
  double min = 0, mean = 0, max = 0;
};

struct RecordingInfo {
  std::string path, cluster_id;
  Interval interval;
  std::int64_t ticks = 0, bytes = 0;
  int format = 0;
  bool live = false;  ///< A program is writing the file.
};

class Recording {
 public:
  static absl::StatusOr<std::unique_ptr<Recording>> Open(const std::string& path);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// Returns the present information. A file that is being written grows.
  absl::StatusOr<RecordingInfo> Info();
  /// Returns the last tick at or before `at_ms`. At the end of a finished file, jobs that have not
  /// ended are Certainty::kUnknownAtEnd.
  ///
  /// Errors: OUT_OF_RANGE before the first tick or in a gap, which the message names.
  absl::StatusOr<std::shared_ptr<const session::Snapshot>> At(std::int64_t at_ms);
  absl::StatusOr<std::vector<Gap>> Gaps(Interval interval);
  /// Returns the newest `max` marks of the interval, oldest first.
  absl::StatusOr<std::vector<Mark>> Marks(Interval interval, std::size_t max = 1000);
  absl::StatusOr<std::vector<SeriesInfo>> ListSeries();
  /// Returns at most `max_points` buckets of equal length over the interval.
  ///
  /// Errors: NOT_FOUND (NO_SERIES), INVALID_ARGUMENT (BAD_INTERVAL).
  absl::StatusOr<std::vector<SeriesPoint>> Series(std::string_view name, Interval interval,
                                                  int max_points);
  /// Is called now and then with the share that is done (0 to 1). Returning false stops the export.
  using Progress = std::function<bool(double share)>;
  /// Copies the interval, from the beginning of its first minute, into a new file that Open()
  /// takes. After an error there is no new file.
  ///
  /// Errors: ALREADY_EXISTS (FILE_EXISTS), OUT_OF_RANGE (NOT_RECORDED), CANCELLED (STOPPED), and
  /// those of Recorder::Open.
  absl::Status Export(Interval interval, const std::string& path, const Progress& progress = {});

 private:
  class Impl;
  explicit Recording(std::string path);
  template <typename Read>
  auto OfRange(const Read& read) -> decltype(read(std::declval<Impl&>()));

  const std::string path_;

  base::Mutex instants_mutex_;
  const std::unique_ptr<Impl> instants_ ABSL_PT_GUARDED_BY(instants_mutex_);

  base::Mutex ranges_mutex_;
  // Null until somebody asks for a range.
  std::unique_ptr<Impl> ranges_ ABSL_GUARDED_BY(ranges_mutex_) ABSL_PT_GUARDED_BY(ranges_mutex_);
};

}  // namespace onepiece::history
