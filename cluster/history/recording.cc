#include "cluster/history/recording.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/client/client.h"
#include "cluster/history/file.h"
#include "cluster/history/frames.h"
#include "cluster/history/marks.h"
#include "cluster/history/pieces.h"
#include "cluster/history/rollup.h"
#include "onepiece/v1/recording.pb.h"

namespace onepiece::history {
namespace {

constexpr int kMaxPoints = 100'000;
constexpr int kRowsBetweenProgress = 100;
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view kJob = "job/";

absl::Status Outside(std::string_view what) {
  return base::MakeError(absl::StatusCode::kOutOfRange, "NOT_RECORDED", what);
}

/// The cluster's shape at one tick: a keyframe with the changes up to the tick.
struct Shape {
  std::int64_t keyframe_ms = -1, at_ms = -1;
  std::uint32_t sum = 0;  // The checksum of the last row.
  Things things;
  struct ShapeJob {
    session::JobEntry entry;
    // The job's last progress. Only the last of many steps counts, so it is applied in Jobs().
    std::optional<v1::Job> moved;
  };
  std::unordered_map<std::string, ShapeJob> jobs;  // By uid.

  absl::Status Apply(const v1::RecordedShape& change) {
    for (const v1::RecordedThing& thing : change.things()) {
      if (!absl::StartsWith(thing.key(), base::AbslView(kJob))) {
        things[thing.key()] = thing.value();
      } else if (auto job = ParseJob(thing.value())) {
        jobs[thing.key().substr(kJob.size())] = {*std::move(job), std::nullopt};
      } else {
        return Damaged("a job cannot be read");
      }
    }
    for (const std::string& key : change.gone()) {
      things.erase(key);
      if (absl::StartsWith(key, base::AbslView(kJob))) jobs.erase(key.substr(kJob.size()));
    }
    for (const v1::Job& progress : change.progress()) {
      const auto known = jobs.find(progress.uid());
      if (known != jobs.end()) known->second.moved = progress;
    }
    return absl::OkStatus();
  }
  std::vector<session::JobEntry> Jobs() {
    std::vector<session::JobEntry> all;
    all.reserve(jobs.size());
    for (auto& [uid, job] : jobs) {
      if (job.moved) {
        auto now = std::make_shared<v1::Job>(*job.entry.job);
        now->set_stage(job.moved->stage());
        now->set_stage_index(job.moved->stage_index());
        now->set_step(job.moved->step());
        now->set_steps(job.moved->steps());
        job.entry.job = std::move(now);
        job.moved.reset();
      }
      all.push_back(job.entry);
    }
    return all;
  }
};

/// Sorts samples and windows into buckets of equal length.
class Buckets {
 public:
  Buckets(Interval interval, int max_points) : from_ms_(interval.from_ms) {
    const std::int64_t length = interval.to_ms - interval.from_ms;
    bucket_ms_ = std::max<std::int64_t>(1, (length + max_points - 1) / max_points);
    sums_.resize(static_cast<std::size_t>((length + bucket_ms_ - 1) / bucket_ms_));
  }
  [[nodiscard]] std::int64_t bucket_ms() const { return bucket_ms_; }
  void Add(std::int64_t at_ms, double min, double sum, double max, std::uint32_t count) {
    if (count == 0) return;
    const std::int64_t place = std::max<std::int64_t>(0, at_ms - from_ms_) / bucket_ms_;
    if (place >= static_cast<std::int64_t>(sums_.size())) return;
    Sum& bucket = sums_[static_cast<std::size_t>(place)];
    bucket.min = bucket.count == 0 ? min : std::min(bucket.min, min);
    bucket.max = bucket.count == 0 ? max : std::max(bucket.max, max);
    bucket.sum += sum;
    bucket.count += count;
  }
  [[nodiscard]] std::vector<SeriesPoint> Points() const {
    std::vector<SeriesPoint> points;
    std::int64_t at_ms = from_ms_;
    for (const Sum& bucket : sums_) {
      SeriesPoint point{at_ms, kUnknown, kUnknown, kUnknown};
      if (bucket.count > 0)
        point = {at_ms, bucket.min, bucket.sum / static_cast<double>(bucket.count), bucket.max};
      points.push_back(point);
      at_ms += bucket_ms_;
    }
    return points;
  }

