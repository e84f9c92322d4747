#include "cluster/history/recorder.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cluster/base/canonical_bytes.h"
#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "cluster/base/utf8.h"
#include "cluster/history/file.h"
#include "cluster/history/frames.h"
#include "cluster/history/marks.h"
#include "cluster/history/pieces.h"
#include "cluster/history/rollup.h"
#include "onepiece/v1/recording.pb.h"

namespace onepiece::history {
namespace {

constexpr std::int64_t kKeyframeMs = 60'000;
constexpr std::size_t kMaxBookmark = 4'000;
// The share of Limits::max_bytes that may be used. The rest is for what a minute adds before Trim()
// looks again.
constexpr double kFullShare = 0.95;
constexpr int kMaxGroupsAtOnce = 16;

bool IsHeard(const session::LinkStatus& link) {
  return link.link == session::Link::kLive || link.link == session::Link::kLagging;
}

bool IsEmpty(const session::Snapshot& snapshot) {
  return !snapshot.cluster.value && !snapshot.rings.value && !snapshot.jobs.value &&
         !snapshot.elasticity.value && !snapshot.databases.value && !snapshot.replicas.value;
}

// Moves a file that cannot be continued out of the way, and returns an error that says so.
absl::Status MoveAside(const std::string& path, const absl::Status& why) {
  const std::string time = absl::FormatTime(
      "%Y%m%d-%H%M%S", absl::FromChrono(base::SystemClock().WallNow()), absl::LocalTimeZone());
  std::string aside = absl::StrCat(path, ".damaged-", time);
  for (int i = 2; std::filesystem::exists(aside) && i < 1000; ++i)
    aside = absl::StrCat(path, ".damaged-", time, "-", i);
  std::error_code error;
  std::filesystem::rename(path, aside, error);
  if (error) {
    return Damaged(absl::StrCat(base::Message(why), "; it cannot be moved away (", error.message(),
                                "): give another name"));
  }
  for (const char* suffix : {"-wal", "-journal"}) {
    std::error_code ignored;
    std::filesystem::rename(path + suffix, aside + suffix, ignored);
  }
  std::error_code ignored;
  std::filesystem::remove(path + "-shm", ignored);
  return Damaged(absl::StrCat(base::Message(why), ". It was moved to '", aside,
                              "'; start again for a new recording"));
}

void CopyProgress(const v1::Job& from, v1::Job& to) {
  to.set_stage(from.stage());
  to.set_stage_index(from.stage_index());
  to.set_step(from.step());
  to.set_steps(from.steps());
}

}  // namespace

class Recorder::Impl {
 public:
  Impl(std::string path, const Limits& limits, std::unique_ptr<FileLock> lock)
      : path_(std::move(path)), limits_(limits), lock_(std::move(lock)) {}
  ~Impl() {
    if (!statements_) return;
    (void)SetMeta("closed", absl::StrCat(ticks_));
    statements_.reset();
    file_->Fold();
  }

  absl::Status Load();
  /// Closes the file without writing to it.
  void Abandon() {
    statements_.reset();
    file_.reset();
  }
  absl::Status Record(const session::Snapshot& snapshot, const session::LinkStatus& link);
  absl::Status Bookmark(std::int64_t at_ms, std::string_view text) {
    return WriteAlone({at_ms, Mark::Kind::kBookmark, "cluster", base::ToUtf8(text, kMaxBookmark)});
  }
  [[nodiscard]] std::int64_t bytes() const { return BytesOnDisk(path_); }
  [[nodiscard]] std::int64_t written() const { return written_; }

 private:
  struct Statements {
    Statement meta, series, seen, layout, frame, keyframe, change, mark, marks, gap, rollup;
  };
  struct KnownJob {
    std::shared_ptr<const v1::Job> job;
    session::Certainty certainty = session::Certainty::kKnown;
    std::string bytes;
    std::uint64_t seen = 0;  // The number of the last list that had the job.
  };

