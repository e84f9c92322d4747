#include "cluster/database/journal.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "cluster/base/canonical_bytes.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/database/data_folder.h"
#include "cluster/job/job_record.h"
#include "cluster/sqlite/sqlite.h"

namespace onepiece::database {
namespace {

constexpr const char* kRecordsTable =
    "CREATE TABLE records (uid BLOB PRIMARY KEY, record BLOB NOT NULL, checksum INTEGER NOT NULL)";
/// Records in one transaction. The rest follows in the next one.
constexpr std::size_t kGroup = 4096;
/// Limit of the records that wait for the disk. A record has a few KiB.
constexpr std::size_t kMaxWaitingBytes = std::size_t{256} << 20;
constexpr base::Duration kWriteRetryPause = std::chrono::seconds(1);
constexpr base::Duration kCloseLimit = std::chrono::seconds(2);

class SqliteJournal final : public Journal {
 public:
  SqliteJournal(JournalOptions options, base::Clock& clock)
      : options_(std::move(options)), clock_(clock) {}
  ~SqliteJournal() override;

  absl::Status Open();

  std::vector<v1::JobRecord> Recover() override;
  void Note(const v1::JobRecord& record) override;
  void Forget(const base::Uid& uid) override;
  bool Flush(base::MonotonicTime deadline) override;
  [[nodiscard]] JournalStats stats() const override;

 private:
  // The bytes of the newest record, or nullopt when the record is forgotten.
  using Change = std::optional<std::string>;
  using Group = std::vector<std::pair<base::Uid, Change>>;