 private:
  struct Sum {
    double min = 0, sum = 0, max = 0;
    std::uint64_t count = 0;
  };
  const std::int64_t from_ms_;
  std::int64_t bucket_ms_ = 1;
  std::vector<Sum> sums_;
};

}  // namespace

class Recording::Impl {
 public:
  absl::Status Load(const std::string& path);
  absl::StatusOr<RecordingInfo> Info();
  absl::StatusOr<std::shared_ptr<const session::Snapshot>> At(std::int64_t at_ms);
  absl::StatusOr<std::vector<Gap>> Gaps(Interval interval);
  absl::StatusOr<std::vector<Mark>> Marks(Interval interval, std::size_t max);
  absl::StatusOr<std::vector<SeriesInfo>> ListSeries();
  absl::StatusOr<std::vector<SeriesPoint>> Series(std::string_view name, Interval interval,
                                                  int max_points);
  absl::Status Export(Interval interval, const std::string& path, const Progress& progress);

 private:
  struct Statements {
    Statement keyframe, changes, gap, series_of, gaps, marks, names, rollups, meta, tick_in;
  };
  absl::Status CheckNoGap(std::int64_t at_ms);
  static absl::StatusOr<Gap> ReadGap(const Statement& row);
  /// Returns how many marks are missing.
  /// The times of the first and of the last tick.
  absl::StatusOr<Interval> Ticks();
  absl::StatusOr<std::int64_t> LostMarks();
  /// Fails when there was a tick from `from_ms` to `to_ms`, because its window is missing then.
  absl::Status CheckNoTick(std::int64_t from_ms, std::int64_t to_ms);
  absl::Status LoadNames();
  absl::Status CheckEnd();
  absl::Status UseShapeOf(const Frame& frame);
  absl::Status GoOnTo(std::int64_t at_ms);
  /// Reads a keyframe or a change. `sum` is the checksum of the row before, and becomes that of
  /// this row.
  absl::StatusOr<v1::RecordedShape> ReadShape(const Statement& row, std::uint32_t& sum);
  absl::StatusOr<std::int64_t> AddRollups(std::uint32_t series, Interval interval,
                                          Buckets& buckets);
  absl::Status AddWindow(std::uint32_t series, std::int64_t at_ms, std::string_view packed,
                         Buckets& buckets);
  absl::Status AddTicks(std::uint32_t series, Interval interval, Buckets& buckets);
  absl::Status Copy(Interval interval, const std::string& path, const Progress& progress);
  absl::Status CopyRows(Interval interval, const File& file, const Progress& progress);