  absl::Status Prepare();
  absl::Status LoadSeries();
  absl::Status SetMeta(std::string_view key, std::string_view value);
  absl::Status CheckCluster(const session::Snapshot& snapshot);
  absl::Status CheckRoom();
  absl::Status Lose(const session::Snapshot& snapshot, const session::LinkStatus& link);
  std::int64_t TimeOf(const session::Snapshot& snapshot);
  absl::Status WriteTick(std::int64_t at_ms, const session::Snapshot& snapshot);
  absl::Status WriteNumbers(std::int64_t at_ms, const std::vector<Number>& numbers, bool keyframe);
  absl::StatusOr<std::uint32_t> IdOf(const std::string& name, std::int64_t at_ms);
  absl::Status WriteShape(std::int64_t at_ms, const session::Snapshot& snapshot, Things things,
                          const std::optional<JobsToRecord>& jobs, bool keyframe);
  void ChangeJobs(const JobsToRecord& jobs, v1::RecordedShape& change);
  absl::Status WriteAlone(const Mark& mark);
  /// Writes a mark and counts it.
  /// REQUIRES: a transaction is open.
  absl::Status Write(const Mark& mark);
  absl::Status WriteRollups(std::int64_t at_ms);
  absl::Status Trim(std::int64_t at_ms);
  absl::Status ForgetBefore(std::int64_t cutoff_ms);
  void StartOver();

  const std::string path_;
  const Limits limits_;
  // The lock comes before the file and is thus given up after it. Otherwise another recorder could
  // open a file that this one still has open.
  std::unique_ptr<FileLock> lock_;
  std::unique_ptr<File> file_;
  std::optional<Statements> statements_;
  Codec codec_;

  std::string cluster_id_;
  std::unordered_map<std::string, std::uint32_t> series_;
  std::uint32_t next_series_ = 1;
  std::int64_t last_ms_ = -1, keyframe_ms_ = -1;
  std::int64_t ticks_ = 0, written_ = 0;  // Ticks in the file, and since Load().
  std::string gap_reason_;                // Why there is a gap before the next tick; empty: none.
  std::int64_t heard_at_ms_ = -1, shift_ms_ = 0;
  bool lost_ = false;
  std::optional<session::Snapshot> before_;