  absl::Status Load(sqlite::Database& database);
  void Take(const base::Uid& uid, Change change);
  void WriteBehind(const std::stop_token& stop);
  Group NextGroup() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteRows(const Group& group);
  absl::Status WriteGroup(const Group& group);
  void PutBack(Group group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const JournalOptions options_;
  base::Clock& clock_;
  std::unique_ptr<DataFolder> folder_;
  // Open uses these first; once the writer runs, they belong to its thread.
  std::unique_ptr<sqlite::Database> database_;
  sqlite::Statement put_, remove_;  // Destroyed before database_.
  std::unordered_set<base::Uid> on_disk_;
  std::vector<std::int64_t> damaged_;  // Damaged rows that Open found.

  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<v1::JobRecord> recovered_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<base::Uid, Change> waiting_ ABSL_GUARDED_BY(mutex_);
  // The uids of waiting_, oldest first.
  std::deque<base::Uid> order_ ABSL_GUARDED_BY(mutex_);
  std::size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // Size of the group that is being written.
  std::size_t writing_ ABSL_GUARDED_BY(mutex_) = 0;
  // A caller waits in Flush.
  bool hurry_ ABSL_GUARDED_BY(mutex_) = false;
  JournalStats stats_ ABSL_GUARDED_BY(mutex_);
  std::jthread writer_;
};

SqliteJournal::~SqliteJournal() {
  if (!writer_.joinable()) return;
  // The flush comes before the stop, because a writer that is asked to stop drops what waits.
  if (!Flush(clock_.Now() + kCloseLimit))
    spdlog::error("op=journal_close the disk is too slow: records are lost");
  writer_.request_stop();
  writer_.join();
}

absl::Status SqliteJournal::Open() {
  ONEPIECE_ASSIGN_OR_RETURN(folder_, DataFolder::Open(options_.folder));
  bool made = false;
  ONEPIECE_ASSIGN_OR_RETURN(database_,
                            OpenTables(
                                *folder_,
                                {.name = "records.sqlite",
                                 .application_id = 0x4F504A52,  // "OPJR"
                                 .format = 1,
                                 .schema = kRecordsTable,
                                 .cluster_id = options_.cluster_id},
                                [this](sqlite::Database& database) { return Load(database); },
                                [] { return absl::OkStatus(); }, made));
  ONEPIECE_ASSIGN_OR_RETURN(
      put_, database_->Prepare("INSERT OR REPLACE INTO records VALUES (?1, ?2, ?3)"));
  ONEPIECE_ASSIGN_OR_RETURN(remove_, database_->Prepare("DELETE FROM records WHERE uid = ?1"));
  for (const std::int64_t row : damaged_) {
    ONEPIECE_RETURN_IF_ERROR(
        database_->Execute(absl::StrCat("DELETE FROM records WHERE rowid = ", row)));
  }
  if (!damaged_.empty())
    spdlog::error("op=journal_open folder={} damaged_records={}", options_.folder, damaged_.size());
  {
    const base::MutexLock lock(mutex_);
    stats_.records = static_cast<std::int64_t>(on_disk_.size());
    spdlog::info("op=journal_open folder={} records={} file={}", options_.folder, recovered_.size(),
                 made ? "new" : "kept");
  }
  writer_ = std::jthread([this](const std::stop_token& stop) { WriteBehind(stop); });
  return absl::OkStatus();
}

absl::Status SqliteJournal::Load(sqlite::Database& database) {
  ONEPIECE_ASSIGN_OR_RETURN(sqlite::Statement select,
                            database.Prepare("SELECT uid, record, checksum, rowid FROM records"));
  absl::StatusOr<bool> row = false;
  const base::MutexLock lock(mutex_);
  while ((row = select.Next()).ok() && *row) {
    auto record = ReadJournalRow(
        {.key = select.Bytes(0), .bytes = select.Bytes(1), .checksum = select.Unsigned(2)});
    if (!record.has_value()) {
      damaged_.push_back(select.Int(3));
      continue;
    }
    on_disk_.insert(*base::Uid::Parse(record->job().uid()));
    recovered_.push_back(*std::move(record));
  }
  if (row.ok()) return absl::OkStatus();
  // OpenTables() does not call Load() again for the new file that it makes. Rows of the damaged
  // file must not pass for rows of the new one.
  recovered_.clear();
  on_disk_.clear();
  damaged_.clear();
  return row.status();
}

std::vector<v1::JobRecord> SqliteJournal::Recover() {
  const base::MutexLock lock(mutex_);
  const base::MonotonicTime now = clock_.Now();
  for (v1::JobRecord& record : recovered_) TakeElapsedTime(record, options_.boot_id, now);
  return std::exchange(recovered_, {});
}

void SqliteJournal::Note(const v1::JobRecord& record) {
  const auto uid = base::Uid::Parse(record.job().uid());
  if (!uid.has_value()) return;
  v1::JobRecord stamped = record;
  stamped.mutable_stamp()->set_boot_id(options_.boot_id);
  stamped.mutable_stamp()->set_monotonic_ns(clock_.Now().time_since_epoch().count());
  Take(*uid, base::CanonicalBytes(stamped));
}

void SqliteJournal::Forget(const base::Uid& uid) { Take(uid, std::nullopt); }

void SqliteJournal::Take(const base::Uid& uid, Change change) {
  const std::size_t bytes = change.has_value() ? change->size() : 0;
  const base::MutexLock lock(mutex_);
  // A uid that waits already is never refused for lack of room. Otherwise the disk would get a
  // state that is older than the last one noted.
  const auto found = waiting_.find(uid);
  if (found != waiting_.end()) {
    waiting_bytes_ -= found->second.has_value() ? found->second->size() : 0;
    waiting_bytes_ += bytes;
    found->second = std::move(change);
    return;
  }
  if (waiting_.size() >= kMaxWaiting || waiting_bytes_ + bytes > kMaxWaitingBytes) {
    ++stats_.failed;
    return;
  }
  waiting_bytes_ += bytes;
  waiting_.emplace(uid, std::move(change));
  order_.push_back(uid);
  if (order_.size() == 1) changed_.NotifyAll();
}

bool SqliteJournal::Flush(base::MonotonicTime deadline) {
  base::MutexLock lock(mutex_);
  hurry_ = true;
  changed_.NotifyAll();
  const bool done = clock_.WaitUntil(
      changed_, lock, {}, deadline,
      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return order_.empty() && writing_ == 0; });
  hurry_ = false;
  return done;
}

JournalStats SqliteJournal::stats() const {
  const base::MutexLock lock(mutex_);
  JournalStats stats = stats_;
  stats.waiting = static_cast<std::int64_t>(order_.size() + writing_);
  return stats;
}

void SqliteJournal::WriteBehind(const std::stop_token& stop) {
  bool failed = false;
  while (!stop.stop_requested()) {
    Group group;
    {
      base::MutexLock lock(mutex_);
      const auto has_work = [this]()
                                ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !order_.empty(); };
      if (!changed_.Wait(lock, stop, has_work)) return;
      // The delay collects a group. After a failed write the pause is longer, and Flush does not
      // shorten it, so that a failing disk is not retried in a tight loop.
      clock_.WaitUntil(changed_, lock, stop,
                       clock_.Now() + (failed ? kWriteRetryPause : options_.delay),
                       [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return hurry_ && !failed; });
      if (stop.stop_requested()) return;
      group = NextGroup();
    }
    const absl::Status status = WriteGroup(group);
    if (!status.ok() && !failed)
      spdlog::error("op=journal_write {}; tried again", base::View(status.message()));
    failed = !status.ok();
    {
      const base::MutexLock lock(mutex_);
      // The same lock covers PutBack(). Otherwise Flush() could see nothing waiting and nothing
      // being written while a failed group is not on disk.
      writing_ = 0;
      if (status.ok()) {
        stats_.written += group.size();
      } else {
        ++stats_.failed;
        PutBack(std::move(group));
      }
    }
    changed_.NotifyAll();
  }
}

SqliteJournal::Group SqliteJournal::NextGroup() {
  Group group;
  while (group.size() < kGroup && !order_.empty()) {
    const auto found = waiting_.find(order_.front());
    order_.pop_front();
    waiting_bytes_ -= found->second.has_value() ? found->second->size() : 0;
    group.emplace_back(found->first, std::move(found->second));
    waiting_.erase(found);
  }
  writing_ = group.size();
  return group;
}

// Puts a group back that could not be written. A record that was noted meanwhile is newer and
// stays.
void SqliteJournal::PutBack(Group group) {
  for (auto change = group.rbegin(); change != group.rend(); ++change) {
    const std::size_t bytes = change->second.has_value() ? change->second->size() : 0;
    const base::Uid uid = change->first;
    if (!waiting_.emplace(uid, std::move(change->second)).second) continue;
    waiting_bytes_ += bytes;
    order_.push_front(uid);
  }
}

absl::Status SqliteJournal::WriteRows(const Group& group) {
  for (const auto& [uid, change] : group) {
    const std::string_view key = KeyOf(uid);
    if (change.has_value()) {
      ONEPIECE_RETURN_IF_ERROR(put_.Run(sqlite::Blob{key}, sqlite::Blob{*change},
                                        std::int64_t{RowChecksum(key, *change)}));
    } else {
      ONEPIECE_RETURN_IF_ERROR(remove_.Run(sqlite::Blob{key}));
    }
  }
  // Returns the pages of forgotten records to the file system.
  return database_->Execute("PRAGMA incremental_vacuum(4096)");
}

absl::Status SqliteJournal::WriteGroup(const Group& group) {
  const absl::Status status = database_->InTransaction([&] { return WriteRows(group); });
  if (!status.ok()) return status;
  for (const auto& [uid, change] : group) {
    if (change.has_value()) {
      on_disk_.insert(uid);
    } else {
      on_disk_.erase(uid);
    }
  }
  const base::MutexLock lock(mutex_);
  stats_.records = static_cast<std::int64_t>(on_disk_.size());
  return absl::OkStatus();
}

}  // namespace