  std::string path_;
  std::unique_ptr<File> file_;
  std::optional<Statements> statements_;
  std::optional<FrameReader> frames_;
  Codec codec_;
  Shape shape_;
  std::unordered_map<std::string, std::uint32_t> ids_;  // By series name.
  Layout named_;                                        // The ids in ids_, ascending.
};

absl::Status Recording::Impl::Load(const std::string& path) {
  path_ = path;
  ONEPIECE_ASSIGN_OR_RETURN(file_, File::OpenToRead(path));
  Statements made;
  const std::pair<Statement*, const char*> all[] = {
      {&made.keyframe,
       "SELECT t_ms, shape, crc FROM keyframe WHERE t_ms <= ?1 ORDER BY t_ms DESC "
       "LIMIT 1"},
      {&made.changes,
       "SELECT t_ms, shape, crc FROM change WHERE t_ms > ?1 AND t_ms <= ?2 ORDER BY "
       "t_ms"},
      {&made.gap,
       "SELECT from_ms, to_ms, reason, crc FROM gap WHERE from_ms < ?1 AND to_ms > ?1 LIMIT "
       "1"},
      {&made.series_of, "SELECT id FROM series WHERE name = ?1"},
      {&made.gaps,
       "SELECT from_ms, to_ms, reason, crc FROM gap WHERE from_ms < ?2 AND to_ms > ?1 ORDER "
       "BY from_ms"},
      {&made.marks,
       "SELECT t_ms, kind, entity, text, crc FROM mark WHERE t_ms BETWEEN ?1 AND ?2 ORDER "
       "BY t_ms DESC, id DESC LIMIT ?3"},
      {&made.names, "SELECT id, name, unit, crc FROM series ORDER BY name"},
      {&made.rollups,
       "SELECT t_ms, numbers, crc FROM rollup WHERE level_s = ?1 AND t_ms >= ?2 AND "
       "t_ms < ?3 ORDER BY t_ms"},
      {&made.meta, "SELECT value FROM meta WHERE key = 'cluster_id'"},
      {&made.tick_in, "SELECT 1 FROM frame WHERE t_ms >= ?1 AND t_ms < ?2 LIMIT 1"}};
  for (const auto& [statement, sql] : all) {
    ONEPIECE_ASSIGN_OR_RETURN(*statement, file_->Prepare(sql));
  }
  statements_ = std::move(made);
  ONEPIECE_ASSIGN_OR_RETURN(frames_, FrameReader::Create(*file_));
  ONEPIECE_RETURN_IF_ERROR(CheckEnd());
  return Info().status();
}

// The recorder wrote the number of ticks when it closed the file.
absl::Status Recording::Impl::CheckEnd() {
  ONEPIECE_ASSIGN_OR_RETURN(
      const std::int64_t lost,
      file_->Number("SELECT CAST(value AS INTEGER) - ifnull((SELECT tick + 1 FROM frame ORDER BY "
                    "t_ms DESC LIMIT 1), 0) FROM meta WHERE key = 'closed' AND value != ''"));
  if (lost == 0) return absl::OkStatus();
  return Damaged(
      absl::StrCat(path_, ": the last ", lost, " ticks are not there", file_->WhatIsLeft()));
}

absl::StatusOr<RecordingInfo> Recording::Impl::Info() {
  ONEPIECE_ASSIGN_OR_RETURN(const auto view, sqlite::ReadView::Begin(file_->database()));
  RecordingInfo info;
  info.path = path_;
  ONEPIECE_ASSIGN_OR_RETURN(const bool named, statements_->meta.Start().Next());
  if (named) info.cluster_id = statements_->meta.Text(0);
  statements_->meta.Stop();
  ONEPIECE_ASSIGN_OR_RETURN(info.interval, Ticks());
  ONEPIECE_ASSIGN_OR_RETURN(
      info.ticks,
      file_->Number("SELECT 1 + tick - (SELECT tick FROM frame ORDER BY t_ms LIMIT 1) FROM frame "
                    "ORDER BY t_ms DESC LIMIT 1"));
  ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t format, file_->Number("PRAGMA user_version"));
  info.format = static_cast<int>(format);
  info.bytes = BytesOnDisk(path_);
  info.live = FileLock::IsTaken(path_);
  return info;
}

absl::StatusOr<Interval> Recording::Impl::Ticks() {
  Interval ticks;
  ONEPIECE_ASSIGN_OR_RETURN(ticks.from_ms, file_->Number("SELECT min(t_ms) FROM frame"));
  ONEPIECE_ASSIGN_OR_RETURN(ticks.to_ms, file_->Number("SELECT max(t_ms) FROM frame"));
  if (ticks.from_ms >= 0 && ticks.to_ms <= kMaxTimeMs) return ticks;
  return Damaged(absl::StrCat("ticks from ", ticks.from_ms, " to ", ticks.to_ms, " ms"));
}

absl::Status Recording::Impl::LoadNames() {
  ids_.clear();
  named_.clear();
  statements_->names.Start();
  for (;;) {
    ONEPIECE_ASSIGN_OR_RETURN(const bool found, statements_->names.Next());
    if (!found) {
      std::ranges::sort(named_);
      return absl::OkStatus();
    }
    const auto id = static_cast<std::uint32_t>(statements_->names.Int(0));
    if (statements_->names.Int(3) != RowSum(id, statements_->names.Bytes(1))) {
      statements_->names.Stop();
      return Damaged("the name of a series has a wrong checksum");
    }
    ids_.emplace(statements_->names.Text(1), id);
    named_.push_back(id);
  }
}

absl::Status Recording::Impl::CheckNoGap(std::int64_t at_ms) {
  Statement& gap = statements_->gap;
  ONEPIECE_ASSIGN_OR_RETURN(const bool found, gap.Start(at_ms).Next());
  if (!found) return absl::OkStatus();
  const absl::StatusOr<Gap> in = ReadGap(gap);
  gap.Stop();
  if (!in.ok()) return in.status();
  return Outside(absl::StrCat("nothing was recorded from ", TimeText(in->interval.from_ms), " to ",
                              TimeText(in->interval.to_ms), ": ", in->reason));
}