  std::uint32_t layout_sum_ = 0, shape_sum_ = 0;  // The checksums of the last rows.
  // What has been written since the keyframe. When things_ is empty, a keyframe comes next.
  Things things_;
  std::unordered_map<std::string, KnownJob> jobs_;
  std::uint64_t job_lists_ = 0;
  bool jobs_left_out_ = false;
  Layout layout_;
  std::vector<double> first_, values_;
  std::array<RollupWindow, kRollupSeconds.size()> rollups_ = {RollupWindow(kRollupSeconds[0]),
                                                              RollupWindow(kRollupSeconds[1]),
                                                              RollupWindow(kRollupSeconds[2])};
};

absl::Status Recorder::Impl::Prepare() {
  Statements made;
  const std::pair<Statement*, const char*> all[] = {
      {&made.meta, "INSERT OR REPLACE INTO meta VALUES (?1, ?2)"},
      {&made.series, "INSERT INTO series VALUES (?1, ?2, ?3, ?4, ?5)"},
      {&made.seen, "UPDATE series SET last_ms = ?2 WHERE id = ?1"},
      {&made.layout, "INSERT INTO layout VALUES (?1, ?2, ?3)"},
      {&made.frame, "INSERT INTO frame VALUES (?1, ?2, ?3, ?4, ?5)"},
      {&made.keyframe, "INSERT INTO keyframe VALUES (?1, ?2, ?3)"},
      {&made.change, "INSERT INTO change VALUES (?1, ?2, ?3)"},
      {&made.mark, "INSERT INTO mark (t_ms, kind, entity, text, crc) VALUES (?1, ?2, ?3, ?4, ?5)"},
      {&made.marks, "UPDATE meta SET value = value + 1 WHERE key = 'marks'"},
      {&made.gap, "INSERT OR REPLACE INTO gap VALUES (?1, ?2, ?3, ?4)"},
      {&made.rollup, "INSERT OR REPLACE INTO rollup VALUES (?1, ?2, ?3, ?4)"}};
  for (const auto& [statement, sql] : all) {
    ONEPIECE_ASSIGN_OR_RETURN(*statement, file_->Prepare(sql));
  }
  statements_ = std::move(made);
  return absl::OkStatus();
}

absl::Status Recorder::Impl::Load() {
  ONEPIECE_ASSIGN_OR_RETURN(file_, File::OpenToWrite(path_));
  ONEPIECE_RETURN_IF_ERROR(Prepare());
  ONEPIECE_RETURN_IF_ERROR(LoadSeries());
  ONEPIECE_ASSIGN_OR_RETURN(Statement meta, file_->Prepare("SELECT key, value FROM meta"));
  bool closed = false;
  for (;;) {
    ONEPIECE_ASSIGN_OR_RETURN(const bool found, meta.Next());
    if (!found) break;
    if (meta.Bytes(0) == "cluster_id") cluster_id_ = meta.Text(1);
    if (meta.Bytes(0) == "closed") closed = !meta.Bytes(1).empty();
  }
  ONEPIECE_ASSIGN_OR_RETURN(FrameReader frames, FrameReader::Create(*file_));
  ONEPIECE_ASSIGN_OR_RETURN(const auto last,
                            frames.AtOrBefore(std::numeric_limits<std::int64_t>::max()));
  if (last) {
    last_ms_ = last->at_ms;
    ticks_ = last->tick + 1;
    gap_reason_ = closed ? "recorder closed" : "recorder ended unexpectedly";
    // Fills the open windows again with the ticks of the longest one. A shorter window that had
    // ended before is written again with the same content.
    constexpr std::int64_t kLongestMs = std::int64_t{1000} * kRollupSeconds.back();
    ONEPIECE_RETURN_IF_ERROR(
        frames.Scan(last_ms_ - last_ms_ % kLongestMs, last_ms_, [this](const Frame& frame) {
          for (RollupWindow& window : rollups_)
            window.Add(frame.at_ms, *frame.layout, frame.values);
        }));
  }
  return SetMeta("closed", "");
}

absl::Status Recorder::Impl::LoadSeries() {
  series_.clear();
  next_series_ = 1;
  ONEPIECE_ASSIGN_OR_RETURN(Statement rows, file_->Prepare("SELECT id, name FROM series"));
  for (;;) {
    ONEPIECE_ASSIGN_OR_RETURN(const bool found, rows.Next());
    if (!found) return absl::OkStatus();
    const auto id = static_cast<std::uint32_t>(rows.Int(0));
    series_.emplace(rows.Text(1), id);
    next_series_ = std::max(next_series_, id + 1);
  }
}

absl::Status Recorder::Impl::SetMeta(std::string_view key, std::string_view value) {
  return statements_->meta.Run(key, value);
}

absl::Status Recorder::Impl::CheckCluster(const session::Snapshot& snapshot) {
  if (!snapshot.cluster.value || snapshot.cluster.value->cluster_id().empty())
    return absl::OkStatus();
  const std::string& id = snapshot.cluster.value->cluster_id();
  if (cluster_id_.empty()) {
    ONEPIECE_RETURN_IF_ERROR(SetMeta("cluster_id", id));
    cluster_id_ = id;
  }
  if (id == cluster_id_) return absl::OkStatus();
  return base::MakeError(
      absl::StatusCode::kFailedPrecondition, "OTHER_CLUSTER",
      absl::StrCat("'", path_, "' is a recording of cluster '", base::ToUtf8(cluster_id_, 100),
                   "', and this is '", base::ToUtf8(id, 100), "': give another name"));
}

absl::Status Recorder::Impl::CheckRoom() {
  struct statvfs disk {};
  if (statvfs(path_.c_str(), &disk) != 0) return absl::OkStatus();  // A write will fail if need be.
  const auto free_bytes =
      static_cast<std::int64_t>(disk.f_bavail) * static_cast<std::int64_t>(disk.f_frsize);
  if (free_bytes >= limits_.keep_free_bytes) return absl::OkStatus();
  return base::MakeError(
      absl::StatusCode::kResourceExhausted, "DISK_LOW",
      absl::StrCat("the disk of '", path_, "' has ", free_bytes >> 20, " MiB left, and ",
                   limits_.keep_free_bytes >> 20, " MiB are kept free: nothing is recorded"));
}

// Returns the time of the tick. Time only grows. After the clock was set back, it goes on from the
// last tick.
std::int64_t Recorder::Impl::TimeOf(const session::Snapshot& snapshot) {
  if (snapshot.at_ms > last_ms_) {
    shift_ms_ = 0;
  } else if (snapshot.at_ms + shift_ms_ <= last_ms_) {
    shift_ms_ = last_ms_ + 1 - snapshot.at_ms;
    gap_reason_ = absl::StrCat("clock set back by ", (shift_ms_ + 999) / 1000, " s");
  } else if (snapshot.at_ms - heard_at_ms_ > kHoleMs) {
    shift_ms_ = last_ms_ + 1 - snapshot.at_ms;
    gap_reason_ = "clock set right again";
  }
  return snapshot.at_ms + shift_ms_;
}

absl::Status Recorder::Impl::Lose(const session::Snapshot& snapshot,
                                  const session::LinkStatus& link) {
  // A connection that was never heard is not lost. The gap since the last recording has its own
  // reason.
  if (lost_ || heard_at_ms_ < 0) return absl::OkStatus();
  lost_ = true;
  gap_reason_ = "connection lost" + (link.detail.empty() ? "" : ": " + link.detail);
  return WriteAlone(
      {std::max(last_ms_, snapshot.at_ms), Mark::Kind::kConnection, "cluster", gap_reason_});
}

absl::Status Recorder::Impl::Record(const session::Snapshot& snapshot,
                                    const session::LinkStatus& link) {
  if (snapshot.recorded || snapshot.at_ms <= 0) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "NOT_LIVE",
                           "only what is live is recorded");
  }
  ONEPIECE_RETURN_IF_ERROR(CheckCluster(snapshot));
  if (!IsHeard(link)) return Lose(snapshot, link);
  if (IsEmpty(snapshot) || snapshot.at_ms == heard_at_ms_) return absl::OkStatus();
  if (const absl::Status low = CheckRoom(); !low.ok()) {
    gap_reason_ = "disk full";
    return low;
  }
  const std::int64_t at_ms = TimeOf(snapshot);
  if (gap_reason_.empty() && last_ms_ >= 0 && at_ms - last_ms_ > kHoleMs)
    gap_reason_ = "nothing was recorded (the computer slept, or was too busy)";
  const absl::Status status =
      file_->database().InTransaction([&] { return WriteTick(at_ms, snapshot); });
  if (!status.ok()) {
    StartOver();
    if (status.code() == absl::StatusCode::kResourceExhausted) gap_reason_ = "disk full";
    return status;
  }
  // Only a committed tick counts in the windows. Otherwise they would contain ticks that the file
  // lacks.
  for (RollupWindow& window : rollups_) window.Add(at_ms, layout_, values_);
  last_ms_ = at_ms;
  heard_at_ms_ = snapshot.at_ms;
  ++ticks_;
  ++written_;
  gap_reason_.clear();
  lost_ = false;
  before_ = snapshot;
  return Trim(at_ms);
}

