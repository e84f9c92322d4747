#include "cluster/database/spill.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/database/data_folder.h"
#include "cluster/database/spill_file.h"
#include "cluster/sqlite/sqlite.h"

namespace onepiece::database {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kResult = ".result";
constexpr std::string_view kPart = ".part";  // The suffix of a file that is not complete yet.

constexpr const char* kFilesTable =
    "CREATE TABLE results (uid BLOB PRIMARY KEY, bytes INTEGER NOT NULL, checksum INTEGER NOT "
    "NULL) WITHOUT ROWID";

// The checksum of a row. It covers the uid, so that damage to a uid shows and does not make the
// file look like one without an entry, which would be deleted.
std::uint32_t ChecksumOf(const base::Uid& uid, std::int64_t bytes) {
  return RowChecksum(KeyOf(uid), {reinterpret_cast<const char*>(&bytes), sizeof(bytes)});
}

class FileSpill final : public Spill {
 public:
  explicit FileSpill(SpillOptions options)
      : options_(std::move(options)), cluster_(ClusterHash(options_.cluster_id)) {}

  absl::Status Open();

  [[nodiscard]] std::vector<base::Uid> Kept() const override;
  absl::StatusOr<std::vector<StoredArtifact>> Write(
      const base::Uid& uid, std::span<const StoredArtifact> artifacts) override;
  absl::StatusOr<std::vector<StoredArtifact>> Read(const base::Uid& uid) override;
  void Remove(const base::Uid& uid) override;
  void SetBudget(std::int64_t bytes) override {
    const base::MutexLock lock(mutex_);
    stats_.budget_bytes = bytes;
  }
  [[nodiscard]] SpillStats stats() const override;

 private:
  struct Found {
    absl::Status status;  // What is wrong with the file's header.
    std::int64_t bytes = 0;
    /// The disk or this process failed (EIO, no descriptors left), which says nothing about the
    /// file. It stays where it is, as its entry does.
    [[nodiscard]] bool unreadable() const {
      return !status.ok() && !absl::IsDataLoss(status) && !absl::IsFailedPrecondition(status);
    }
  };