absl::StatusOr<Gap> Recording::Impl::ReadGap(const Statement& row) {
  Gap gap{{row.Int(0), row.Int(1)}, row.Text(2)};
  if (row.Int(3) == GapSum(gap.interval.from_ms, gap.interval.to_ms, gap.reason)) return gap;
  return Damaged(
      absl::StrCat("the gap after ", TimeText(gap.interval.from_ms), " has a wrong checksum"));
}

absl::StatusOr<v1::RecordedShape> Recording::Impl::ReadShape(const Statement& row,
                                                             std::uint32_t& sum) {
  const std::int64_t at_ms = row.Int(0);
  v1::RecordedShape shape;
  sum = RowSum(at_ms, row.Bytes(1), sum);
  if (row.Int(2) != sum) {
    return Damaged(absl::StrCat("the cluster of ", TimeText(at_ms),
                                " has a wrong checksum, or what changed before is not there"));
  }
  ONEPIECE_ASSIGN_OR_RETURN(const std::string plain, codec_.Expand(row.Bytes(1)));
  if (!shape.ParseFromString(plain))
    return Damaged(absl::StrCat("the cluster of ", TimeText(at_ms), " cannot be read"));
  return shape;
}

absl::Status Recording::Impl::UseShapeOf(const Frame& frame) {
  Statement& keyframe = statements_->keyframe;
  ONEPIECE_ASSIGN_OR_RETURN(const bool found, keyframe.Start(frame.at_ms).Next());
  if (!found)
    return Damaged(absl::StrCat("nothing says what the cluster was at ", TimeText(frame.at_ms)));
  if (keyframe.Int(0) != shape_.keyframe_ms || frame.at_ms < shape_.at_ms) {
    Shape shape;
    shape.keyframe_ms = shape.at_ms = keyframe.Int(0);
    shape_ = {};
    ONEPIECE_ASSIGN_OR_RETURN(const v1::RecordedShape all, ReadShape(keyframe, shape.sum));
    ONEPIECE_RETURN_IF_ERROR(shape.Apply(all));
    shape_ = std::move(shape);
  }
  keyframe.Stop();
  absl::Status status = GoOnTo(frame.at_ms);
  if (status.ok() && shape_.sum != frame.shape_sum) {
    status = Damaged(absl::StrCat("what changed in the cluster until ", TimeText(frame.at_ms),
                                  " is not all there"));
  }
  if (!status.ok()) shape_ = {};
  return status;
}

absl::Status Recording::Impl::GoOnTo(std::int64_t at_ms) {
  Statement& changes = statements_->changes;
  changes.Start(shape_.at_ms, at_ms);
  for (;;) {
    ONEPIECE_ASSIGN_OR_RETURN(const bool more, changes.Next());
    if (!more) break;
    const auto change = ReadShape(changes, shape_.sum);
    const absl::Status status = change.ok() ? shape_.Apply(*change) : change.status();
    if (!status.ok()) {
      changes.Stop();
      return status;
    }
  }
  shape_.at_ms = at_ms;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const session::Snapshot>> Recording::Impl::At(std::int64_t at_ms) {
  ONEPIECE_ASSIGN_OR_RETURN(const auto view, sqlite::ReadView::Begin(file_->database()));
  ONEPIECE_RETURN_IF_ERROR(CheckNoGap(at_ms));
  ONEPIECE_ASSIGN_OR_RETURN(const auto frame, frames_->AtOrBefore(at_ms));
  if (!frame) {
    // The first tick always has a keyframe. A keyframe without a tick means that the tick is lost.
    ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t first,
                              file_->Number("SELECT min(t_ms) FROM keyframe"));
    if (first != 0 && first <= at_ms)
      return Damaged(absl::StrCat("the tick of ", TimeText(first), " is not there"));
    return Outside(first == 0 ? "nothing has been recorded yet"
                              : absl::StrCat("the recording begins at ", TimeText(first)));
  }
  ONEPIECE_RETURN_IF_ERROR(UseShapeOf(*frame));
  const Layout& layout = *frame->layout;
  // A series without a known name was added since the names were read.
  if (!std::ranges::includes(named_, layout)) ONEPIECE_RETURN_IF_ERROR(LoadNames());
  if (!std::ranges::includes(named_, layout)) return Damaged("the name of a series is not there");
  const auto find = [&](const std::string& name) {
    const auto id = ids_.find(name);
    if (id == ids_.end()) return kUnknown;
    const auto column = std::ranges::lower_bound(layout, id->second);
    if (column == layout.end() || *column != id->second) return kUnknown;
    return frame->values[static_cast<std::size_t>(column - layout.begin())];
  };
  ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t last, file_->Number("SELECT max(t_ms) FROM frame"));
  const bool at_end = frame->at_ms == last && !FileLock::IsTaken(path_);
  std::vector<session::JobEntry> jobs = shape_.Jobs();
  for (session::JobEntry& entry : jobs) {
    if (at_end && !client::IsTerminal(entry.job->state()))
      entry.certainty = session::Certainty::kUnknownAtEnd;
  }
  session::Snapshot snapshot = PutTogether(shape_.things, std::move(jobs), find);
  snapshot.at_ms = frame->at_ms;
  snapshot.recorded = true;
  return std::make_shared<const session::Snapshot>(std::move(snapshot));
}