// The transaction was rolled back, so the memory of what the file holds is wrong. The next tick
// writes a keyframe.
void Recorder::Impl::StartOver() {
  things_.clear();
  jobs_.clear();
  layout_.clear();
  before_.reset();
  // Ids that the transaction gave out are not in the file. A series with such an id would have no
  // name.
  (void)LoadSeries();
}

absl::Status Recorder::Impl::WriteTick(std::int64_t at_ms, const session::Snapshot& snapshot) {
  const bool gap = !gap_reason_.empty() && last_ms_ >= 0;
  if (gap) {
    ONEPIECE_RETURN_IF_ERROR(
        statements_->gap.Run(last_ms_, at_ms, std::string_view(gap_reason_),
                             std::int64_t{GapSum(last_ms_, at_ms, gap_reason_)}));
  }
  if (lost_) {
    ONEPIECE_RETURN_IF_ERROR(Write({at_ms, Mark::Kind::kConnection, "cluster", "connected again"}));
  }
  // When the jobs are no longer known, WriteShape() forgets them without a change that says so.
  // Only a keyframe makes that right.
  const bool jobs_are_gone = !snapshot.jobs.value && !jobs_.empty();
  const bool keyframe =
      things_.empty() || gap || jobs_are_gone || at_ms - keyframe_ms_ >= kKeyframeMs;
  std::optional<JobsToRecord> jobs;
  const bool jobs_are_new = !before_ || before_->jobs.value != snapshot.jobs.value;
  if (snapshot.jobs.value && jobs_are_new) {
    jobs = ChooseJobs(*snapshot.jobs.value);
    jobs_left_out_ = jobs->left_out;
  }
  Pieces pieces = TakeApart(snapshot, jobs_left_out_);
  ONEPIECE_RETURN_IF_ERROR(WriteRollups(at_ms));
  ONEPIECE_RETURN_IF_ERROR(WriteShape(at_ms, snapshot, std::move(pieces.things), jobs, keyframe));
  // A frame names the checksum of its shape, so the shape comes first.
  ONEPIECE_RETURN_IF_ERROR(WriteNumbers(at_ms, pieces.numbers, keyframe));
  if (!before_) return absl::OkStatus();
  session::Snapshot now = snapshot;
  now.at_ms = at_ms;
  for (const Mark& mark : WhatHappened(*before_, now)) ONEPIECE_RETURN_IF_ERROR(Write(mark));
  return absl::OkStatus();
}