std::string KernelBootId() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

std::optional<v1::JobRecord> ReadJournalRow(const JournalRow& row) {
  std::optional<v1::JobRecord> record(std::in_place);
  if (row.checksum != RowChecksum(row.key, row.bytes) ||
      !record->ParseFromArray(row.bytes.data(), static_cast<int>(row.bytes.size())) ||
      !base::Uid::Parse(record->job().uid()).has_value()) {
    return std::nullopt;
  }
  return record;
}

void TakeElapsedTime(v1::JobRecord& record, std::string_view boot_id, base::MonotonicTime now) {
  const v1::JournalStamp& stamp = record.stamp();
  const std::int64_t now_ns = now.time_since_epoch().count();
  const bool same_run = !stamp.boot_id().empty() && stamp.boot_id() == boot_id;
  if (record.has_time_left() && same_run && stamp.monotonic_ns() <= now_ns) {
    *record.mutable_time_left() =
        job::ToProto(job::FromProto(record.time_left()) -
                     base::Duration(now_ns - std::max<std::int64_t>(stamp.monotonic_ns(), 0)));
  }
  record.clear_stamp();
}

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(JournalOptions options, base::Clock& clock) {
  auto journal = std::make_unique<SqliteJournal>(std::move(options), clock);
  ONEPIECE_RETURN_IF_ERROR(journal->Open());
  return std::unique_ptr<Journal>(std::move(journal));
}

}  // namespace onepiece::database