absl::StatusOr<std::vector<Gap>> Recording::Impl::Gaps(Interval interval) {
  std::vector<Gap> gaps;
  Statement& rows = statements_->gaps;
  rows.Start(interval.from_ms, interval.to_ms);
  for (;;) {
    ONEPIECE_ASSIGN_OR_RETURN(const bool found, rows.Next());
    if (!found) return gaps;
    absl::StatusOr<Gap> gap = ReadGap(rows);
    if (!gap.ok()) {
      rows.Stop();
      return gap.status();
    }
    gaps.push_back(*std::move(gap));
  }
}

absl::StatusOr<std::int64_t> Recording::Impl::LostMarks() {
  return file_->Number(
      "SELECT ifnull((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'marks'), -1) - count(*) "
      "FROM mark");
}

absl::StatusOr<std::vector<Mark>> Recording::Impl::Marks(Interval interval, std::size_t max) {
  ONEPIECE_ASSIGN_OR_RETURN(const auto view, sqlite::ReadView::Begin(file_->database()));
  ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t lost, LostMarks());
  if (lost > 0) return Damaged(absl::StrCat(lost, " events and bookmarks are not there"));
  if (lost < 0) return Damaged("there are more events and bookmarks than were recorded");
  std::vector<Mark> marks;
  Statement& rows = statements_->marks;
  rows.Start(interval.from_ms, interval.to_ms, static_cast<std::int64_t>(max));
  for (;;) {
    ONEPIECE_ASSIGN_OR_RETURN(const bool found, rows.Next());
    if (!found) break;
    const std::int64_t at_ms = rows.Int(0), kind = rows.Int(1);
    if (rows.Int(4) != MarkSum(at_ms, kind, rows.Bytes(2), rows.Bytes(3))) {
      rows.Stop();
      return Damaged(
          absl::StrCat("the event or bookmark of ", TimeText(at_ms), " has a wrong checksum"));
    }
    // An unknown kind occurs only in a file that no recorder wrote.
    const auto known = std::clamp<std::int64_t>(kind, 0, static_cast<int>(Mark::Kind::kConnection));
    marks.push_back({at_ms, static_cast<Mark::Kind>(known), rows.Text(2), rows.Text(3)});
  }
  std::ranges::reverse(marks);
  return marks;
}

absl::StatusOr<std::vector<SeriesInfo>> Recording::Impl::ListSeries() {
  std::vector<SeriesInfo> series;
  Statement& rows = statements_->names;
  rows.Start();
  for (;;) {
    ONEPIECE_ASSIGN_OR_RETURN(const bool found, rows.Next());
    if (!found) return series;
    series.push_back({rows.Text(1), rows.Text(2)});
  }
}

absl::Status Recording::Impl::CheckNoTick(std::int64_t from_ms, std::int64_t to_ms) {
  if (from_ms >= to_ms) return absl::OkStatus();
  ONEPIECE_ASSIGN_OR_RETURN(const bool found, statements_->tick_in.Start(from_ms, to_ms).Next());
  statements_->tick_in.Stop();
  if (!found) return absl::OkStatus();
  return Damaged(absl::StrCat("a rollup between ", TimeText(from_ms), " and ", TimeText(to_ms),
                              " is not there"));
}