absl::StatusOr<std::uint32_t> Recorder::Impl::IdOf(const std::string& name, std::int64_t at_ms) {
  if (const auto known = series_.find(name); known != series_.end()) return known->second;
  ONEPIECE_RETURN_IF_ERROR(statements_->series.Run(
      std::int64_t{next_series_}, std::string_view(name), std::string_view(UnitOf(name)), at_ms,
      std::int64_t{RowSum(next_series_, name)}));
  series_.emplace(name, next_series_);
  return next_series_++;
}

absl::Status Recorder::Impl::WriteNumbers(std::int64_t at_ms, const std::vector<Number>& numbers,
                                          bool keyframe) {
  std::vector<std::pair<std::uint32_t, double>> cells;
  cells.reserve(numbers.size());
  for (const Number& number : numbers) {
    ONEPIECE_ASSIGN_OR_RETURN(const std::uint32_t id, IdOf(number.name, at_ms));
    cells.emplace_back(id, number.value);
  }
  std::ranges::sort(cells, {}, &std::pair<std::uint32_t, double>::first);
  const auto again = std::unique(cells.begin(), cells.end(),
                                 [](const auto& a, const auto& b) { return a.first == b.first; });
  cells.erase(again, cells.end());
  const bool fits = !keyframe && std::ranges::includes(layout_, cells, {}, {},
                                                       &std::pair<std::uint32_t, double>::first);
  if (!fits) {
    layout_.clear();
    for (const auto& [id, value] : cells) {
      layout_.push_back(id);
      ONEPIECE_RETURN_IF_ERROR(statements_->seen.Run(std::int64_t{id}, at_ms));
    }
    const std::string packed = codec_.PackLayout(layout_);
    layout_sum_ = RowSum(at_ms, packed);
    ONEPIECE_RETURN_IF_ERROR(
        statements_->layout.Run(at_ms, Blob{packed}, std::int64_t{layout_sum_}));
  }
  values_.assign(layout_.size(), std::numeric_limits<double>::quiet_NaN());
  std::size_t column = 0;
  for (const auto& [id, value] : cells) {
    while (layout_[column] != id) ++column;
    values_[column] = value;
  }
  const std::string packed =
      codec_.PackFrame(values_, fits ? std::span<const double>(first_) : std::span<const double>());
  if (!fits) first_ = values_;
  const FramePlace place{at_ms, ticks_, layout_sum_, shape_sum_};
  return statements_->frame.Run(at_ms, ticks_, std::int64_t{shape_sum_}, Blob{packed},
                                std::int64_t{FrameSum(place, packed)});
}

