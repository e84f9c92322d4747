#include "nodemanager/replication/store.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "absl/strings/str_cat.h"
#include "cluster/base/check.h"
#include "cluster/base/crc32c.h"
#include "cluster/base/folder.h"
#include "cluster/base/status.h"
#include "nodemanager/replication/codec.h"
#include "nodemanager/replication/wal_check.h"

namespace onepiece::nodemanager {
namespace {

constexpr std::uint64_t kFormat = 3;

constexpr const char* kTables =
    "CREATE TABLE format (version INTEGER NOT NULL);"
    "INSERT INTO format VALUES (3);"
    "CREATE TABLE replica (id INTEGER PRIMARY KEY, cluster BLOB NOT NULL, name BLOB NOT NULL, "
    "replica INTEGER NOT NULL, group_id INTEGER NOT NULL, promised_round INTEGER NOT NULL, "
    "promised_replica INTEGER NOT NULL, chosen INTEGER NOT NULL, first_slot INTEGER NOT NULL, "
    "last_slot INTEGER NOT NULL, "
    "log_digest INTEGER NOT NULL, snapshot_index INTEGER NOT NULL, "
    "snapshot_checksum INTEGER NOT NULL, checksum INTEGER NOT NULL);"
    "CREATE TABLE log (slot INTEGER PRIMARY KEY, round INTEGER NOT NULL, replica INTEGER NOT NULL, "
    "entry BLOB NOT NULL, checksum INTEGER NOT NULL);"
    "CREATE TABLE snapshot (id INTEGER PRIMARY KEY, snapshot BLOB NOT NULL);";

std::uint32_t Crc(const std::string& bytes) {
  return base::Crc32c(std::as_bytes(std::span(bytes)));
}

// Covers slot and ballot as well, so that an entry in the wrong slot is noticed.
std::uint32_t EntryChecksum(paxos::Slot slot, const paxos::Ballot& ballot,
                            const std::string& bytes) {
  return base::ExtendCrc32c(
      Crc(absl::StrCat(slot.value, ":", ballot.round, ":", ballot.replica.value, ":")),
      std::as_bytes(std::span(bytes)));
}

absl::Status BadWrites(std::string_view why) {
  return base::MakeError(absl::StatusCode::kInternal, "BAD_WRITES", why);
}

// A new folder survives a power cut only when the folder above it has been synced too.
absl::Status MakeFolder(const std::string& dir) {
  std::error_code error;
  const bool made = std::filesystem::create_directories(dir, error);
  if (error) {
    return base::MakeError(absl::StatusCode::kUnavailable, "DATABASE_FAILED",
                           absl::StrCat("cannot make the folder ", dir, ": ", error.message()));
  }
  if (!made) return absl::OkStatus();
  (void)base::SyncFolderOf(dir);  // SQLite says when the disk fails.
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& dir) {
  ONEPIECE_RETURN_IF_ERROR(MakeFolder(dir));
  std::unique_ptr<Store> store(new Store(dir));
  ONEPIECE_RETURN_IF_ERROR(store->OpenDatabase());
  ONEPIECE_RETURN_IF_ERROR(store->Load());
  // What was read is right, so the write-ahead log may be folded into the database, now and on
  // closing. A process that was killed, or whose sync failed, leaves data that can be read and that
  // a power cut takes away. After the fold it is durable, and this replica may answer for it.
  store->database_->FoldOnClose(true);
  ONEPIECE_RETURN_IF_ERROR(store->database_->Checkpoint());
  return store;
}

absl::Status Store::OpenDatabase() {
  const std::string path = dir_ + "/nodemanager.sqlite";
  const auto explain = [this, path](sqlite::Failure failure, std::string_view what) {
    const std::string message = absl::StrCat(path, ": ", std::string(what));
    switch (failure) {
      case sqlite::Failure::kBusy:
        return base::MakeError(absl::StatusCode::kFailedPrecondition, "DATA_DIR_IN_USE",
                               absl::StrCat(path, " is in use by another process"));
      case sqlite::Failure::kFull:
        return base::MakeError(absl::StatusCode::kUnavailable, "DISK_FULL", message);
      case sqlite::Failure::kDamaged:
        return Corrupt(what);
      case sqlite::Failure::kDenied:
      case sqlite::Failure::kFailed:
        break;
    }
    return base::MakeError(absl::StatusCode::kUnavailable, "DATABASE_FAILED", message);
  };
  ONEPIECE_ASSIGN_OR_RETURN(
      database_, sqlite::Database::Open(path, {.mode = sqlite::OpenMode::kCreate}, explain));
  // SQLite would fold only the frames before a damaged one into the database and then delete the
  // log. So nothing is folded before Load() has checked the frames.
  database_->FoldOnClose(false);
  // EXCLUSIVE keeps a second NodeManager out as long as this one lives. Debian's SQLite overwrites
  // what is deleted, which would only write more, so secure_delete is off.
  return database_->Execute(
      "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; "
      "PRAGMA secure_delete=OFF; BEGIN EXCLUSIVE; COMMIT");
}

absl::Status Store::Corrupt(std::string_view what) const {
  return base::MakeError(
      absl::StatusCode::kDataLoss, "DATABASE_CORRUPT",
      absl::StrCat(dir_, "/nodemanager.sqlite is damaged (", std::string(what),
                   "). Move the folder ", dir_,
                   " away and start again: the replica comes back as a new one, without a vote, "
                   "and its peers feed it. When it is the only replica, restore a backup instead"));
}

Store::~Store() = default;

const std::optional<ReplicaIdentity>& Store::identity() const { return identity_; }

paxos::DurableState Store::TakeState() {
  ONEPIECE_CHECK(identity_.has_value());
  return std::move(found_);
}

// ---- reading ----

absl::Status Store::Load() {
  // SQLite takes a damaged frame for the end of the log and drops all that follows, without an
  // error. So the frames are checked before anything is believed.
  if (const std::string damage = FindWalDamage(database_->path() + "-wal"); !damage.empty())
    return Corrupt(damage);
  ONEPIECE_ASSIGN_OR_RETURN(sqlite::Statement check, database_->Prepare("PRAGMA quick_check(1)"));
  ONEPIECE_ASSIGN_OR_RETURN(bool row, check.Next());
  if (const std::string answer = row ? check.Text(0) : "no answer"; answer != "ok")
    return Corrupt(answer);
  ONEPIECE_ASSIGN_OR_RETURN(sqlite::Statement tables,
                            database_->Prepare("SELECT count(*) FROM sqlite_master"));
  ONEPIECE_RETURN_IF_ERROR(tables.Next().status());
  if (tables.Unsigned(0) == 0) return absl::OkStatus();
  ONEPIECE_ASSIGN_OR_RETURN(sqlite::Statement format,
                            database_->Prepare("SELECT version FROM format"));
  ONEPIECE_ASSIGN_OR_RETURN(row, format.Next());
  if (!row) return Corrupt("no format");
  if (const std::uint64_t version = format.Unsigned(0); version != kFormat) {
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "DATABASE_VERSION",
        absl::StrCat(database_->path(), " has format ", version, ", this program reads ", kFormat,
                     version < kFormat
                         ? ". Move it away to begin anew: workflows must be applied again, nodes "
                           "register by themselves"
                         : ". Run the newer program that wrote it"));
  }
  ONEPIECE_RETURN_IF_ERROR(LoadHead());
  ONEPIECE_RETURN_IF_ERROR(LoadSnapshot());
  ONEPIECE_RETURN_IF_ERROR(LoadLog());
  found_.replica = identity_->replica;
  found_.promised = head_.promised;
  found_.chosen = head_.chosen;
  return PrepareWrites();
}

absl::Status Store::LoadHead() {
  ONEPIECE_ASSIGN_OR_RETURN(
      sqlite::Statement select,
      database_->Prepare("SELECT cluster, name, replica, group_id, promised_round, "
                         "promised_replica, chosen, first_slot, last_slot, log_digest, "
                         "snapshot_index, snapshot_checksum, checksum, id FROM replica"));
  ONEPIECE_ASSIGN_OR_RETURN(bool row, select.Next());
  if (!row) return Corrupt("the row of the replica is missing");
  identity_ = {select.Text(0), select.Text(1), paxos::ReplicaId{select.Unsigned(2)},
               GroupId{select.Unsigned(3)}};
  head_ = {.promised = {select.Unsigned(4), paxos::ReplicaId{select.Unsigned(5)}},
           .chosen = paxos::Slot{select.Unsigned(6)},
           .first = paxos::Slot{select.Unsigned(7)},
           .last = paxos::Slot{select.Unsigned(8)},
           .log_digest = select.Unsigned(9),
           .snapshot_index = paxos::Slot{select.Unsigned(10)},
           .snapshot_checksum = select.Unsigned(11)};
  if (select.Unsigned(12) != HeadChecksum() || select.Unsigned(13) != 1 ||
      identity_->replica == paxos::ReplicaId{})
    return Corrupt("checksum of the replica's row");
  ONEPIECE_ASSIGN_OR_RETURN(row, select.Next());
  return row ? Corrupt("two rows for one replica") : absl::OkStatus();
}

absl::Status Store::LoadSnapshot() {
  ONEPIECE_ASSIGN_OR_RETURN(sqlite::Statement select,
                            database_->Prepare("SELECT snapshot, id FROM snapshot"));
  ONEPIECE_ASSIGN_OR_RETURN(bool row, select.Next());
  if (!row) return Corrupt("the snapshot is missing");
  const std::string bytes = select.Text(0);
  if (Crc(bytes) != head_.snapshot_checksum || select.Unsigned(1) != 1)
    return Corrupt("checksum of the snapshot");
  ONEPIECE_ASSIGN_OR_RETURN(row, select.Next());
  if (row) return Corrupt("two snapshots");
  v1::LogSnapshot proto;
  if (!proto.ParseFromString(bytes)) return Corrupt("content of the snapshot");
  absl::StatusOr<paxos::Snapshot> snapshot = DecodeSnapshot(std::move(proto));
  if (!snapshot.ok() || snapshot->index != head_.snapshot_index)
    return Corrupt("content of the snapshot");
  found_.snapshot = *std::move(snapshot);
  return absl::OkStatus();
}

absl::Status Store::LoadLog() {
  ONEPIECE_ASSIGN_OR_RETURN(
      sqlite::Statement select,
      database_->Prepare("SELECT slot, round, replica, entry, checksum FROM log ORDER BY slot"));
  std::uint64_t digest = 0;
  for (;;) {
    ONEPIECE_ASSIGN_OR_RETURN(const bool row, select.Next());
    if (!row) break;
    paxos::AcceptedEntry accepted{paxos::Slot{select.Unsigned(0)},
                                  {select.Unsigned(1), paxos::ReplicaId{select.Unsigned(2)}},
                                  {}};
    const std::string bytes = select.Text(3);
    const std::uint32_t checksum = EntryChecksum(accepted.slot, accepted.ballot, bytes);
    if (checksum != select.Unsigned(4))
      return Corrupt(absl::StrCat("checksum of slot ", accepted.slot.value));
    if (accepted.slot != head_.first + log_checksums_.size())
      return Corrupt(absl::StrCat("a gap before slot ", accepted.slot.value));
    v1::LogEntry proto;
    if (!proto.ParseFromString(bytes))
      return Corrupt(absl::StrCat("content of slot ", accepted.slot.value));
    absl::StatusOr<paxos::LogEntry> entry = DecodeEntry(std::move(proto));
    if (!entry.ok()) return Corrupt(absl::StrCat("content of slot ", accepted.slot.value));
    accepted.entry = *std::move(entry);
    log_checksums_.push_back(checksum);
    digest += checksum;
    found_.log.push_back(std::move(accepted));
  }
  if (head_.last + 1 != head_.first + log_checksums_.size())
    return Corrupt(absl::StrCat("slots up to ", head_.last.value, " are missing"));
  if (digest != head_.log_digest) return Corrupt("rows of the log are outdated");
  return absl::OkStatus();
}

// ---- writing ----

absl::Status Store::PrepareWrites() {
  const std::pair<sqlite::Statement*, const char*> all[] = {
      {&write_entry_, "REPLACE INTO log VALUES (?1, ?2, ?3, ?4, ?5)"},
      {&drop_entries_, "DELETE FROM log WHERE slot <= ?1"},
      {&write_snapshot_, "REPLACE INTO snapshot VALUES (1, ?1)"},
      {&write_head_,
       "REPLACE INTO replica VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)"}};
  for (const auto& [statement, sql] : all) {
    ONEPIECE_ASSIGN_OR_RETURN(*statement, database_->Prepare(sql));
  }
  return absl::OkStatus();
}

absl::Status Store::Create(const ReplicaIdentity& identity, const paxos::DurableState& state) {
  ONEPIECE_CHECK(!identity_.has_value() && identity.replica != paxos::ReplicaId{});
  identity_ = identity;
  found_ = state;
  paxos::Writes writes;
  writes.promise = true;
  writes.promised = state.promised;
  writes.accepted = state.log;
  writes.install = std::make_shared<const paxos::Snapshot>(state.snapshot);
  writes.chosen = state.chosen;
  const absl::Status status = InTransaction([&]() -> absl::Status {
    ONEPIECE_RETURN_IF_ERROR(database_->Execute(kTables));
    ONEPIECE_RETURN_IF_ERROR(PrepareWrites());
    return Write(writes);
  });
  if (!status.ok()) identity_.reset();
  return status;
}

absl::Status Store::SetGroup(const std::string& cluster_id, GroupId group) {
  ONEPIECE_CHECK(identity_.has_value() && identity_->group == GroupId{} && group != GroupId{});
  identity_->cluster_id = cluster_id;
  identity_->group = group;
  return InTransaction([&] { return WriteHead(); });
}

absl::Status Store::Commit(const paxos::Writes& writes) {
  ONEPIECE_CHECK(identity_.has_value());
  if (writes.urgent()) return InTransaction([&] { return Write(writes); });
  // `chosen` and a shorter log are not worth a sync of their own (docs/consensus.md, "The disk").
  head_.chosen = std::max(head_.chosen, writes.chosen);
  pending_drop_ = std::max(pending_drop_, writes.drop_through);
  return absl::OkStatus();
}

absl::Status Store::InTransaction(absl::FunctionRef<absl::Status()> write) {
  if (failed_) {
    return base::MakeError(
        absl::StatusCode::kUnavailable, "DATABASE_FAILED",
        absl::StrCat(database_->path(), ": an earlier write failed; it must be opened again"));
  }
  const absl::Status status = database_->InTransaction(write);
  // head_ may hold what was rolled back, so only a store that is opened again may go on.
  failed_ = !status.ok();
  return status;
}

absl::Status Store::Write(const paxos::Writes& writes) {
  if (writes.promise) {
    if (writes.promised < head_.promised) return BadWrites("a promise that is taken back");
    head_.promised = writes.promised;
  }
  if (writes.install != nullptr) ONEPIECE_RETURN_IF_ERROR(WriteSnapshot(*writes.install));
  const paxos::Slot drop = std::max(pending_drop_, writes.drop_through);
  ONEPIECE_RETURN_IF_ERROR(DropThrough(drop));
  for (const paxos::AcceptedEntry& accepted : writes.accepted) {
    // Several steps share one Writes, so a later step may have dropped what an earlier one
    // accepted.
    if (accepted.slot > drop) ONEPIECE_RETURN_IF_ERROR(WriteEntry(accepted));
  }
  if (!log_checksums_.empty() && head_.first > head_.snapshot_index + 1)
    return BadWrites("a gap between the snapshot and the log");
  head_.chosen = std::max({head_.chosen, writes.chosen, head_.snapshot_index});
  return WriteHead();
}

absl::Status Store::WriteEntry(const paxos::AcceptedEntry& accepted) {
  if (log_checksums_.empty()) {
    head_.first = accepted.slot;
    head_.last = accepted.slot - 1;
  }
  if (accepted.slot == paxos::Slot{} || accepted.slot < head_.first ||
      accepted.slot > head_.last + 1)
    return BadWrites("a gap in the log");
  v1::LogEntry proto;
  EncodeEntry(accepted.entry, &proto);
  proto.SerializeToString(&buffer_);
  const std::uint32_t checksum = EntryChecksum(accepted.slot, accepted.ballot, buffer_);
  if (accepted.slot > head_.last) {
    log_checksums_.push_back(0);
    head_.last = accepted.slot;
  }
  std::uint32_t& known = log_checksums_[accepted.slot - head_.first];
  // The difference may be negative. The sum wraps at 2^64, so it stays exact.
  head_.log_digest += std::uint64_t{checksum} - known;
  known = checksum;
  return write_entry_.Run(accepted.slot.value, accepted.ballot.round, accepted.ballot.replica.value,
                          sqlite::Blob{buffer_}, std::uint64_t{checksum});
}

absl::Status Store::WriteSnapshot(const paxos::Snapshot& snapshot) {
  v1::LogSnapshot proto;
  EncodeSnapshot(snapshot, &proto);
  proto.SerializeToString(&buffer_);
  head_.snapshot_index = snapshot.index;
  head_.snapshot_checksum = Crc(buffer_);
  return write_snapshot_.Run(sqlite::Blob{buffer_});
}

absl::Status Store::DropThrough(paxos::Slot slot) {
  if (log_checksums_.empty() || slot < head_.first) return absl::OkStatus();
  for (; !log_checksums_.empty() && head_.first <= slot; ++head_.first) {
    head_.log_digest -= log_checksums_.front();
    log_checksums_.pop_front();
  }
  return drop_entries_.Run(slot.value);
}

absl::Status Store::WriteHead() {
  return write_head_.Run(sqlite::Blob{identity_->cluster_id}, sqlite::Blob{identity_->name},
                         identity_->replica.value, identity_->group.value, head_.promised.round,
                         head_.promised.replica.value, head_.chosen.value, head_.first.value,
                         head_.last.value, head_.log_digest, head_.snapshot_index.value,
                         head_.snapshot_checksum, HeadChecksum());
}

// The digests of log and snapshot are in it, so a row that is lost, or was right once, does not fit
// the head any more.
std::uint64_t Store::HeadChecksum() const {
  return Crc(absl::StrCat(identity_->cluster_id.size(), ":", identity_->cluster_id,
                          identity_->name.size(), ":", identity_->name, identity_->replica.value,
                          ":", identity_->group.value, ":", head_.promised.round, ":",
                          head_.promised.replica.value, ":", head_.chosen.value, ":",
                          head_.first.value, ":", head_.last.value, ":", head_.log_digest, ":",
                          head_.snapshot_index.value, ":", head_.snapshot_checksum));
}

}  // namespace onepiece::nodemanager