// Adds the coarsest windows that are not longer than a bucket. Returns the time up to which they
// go.
absl::StatusOr<std::int64_t> Recording::Impl::AddRollups(std::uint32_t series, Interval interval,
                                                         Buckets& buckets) {
  int level_s = 0;
  for (const int level : kRollupSeconds) {
    if (level * std::int64_t{1000} <= buckets.bucket_ms()) level_s = level;
  }
  if (level_s == 0) return interval.from_ms;
  const std::int64_t level_ms = level_s * std::int64_t{1000};
  const auto start_of = [level_ms](std::int64_t at_ms) { return at_ms - at_ms % level_ms; };
  ONEPIECE_ASSIGN_OR_RETURN(const Interval ticks, Ticks());
  // The window in which the recording begins may have been cut, so its ticks are read instead.
  // Every other window that has ended and has a tick must be there. A window that begins before the
  // interval is part of the first bucket.
  const std::int64_t from_ms =
      std::max(start_of(interval.from_ms), start_of(ticks.from_ms + level_ms - 1));
  const std::int64_t to_ms = std::min(
      start_of(std::min(interval.to_ms, ticks.to_ms) + level_ms - 1), start_of(ticks.to_ms));
  if (from_ms >= to_ms) return interval.from_ms;
  ONEPIECE_RETURN_IF_ERROR(AddTicks(series, {interval.from_ms, from_ms}, buckets));
  std::int64_t done_ms = from_ms;
  Statement& rows = statements_->rollups;
  rows.Start(std::int64_t{level_s}, from_ms, to_ms);
  for (;;) {
    ONEPIECE_ASSIGN_OR_RETURN(const bool found, rows.Next());
    if (!found) break;
    const std::int64_t at_ms = rows.Int(0);
    absl::Status status = CheckNoTick(done_ms, at_ms);
    if (status.ok() && rows.Int(2) != RollupSum(level_s, at_ms, rows.Bytes(1)))
      status = Damaged(absl::StrCat("a rollup of ", TimeText(at_ms), " has a wrong checksum"));
    if (status.ok()) status = AddWindow(series, at_ms, rows.Bytes(1), buckets);
    if (!status.ok()) {
      rows.Stop();
      return status;
    }
    done_ms = at_ms + level_ms;
  }
  ONEPIECE_RETURN_IF_ERROR(CheckNoTick(done_ms, to_ms));
  return to_ms;
}

absl::Status Recording::Impl::AddWindow(std::uint32_t series, std::int64_t at_ms,
                                        std::string_view packed, Buckets& buckets) {
  const auto cells = codec_.UnpackRollup(packed);
  if (!cells.ok()) return cells.status();
  const auto cell = std::ranges::lower_bound(*cells, series, {}, &RollupCell::series);
  if (cell != cells->end() && cell->series == series)
    buckets.Add(at_ms, cell->min, cell->mean * cell->count, cell->max, cell->count);
  return absl::OkStatus();
}

absl::Status Recording::Impl::AddTicks(std::uint32_t series, Interval interval, Buckets& buckets) {
  return frames_->Scan(interval.from_ms, interval.to_ms - 1, [&](const Frame& frame) {
    const auto column = std::ranges::lower_bound(*frame.layout, series);
    if (column == frame.layout->end() || *column != series) return;
    const double value = frame.values[static_cast<std::size_t>(column - frame.layout->begin())];
    if (!std::isnan(value)) buckets.Add(frame.at_ms, value, value, value, 1);
  });
}

