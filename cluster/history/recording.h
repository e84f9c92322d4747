// Reads a recording: any instant as a Snapshot, series for charts, marks and gaps for the scrubber.
//
// Ownership  Owns its read-only connections. A file that a Recorder writes at the same time may be
//            read.
// Threading  Thread-safe. At() and Info() wait for nothing but each other: At() is meant to be
//            called at every step of a scrubber (< 5 ms). What is of a range (Gaps, Marks,
//            ListSeries, Series) has a connection of its own, Export one for each call; these and
//            Open() may take long: not on the GUI thread.
// Errors     absl::Status: FAILED_PRECONDITION (FOREIGN_FILE, OLDER_FORMAT, NEWER_FORMAT),
// DATA_LOSS (DAMAGED,
//            what can still be read is named), OUT_OF_RANGE (nothing was recorded then), NOT_FOUND.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/session/snapshot.h"

namespace onepiece::gui::history {

struct Interval {
  std::int64_t from_ms = 0, to_ms = 0;
};

struct Gap {
  Interval interval;
  std::string reason;  ///< "recorder closed", "connection lost: …", "disk full", "clock set back …"
};

/// Something that happened, for the scrubber and "what changed".
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
  std::string
      unit;  ///< "ratio", "bytes", "bytes/s", "1/s", "ms", "s", "s2", "1", "celsius", "watts"
};

/// A bucket of a series; several samples where the range is long. NaN where nothing was known (a
/// gap, a device that does not say).
struct SeriesPoint {
  std::int64_t at_ms = 0;  ///< The bucket's beginning.
  double min = 0, mean = 0, max = 0;
};

struct RecordingInfo {
  std::string path, cluster_id;
  Interval interval;
  std::int64_t ticks = 0, bytes = 0;
  int format = 0;
  bool live = false;  ///< Another program is writing it.
};

class Recording {
 public:
  static absl::StatusOr<std::unique_ptr<Recording>> Open(const std::string& path);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// Of now: a file that is being written grows.
  absl::StatusOr<RecordingInfo> Info();
  /// The last tick at or before `at_ms`, jobs that have not ended by the recording's end included
  /// as Certainty::kUnknownAtEnd when it is the last one of a finished file. OUT_OF_RANGE: before
  /// the first, or in a gap (the message names it).
  absl::StatusOr<std::shared_ptr<const Snapshot>> At(std::int64_t at_ms);
  absl::StatusOr<std::vector<Gap>> Gaps(Interval interval);
  /// Oldest first; at most `max`, the newest.
  absl::StatusOr<std::vector<Mark>> Marks(Interval interval, std::size_t max = 1000);
  absl::StatusOr<std::vector<SeriesInfo>> ListSeries();
  /// At most `max_points` buckets of equal length over the interval. NOT_FOUND.
  absl::StatusOr<std::vector<SeriesPoint>> Series(std::string_view name, Interval interval,
                                                  int max_points);
  /// Is told now and then how far it is (0 to 1); false ends it.
  using Progress = std::function<bool(double share)>;
  /// Copies the interval, from the beginning of its first minute, into a new file that Open takes.
  /// Errors: ALREADY_EXISTS (FILE_EXISTS), OUT_OF_RANGE (NOT_RECORDED), CANCELLED (STOPPED), and
  /// those of Recorder::Open; then there is no new file.
  absl::Status Export(Interval interval, const std::string& path, const Progress& progress = {});

 private:
  class Impl;
  explicit Recording(std::string path);
  template <typename Read>
  auto OfRange(const Read& read) -> decltype(read(std::declval<Impl&>()));

  const std::string path_;
  std::mutex instants_mutex_;
  std::unique_ptr<Impl> instants_;  // Guarded by instants_mutex_.
  std::mutex ranges_mutex_;
  std::unique_ptr<Impl> ranges_;  // Guarded by ranges_mutex_; null: not asked for yet.
};

}  // namespace onepiece::gui::history