  [[nodiscard]] std::string PathOf(const base::Uid& uid) const {
    return folder_->File(absl::StrCat(uid.ToString(), std::string(kResult)));
  }
  [[nodiscard]] SpillOwner OwnerOf(const base::Uid& uid) const { return {uid, cluster_}; }
  absl::Status LookAtFiles();
  absl::Status Load(sqlite::Database& database) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Reconcile(bool index_is_new) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Publish(const base::Uid& uid, const std::string& part, std::int64_t bytes);
  absl::Status Insert(const base::Uid& uid, std::int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(const base::Uid& uid) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SpillOptions options_;
  const std::uint64_t cluster_;
  std::unique_ptr<DataFolder> folder_;
  // Only Open uses these two: the files that it found, and those that are not complete.
  std::map<base::Uid, Found> files_;
  std::vector<fs::path> parts_;

  base::Mutex write_mutex_;  // Held while a file is written.
  mutable base::Mutex mutex_ ABSL_ACQUIRED_AFTER(write_mutex_);
  std::unique_ptr<sqlite::Database> index_ ABSL_GUARDED_BY(mutex_);
  // Declared after index_, so that the statements are destroyed before it.
  sqlite::Statement insert_ ABSL_GUARDED_BY(mutex_);
  sqlite::Statement remove_ ABSL_GUARDED_BY(mutex_);
  // The sizes of the files.
  std::unordered_map<base::Uid, std::int64_t> entries_ ABSL_GUARDED_BY(mutex_);
  // `bytes` includes the file that is being written.
  SpillStats stats_ ABSL_GUARDED_BY(mutex_);
};

absl::Status FileSpill::Open() {
  ONEPIECE_ASSIGN_OR_RETURN(folder_, DataFolder::Open(options_.folder));
  ONEPIECE_RETURN_IF_ERROR(LookAtFiles());
  const base::MutexLock lock(mutex_);
  // A new index adopts the files that lie here. It must not adopt those of another cluster. A file
  // that cannot be read now could not be adopted, and the next start would drop it as one that the
  // index does not know.
  const auto may_make = [this]() -> absl::Status {
    for (const auto& [uid, found] : files_) {
      if (base::GetReason(found.status).reason == "OTHER_CLUSTER") return found.status;
    }
    for (const auto& [uid, found] : files_) {
      if (found.unreadable()) return found.status;
    }
    return absl::OkStatus();
  };
  bool made = false;
  ONEPIECE_ASSIGN_OR_RETURN(
      index_, OpenTables(
                  *folder_,
                  {.name = "index.sqlite",
                   .application_id = 0x4F505350,  // "OPSP"
                   .format = 1,
                   .schema = kFilesTable,
                   .cluster_id = options_.cluster_id},
                  [this](sqlite::Database& database)
                      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Load(database); },
                  may_make, made));
  ONEPIECE_ASSIGN_OR_RETURN(insert_,
                            index_->Prepare("INSERT OR REPLACE INTO results VALUES (?1, ?2, ?3)"));
  ONEPIECE_ASSIGN_OR_RETURN(remove_, index_->Prepare("DELETE FROM results WHERE uid = ?1"));
  // Only now is it known that the folder is this cluster's.
  for (const fs::path& part : parts_) unlink(part.c_str());
  ONEPIECE_RETURN_IF_ERROR(Reconcile(made));
  parts_.clear();
  files_.clear();
  stats_.budget_bytes = options_.budget_bytes;
  spdlog::info("op=spill_open folder={} results={} bytes={} damaged={} index={}", options_.folder,
               entries_.size(), stats_.bytes, stats_.damaged, made ? "new" : "kept");
  return absl::OkStatus();
}

// Reads the headers of our files. Files with other names are left alone.
absl::Status FileSpill::LookAtFiles() {
  std::error_code error;
  const auto failed = [&] { return DiskError(error.value(), "cannot read", options_.folder); };
  // increment() and not a range-based loop, which throws when the folder cannot be read on.
  for (fs::directory_iterator at(options_.folder, error), end; at != end; at.increment(error)) {
    if (error) return failed();
    const fs::path& path = at->path();
    std::string name = path.filename().string();
    if (name.ends_with(kPart)) {
      name.resize(name.size() - kPart.size());
      if (name.ends_with(kResult)) parts_.push_back(path);
      continue;
    }
    if (!name.ends_with(kResult)) continue;
    const auto uid = base::Uid::Parse(name.substr(0, name.size() - kResult.size()));
    if (!uid.has_value() || path != PathOf(*uid)) continue;
    const auto header = ReadSpillHeader(path);
    if (base::GetReason(header.status()).reason == "NEWER_FORMAT") return header.status();
    if (absl::IsNotFound(header.status())) continue;
    Found& found = files_[*uid];
    found.status = header.status();
    if (!header.ok()) continue;
    found.bytes = header->file_bytes;
    if (header->owner.cluster != cluster_) {
      found.status =
          base::MakeError(absl::StatusCode::kFailedPrecondition, "OTHER_CLUSTER",
                          absl::StrCat(path.string(),
                                       " was spilled by another cluster's database: give "
                                       "this one another data_dir, or move it away"));
    } else if (header->owner.uid != *uid) {
      found.status = absl::DataLossError("it is another result's");
    }
  }
  return error ? failed() : absl::OkStatus();
}

absl::Status FileSpill::Load(sqlite::Database& database) {
  ONEPIECE_ASSIGN_OR_RETURN(sqlite::Statement select,
                            database.Prepare("SELECT uid, bytes, checksum FROM results"));
  absl::StatusOr<bool> row = false;
  while ((row = select.Next()).ok() && *row) {
    std::array<std::uint8_t, 16> bytes{};
    const std::string_view key = select.Bytes(0);
    std::copy_n(key.begin(), std::min(key.size(), bytes.size()), bytes.begin());
    const base::Uid uid(bytes);
    if (key.size() != bytes.size() || select.Unsigned(2) != ChecksumOf(uid, select.Int(1))) {
      row = absl::DataLossError(absl::StrCat(database.path(), ": checksum of a row"));
      break;
    }
    entries_[uid] = select.Int(1);
  }
  if (row.ok()) return absl::OkStatus();
  entries_.clear();
  return row.status();
}

// Makes the files and the index agree.
absl::Status FileSpill::Reconcile(bool index_is_new) {
  return index_->InTransaction([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    for (const auto& [uid, found] : files_) {
      const auto entry = entries_.find(uid);
      if (found.unreadable()) {
        spdlog::error("op=spill_open uid={} kept, but cannot be read now: {}", uid.ToString(),
                      base::View(found.status.message()));
        continue;
      }
      const bool known = entry != entries_.end() && entry->second == found.bytes;
      if (found.status.ok() && (known || index_is_new)) {
        if (!known) ONEPIECE_RETURN_IF_ERROR(Insert(uid, found.bytes));
        continue;
      }
      // A file without an entry is no loss: its write never finished, or its removal did not.
      if (entry != entries_.end() || index_is_new) {
        ++stats_.damaged;
        spdlog::error("op=spill_open uid={} dropped: {}", uid.ToString(),
                      found.status.ok() ? "it is of another size than the index says"
                                        : std::string(base::View(found.status.message())));
      }
      // A crash before the commit leaves at most an entry without a file. The next start drops such
      // an entry.
      unlink(PathOf(uid).c_str());
      if (entry == entries_.end()) continue;
      entries_.erase(entry);
      ONEPIECE_RETURN_IF_ERROR(remove_.Run(sqlite::Blob{KeyOf(uid)}));
    }
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      if (files_.contains(entry->first)) {
        stats_.bytes += entry->second;
        ++entry;
        continue;
      }
      ++stats_.damaged;
      spdlog::error("op=spill_open uid={} dropped: its file is missing", entry->first.ToString());
      ONEPIECE_RETURN_IF_ERROR(remove_.Run(sqlite::Blob{KeyOf(entry->first)}));
      entry = entries_.erase(entry);
    }
    return absl::OkStatus();
  });
}