absl::StatusOr<std::vector<SeriesPoint>> Recording::Impl::Series(std::string_view name,
                                                                 Interval interval,
                                                                 int max_points) {
  if (max_points < 1 || max_points > kMaxPoints || interval.to_ms <= interval.from_ms ||
      interval.from_ms < 0 || interval.to_ms > kMaxTimeMs) {
    return base::MakeError(
        absl::StatusCode::kInvalidArgument, "BAD_INTERVAL",
        absl::StrCat("an interval that ends after it begins, and 1 to ", kMaxPoints, " points"));
  }
  ONEPIECE_ASSIGN_OR_RETURN(const auto view, sqlite::ReadView::Begin(file_->database()));
  ONEPIECE_ASSIGN_OR_RETURN(const bool known, statements_->series_of.Start(name).Next());
  const auto series = static_cast<std::uint32_t>(known ? statements_->series_of.Int(0) : 0);
  statements_->series_of.Stop();
  if (!known) {
    return base::MakeError(absl::StatusCode::kNotFound, "NO_SERIES",
                           absl::StrCat("the recording has no series '", std::string(name), "'"));
  }
  Buckets buckets(interval, max_points);
  ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t done_ms, AddRollups(series, interval, buckets));
  ONEPIECE_RETURN_IF_ERROR(AddTicks(series, {done_ms, interval.to_ms}, buckets));
  return buckets.Points();
}

absl::Status Recording::Impl::Copy(Interval interval, const std::string& path,
                                   const Progress& progress) {
  ONEPIECE_ASSIGN_OR_RETURN(const auto file, File::OpenToWrite(path));
  ONEPIECE_RETURN_IF_ERROR(
      file->database().InTransaction([&] { return CopyRows(interval, *file, progress); }));
  file->Fold();
  return absl::OkStatus();
}

absl::Status Recording::Impl::CopyRows(Interval interval, const File& file,
                                       const Progress& progress) {
  // The minute in which the interval begins is copied as a whole, because its ticks depend on its
  // first one.
  Statement& keyframe = statements_->keyframe;
  ONEPIECE_ASSIGN_OR_RETURN(const bool found, keyframe.Start(interval.from_ms).Next());
  const std::int64_t from_ms = found ? keyframe.Int(0) : interval.from_ms;
  keyframe.Stop();
  struct Table {
    const char* from;
    const char* to;
    bool by_time = false;  // The first column is the time, which tells the progress.
  };
  constexpr Table kCopied[] = {
      {"SELECT key, value FROM meta WHERE ?1 <= ?2", "INSERT OR REPLACE INTO meta VALUES (?1, ?2)"},
      {"SELECT * FROM series WHERE last_ms >= ?1 AND ?1 <= ?2",
       "INSERT INTO series VALUES (?1, ?2, ?3, ?4, ?5)"},
      {"SELECT * FROM layout WHERE t_ms BETWEEN ?1 AND ?2",
       "INSERT INTO layout VALUES (?1, ?2, ?3)"},
      {"SELECT * FROM frame WHERE t_ms BETWEEN ?1 AND ?2",
       "INSERT INTO frame VALUES (?1, ?2, ?3, ?4, ?5)", true},
      {"SELECT * FROM keyframe WHERE t_ms BETWEEN ?1 AND ?2",
       "INSERT INTO keyframe VALUES (?1, ?2, ?3)", true},
      {"SELECT * FROM change WHERE t_ms BETWEEN ?1 AND ?2",
       "INSERT INTO change VALUES (?1, ?2, ?3)", true},
      {"SELECT * FROM mark WHERE t_ms BETWEEN ?1 AND ?2",
       "INSERT INTO mark VALUES (?1, ?2, ?3, ?4, ?5, ?6)"},
      {"SELECT * FROM gap WHERE from_ms >= ?1 AND to_ms <= ?2",
       "INSERT INTO gap VALUES (?1, ?2, ?3, ?4)"},
      {"SELECT * FROM rollup WHERE t_ms >= ?1 AND t_ms + level_s * 1000 <= ?2",
       "INSERT INTO rollup VALUES (?1, ?2, ?3, ?4)"}};
  const double length_ms = static_cast<double>(std::max<std::int64_t>(1, interval.to_ms - from_ms));
  std::int64_t rows = 0;
  double done = 0;  // Tables that are done.
  for (const Table& table : kCopied) {
    ONEPIECE_ASSIGN_OR_RETURN(Statement from, file_->Prepare(table.from));
    ONEPIECE_ASSIGN_OR_RETURN(Statement to, file.Prepare(table.to));
    from.Start(from_ms, interval.to_ms);
    for (;;) {
      ONEPIECE_ASSIGN_OR_RETURN(const bool more, from.Next());
      if (!more) break;
      ONEPIECE_RETURN_IF_ERROR(to.RunRow(from));
      if (!progress || ++rows % kRowsBetweenProgress != 0) continue;
      const double part =
          table.by_time ? static_cast<double>(from.Int(0) - from_ms) / length_ms : 0.0;
      if (!progress((done + std::clamp(part, 0.0, 1.0)) / std::size(kCopied))) {
        return base::MakeError(absl::StatusCode::kCancelled, "STOPPED",
                               "the copy was stopped: there is no new file");
      }
    }
    ++done;
  }
  // Lost marks stay counted, so that the copy is damaged as well.
  ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t lost, LostMarks());
  // Both rows replace copies from meta, because the new file has counts of its own.
  return file.Execute(absl::StrCat(
      "INSERT OR REPLACE INTO meta SELECT 'closed', ifnull(max(tick) + 1, 0) FROM frame; INSERT OR "
      "REPLACE INTO meta SELECT 'marks', count(*) + ",
      lost, " FROM mark"));
}