absl::Status Recorder::Impl::WriteShape(std::int64_t at_ms, const session::Snapshot& snapshot,
                                        Things things, const std::optional<JobsToRecord>& jobs,
                                        bool keyframe) {
  v1::RecordedShape change;
  const auto add = [&change](const std::string& key, const std::string& bytes) {
    v1::RecordedThing& thing = *change.add_things();
    thing.set_key(key);
    thing.set_value(bytes);
  };
  for (const auto& [key, bytes] : things) {
    const auto known = things_.find(key);
    if (keyframe || known == things_.end() || known->second != bytes) add(key, bytes);
  }
  for (const auto& [key, bytes] : things_) {
    if (!keyframe && !things.contains(key)) change.add_gone(key);
  }
  things_ = std::move(things);
  if (!snapshot.jobs.value) jobs_.clear();
  if (jobs) ChangeJobs(*jobs, change);
  if (keyframe) {
    // A keyframe has all jobs. The changes were only needed to update jobs_.
    const int count = static_cast<int>(things_.size());
    change.mutable_things()->DeleteSubrange(count, change.things_size() - count);
    change.clear_gone();
    change.clear_progress();
    for (const auto& [uid, job] : jobs_) add("job/" + uid, job.bytes);
  }
  if (!keyframe && change.ByteSizeLong() == 0) return absl::OkStatus();
  const std::string packed = codec_.Compress(change.SerializeAsString());
  shape_sum_ = RowSum(at_ms, packed, keyframe ? 0 : shape_sum_);
  if (keyframe) keyframe_ms_ = at_ms;
  Statement& row = keyframe ? statements_->keyframe : statements_->change;
  return row.Run(at_ms, Blob{packed}, std::int64_t{shape_sum_});
}

void Recorder::Impl::ChangeJobs(const JobsToRecord& jobs, v1::RecordedShape& change) {
  ++job_lists_;
  for (const session::JobEntry* entry : jobs.jobs) {
    KnownJob& known = jobs_[entry->job->uid()];
    known.seen = job_lists_;
    if (known.job == entry->job && known.certainty == entry->certainty) continue;
    std::string bytes = JobBytes(*entry);
    if (bytes != known.bytes) {
      bool progress = false;
      if (known.job && known.certainty == entry->certainty) {
        v1::Job moved = *known.job;
        CopyProgress(*entry->job, moved);
        progress = base::CanonicalBytes(moved) == base::CanonicalBytes(*entry->job);
      }
      if (progress) {
        v1::Job& job = *change.add_progress();
        job.set_uid(entry->job->uid());
        CopyProgress(*entry->job, job);
      } else {
        v1::RecordedThing& thing = *change.add_things();
        thing.set_key("job/" + entry->job->uid());
        thing.set_value(bytes);
      }
    }
    known.job = entry->job;
    known.certainty = entry->certainty;
    known.bytes = std::move(bytes);
  }
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    if (job->second.seen == job_lists_) {
      ++job;
      continue;
    }
    change.add_gone("job/" + job->first);
    job = jobs_.erase(job);
  }
}

absl::Status Recorder::Impl::WriteAlone(const Mark& mark) {
  return file_->database().InTransaction([&] { return Write(mark); });
}

absl::Status Recorder::Impl::Write(const Mark& mark) {
  const auto kind = static_cast<std::int64_t>(mark.kind);
  ONEPIECE_RETURN_IF_ERROR(statements_->mark.Run(
      mark.at_ms, kind, std::string_view(mark.entity), std::string_view(mark.text),
      std::int64_t{MarkSum(mark.at_ms, kind, mark.entity, mark.text)}));
  return statements_->marks.Run();
}

absl::Status Recorder::Impl::WriteRollups(std::int64_t at_ms) {
  for (const RollupWindow& window : rollups_) {
    const auto ended = window.EndedBy(at_ms);
    if (!ended) continue;
    const std::string packed = codec_.PackRollup(window.Cells());
    ONEPIECE_RETURN_IF_ERROR(
        statements_->rollup.Run(std::int64_t{window.level_s()}, *ended, Blob{packed},
                                std::int64_t{RollupSum(window.level_s(), *ended, packed)}));
  }
  return absl::OkStatus();
}