absl::Status FileSpill::Insert(const base::Uid& uid, std::int64_t bytes) {
  ONEPIECE_RETURN_IF_ERROR(
      insert_.Run(sqlite::Blob{KeyOf(uid)}, bytes, std::int64_t{ChecksumOf(uid, bytes)}));
  entries_[uid] = bytes;
  return absl::OkStatus();
}

std::vector<base::Uid> FileSpill::Kept() const {
  const base::MutexLock lock(mutex_);
  std::vector<base::Uid> uids;
  uids.reserve(entries_.size());
  for (const auto& [uid, bytes] : entries_) uids.push_back(uid);
  return uids;
}

absl::StatusOr<std::vector<StoredArtifact>> FileSpill::Write(
    const base::Uid& uid, std::span<const StoredArtifact> artifacts) {
  const base::MutexLock writing(write_mutex_);
  const std::int64_t bytes = SpillFileBytes(artifacts);
  {
    // An older file of this result goes first. Otherwise Insert() would overwrite its entry, and
    // its bytes would count against the budget for ever.
    const base::MutexLock lock(mutex_);
    Drop(uid);
    if (bytes > stats_.budget_bytes - stats_.bytes) {
      return base::MakeError(
          absl::StatusCode::kResourceExhausted, "SPILL_FULL",
          absl::StrCat("no room for ", bytes, " bytes: ", stats_.bytes, " of ", stats_.budget_bytes,
                       " are spilled (spill_budget_bytes)"));
    }
    stats_.bytes += bytes;
  }
  const std::string part = absl::StrCat(PathOf(uid), std::string(kPart));
  absl::Status status = WriteSpillFile(part, OwnerOf(uid), artifacts);
  if (status.ok()) status = Publish(uid, part, bytes);
  if (status.ok()) {
    auto mapped = MapSpillFile(PathOf(uid), OwnerOf(uid));
    if (mapped.ok()) return mapped;
    // The entry exists by now, so Remove() also gives back the bytes that were reserved above.
    Remove(uid);
    status = mapped.status();
    const base::MutexLock lock(mutex_);
    ++stats_.failed_writes;
  } else {
    unlink(part.c_str());
    const base::MutexLock lock(mutex_);
    stats_.bytes -= bytes;
    ++stats_.failed_writes;
  }
  // PERMISSION_DENIED too becomes DISK_FAILED here: the folder could be written when it was opened.
  if (status.code() == absl::StatusCode::kResourceExhausted) return status;
  return base::MakeError(absl::StatusCode::kUnavailable, "DISK_FAILED", base::Message(status));
}