absl::Status Recording::Impl::Export(Interval interval, const std::string& path,
                                     const Progress& progress) {
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, ignored)))
    return FileExistsError(path);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored)) {
    return base::MakeError(absl::StatusCode::kNotFound, "NO_FILE",
                           absl::StrCat("there is no folder '", folder.string(), "'"));
  }
  ONEPIECE_ASSIGN_OR_RETURN(const auto view, sqlite::ReadView::Begin(file_->database()));
  ONEPIECE_ASSIGN_OR_RETURN(const auto first, frames_->AtOrBefore(interval.to_ms));
  ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t last, file_->Number("SELECT max(t_ms) FROM frame"));
  if (interval.to_ms < interval.from_ms || !first || last < interval.from_ms)
    return Outside("nothing was recorded in this interval");
  const std::string part = absl::StrCat(path, ".part-", getpid());
  absl::Status status = Copy(interval, part, progress);
  if (status.ok()) status = MoveToNewName(part, path);
  for (const char* suffix : {"", "-wal", "-shm", "-journal"})
    std::filesystem::remove(part + suffix, ignored);
  return status;
}

absl::StatusOr<std::unique_ptr<Recording>> Recording::Open(const std::string& path) {
  std::unique_ptr<Recording> recording(new Recording(path));
  {
    const base::MutexLock lock(recording->instants_mutex_);
    ONEPIECE_RETURN_IF_ERROR(recording->instants_->Load(path));
  }
  return recording;
}

Recording::Recording(std::string path)
    : path_(std::move(path)), instants_(std::make_unique<Impl>()) {}
Recording::~Recording() = default;

absl::StatusOr<RecordingInfo> Recording::Info() {
  const base::MutexLock lock(instants_mutex_);
  return instants_->Info();
}
absl::StatusOr<std::shared_ptr<const session::Snapshot>> Recording::At(std::int64_t at_ms) {
  const base::MutexLock lock(instants_mutex_);
  return instants_->At(at_ms);
}

template <typename Read>
auto Recording::OfRange(const Read& read) -> decltype(read(std::declval<Impl&>())) {
  const base::MutexLock lock(ranges_mutex_);
  if (!ranges_) {
    auto impl = std::make_unique<Impl>();
    ONEPIECE_RETURN_IF_ERROR(impl->Load(path_));
    ranges_ = std::move(impl);
  }
  return read(*ranges_);
}

absl::StatusOr<std::vector<Gap>> Recording::Gaps(Interval interval) {
  return OfRange([&](Impl& impl) { return impl.Gaps(interval); });
}
absl::StatusOr<std::vector<Mark>> Recording::Marks(Interval interval, std::size_t max) {
  return OfRange([&](Impl& impl) { return impl.Marks(interval, max); });
}
absl::StatusOr<std::vector<SeriesInfo>> Recording::ListSeries() {
  return OfRange([](Impl& impl) { return impl.ListSeries(); });
}
absl::StatusOr<std::vector<SeriesPoint>> Recording::Series(std::string_view name, Interval interval,
                                                           int max_points) {
  return OfRange([&](Impl& impl) { return impl.Series(name, interval, max_points); });
}
absl::Status Recording::Export(Interval interval, const std::string& path,
                               const Progress& progress) {
  Impl impl;
  ONEPIECE_RETURN_IF_ERROR(impl.Load(path_));
  return impl.Export(interval, path, progress);
}

}  // namespace onepiece::history