// Removes the oldest minutes, each as a whole, while the file is too large or they are too old. The
// last minute always stays.
absl::Status Recorder::Impl::Trim(std::int64_t at_ms) {
  bool trimmed = false;
  for (int i = 0; i < kMaxGroupsAtOnce; ++i) {
    ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t next,
                              file_->Number("SELECT t_ms FROM keyframe ORDER BY t_ms LIMIT 1, 1"));
    if (next == 0) break;
    ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t pages, file_->Number("PRAGMA page_count"));
    ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t unused, file_->Number("PRAGMA freelist_count"));
    ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t page_bytes, file_->Number("PRAGMA page_size"));
    const bool large = static_cast<double>((pages - unused) * page_bytes) >
                       kFullShare * static_cast<double>(limits_.max_bytes);
    if (!large && next >= at_ms - limits_.max_age_ms) break;
    ONEPIECE_RETURN_IF_ERROR(file_->database().InTransaction([&] { return ForgetBefore(next); }));
    trimmed = true;
  }
  if (!trimmed) return absl::OkStatus();
  ONEPIECE_RETURN_IF_ERROR(LoadSeries());
  return file_->Execute("PRAGMA incremental_vacuum(2000)");
}

absl::Status Recorder::Impl::ForgetBefore(std::int64_t cutoff_ms) {
  // The cutoff is a keyframe, which also began a new layout. So no row that stays needs one that
  // goes. Marks are counted down while they can still be counted.
  for (const char* sql :
       {"DELETE FROM frame WHERE t_ms < ?1", "DELETE FROM layout WHERE t_ms < ?1",
        "DELETE FROM change WHERE t_ms < ?1", "DELETE FROM keyframe WHERE t_ms < ?1",
        "UPDATE meta SET value = value - (SELECT count(*) FROM mark WHERE t_ms < ?1) WHERE key = "
        "'marks'",
        "DELETE FROM mark WHERE t_ms < ?1", "DELETE FROM gap WHERE to_ms <= ?1",
        "DELETE FROM rollup WHERE level_s = 10 AND t_ms <= ?1 - 10000",
        "DELETE FROM rollup WHERE level_s = 60 AND t_ms <= ?1 - 60000",
        "DELETE FROM rollup WHERE level_s = 600 AND t_ms <= ?1 - 600000",
        "DELETE FROM series WHERE last_ms < ?1"}) {
    ONEPIECE_ASSIGN_OR_RETURN(Statement statement, file_->Prepare(sql));
    ONEPIECE_RETURN_IF_ERROR(statement.Run(cutoff_ms));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Open(const std::string& path,
                                                         const Limits& limits) {
  // This comes before the lock, because no lock file may appear beside a file that is no recording.
  const absl::Status seen = File::IsRecording(path).status();
  if (!seen.ok() && seen.code() != absl::StatusCode::kDataLoss) return seen;
  ONEPIECE_ASSIGN_OR_RETURN(auto lock, FileLock::Take(path));
  auto impl = std::make_unique<Impl>(path, limits, std::move(lock));
  const absl::Status loaded = impl->Load();
  if (loaded.code() == absl::StatusCode::kDataLoss) {
    impl->Abandon();
    return MoveAside(path, loaded);
  }
  if (!loaded.ok()) return loaded;
  return std::unique_ptr<Recorder>(new Recorder(std::move(impl)));
}

Recorder::Recorder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Recorder::~Recorder() = default;

absl::Status Recorder::Record(const session::Snapshot& snapshot, const session::LinkStatus& link) {
  return impl_->Record(snapshot, link);
}

absl::Status Recorder::Bookmark(std::int64_t at_ms, std::string_view text) {
  return impl_->Bookmark(at_ms, text);
}

std::int64_t Recorder::bytes() const { return impl_->bytes(); }
std::int64_t Recorder::ticks() const { return impl_->written(); }

}  // namespace onepiece::history