// Gives the file its name and then its entry, in this order: a crash in between leaves a file
// without an entry, which the next start removes. When a step fails, nothing of the file is left.
absl::Status FileSpill::Publish(const base::Uid& uid, const std::string& part, std::int64_t bytes) {
  const base::MutexLock lock(mutex_);
  const std::string path = PathOf(uid);
  if (rename(part.c_str(), path.c_str()) != 0) return DiskError(errno, "cannot rename", part);
  absl::Status status = folder_->Sync();
  if (status.ok()) status = Insert(uid, bytes);
  if (!status.ok()) {
    unlink(path.c_str());
    return status;
  }
  ++stats_.written;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StoredArtifact>> FileSpill::Read(const base::Uid& uid) {
  {
    const base::MutexLock lock(mutex_);
    if (!entries_.contains(uid)) return absl::NotFoundError("no spilled result");
  }
  // The check reads every byte, so it runs without the lock. Remove() may take the file away
  // meanwhile, which is no damage.
  auto artifacts = CheckSpillFile(PathOf(uid), OwnerOf(uid));
  if (artifacts.ok()) return artifacts;
  const base::MutexLock lock(mutex_);
  if (!entries_.contains(uid)) return absl::NotFoundError("no spilled result");
  // A failure of the disk or of this process is no damage: a later start may read the file.
  if (!absl::IsDataLoss(artifacts.status()) && !absl::IsNotFound(artifacts.status())) {
    spdlog::error("op=spill_read uid={} kept, but cannot be read now: {}", uid.ToString(),
                  base::View(artifacts.status().message()));
    return artifacts.status();
  }
  ++stats_.damaged;
  spdlog::error("op=spill_read uid={} dropped: {}", uid.ToString(),
                base::View(artifacts.status().message()));
  Drop(uid);
  return base::MakeError(absl::StatusCode::kDataLoss, "SPILL_DAMAGED",
                         base::Message(artifacts.status()), {{"uid", uid.ToString()}});
}

void FileSpill::Remove(const base::Uid& uid) {
  const base::MutexLock lock(mutex_);
  if (!entries_.contains(uid)) return;
  ++stats_.removed;
  Drop(uid);
}

// Removes the entry first and then the file. If the entry cannot be removed, the next start finds
// no file for it and removes it then.
void FileSpill::Drop(const base::Uid& uid) {
  const auto entry = entries_.find(uid);
  if (entry == entries_.end()) return;
  if (const absl::Status status = remove_.Run(sqlite::Blob{KeyOf(uid)}); !status.ok())
    spdlog::warn("op=spill_remove uid={} {}", uid.ToString(), base::View(status.message()));
  unlink(PathOf(uid).c_str());
  stats_.bytes -= entry->second;
  entries_.erase(entry);
}

SpillStats FileSpill::stats() const {
  const base::MutexLock lock(mutex_);
  SpillStats stats = stats_;
  stats.results = static_cast<std::int64_t>(entries_.size());
  return stats;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Spill>> Spill::Open(SpillOptions options) {
  auto spill = std::make_unique<FileSpill>(std::move(options));
  ONEPIECE_RETURN_IF_ERROR(spill->Open());
  return std::unique_ptr<Spill>(std::move(spill));
}

}  // namespace onepiece::database
