// The disk of one replica: promises, log and snapshot in SQLite.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "cluster/sqlite/sqlite.h"
#include "nodemanager/paxos/types.h"

namespace onepiece::nodemanager {

/// Who a data folder belongs to; written once, when it is made, and when a new replica learns its
/// group.
struct ReplicaIdentity {
  std::string cluster_id;  ///< Empty: not configured, and not learned yet.
  std::string name;
  paxos::ReplicaId replica = 0;
  /// Drawn when the group began: two groups of one cluster id are not the same. 0: has not joined
  /// one yet.
  std::uint64_t group = 0;
};

/// DIR/nodemanager.sqlite: WAL, synchronous=FULL, every row with a CRC-32C that covers its place.
///
/// Ownership  Owns the database; the folder is locked against a second process while open.
/// Threading  Thread-confined.
/// Blocking   Commit() waits for the disk.
/// Errors     DATA_LOSS (DATABASE_CORRUPT): a page, a checksum, a gap, or an order that no crash
///            leaves; the message says how to come back as a new replica. FAILED_PRECONDITION
///            (DATA_DIR_IN_USE, DATABASE_VERSION). UNAVAILABLE (DISK_FULL, DATABASE_FAILED):
///            nothing of the batch is durable, or nobody knows; open the store again before going
///            on.
class Store {
 public:
  /// Opens an existing database, or an empty one.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& dir);
  ~Store();

  /// What the folder held when it was opened, or Create()d; nullopt: a new folder.
  [[nodiscard]] const std::optional<ReplicaIdentity>& identity() const;
  /// The state that was found; moved out, so once only. REQUIRES: identity().
  paxos::DurableState TakeState();

  /// Fills a new folder, in one transaction. REQUIRES: no identity() yet.
  absl::Status Create(const ReplicaIdentity& identity, const paxos::DurableState& state);
  /// The group that a replica without one has joined. REQUIRES: group != 0.
  absl::Status SetGroup(const std::string& cluster_id, std::uint64_t group);
  /// One transaction, durable when it returns OK. Writes that are not urgent() are kept for the
  /// next one that is, and are lost in a crash. After an error this store takes no more writes.
  /// INTERNAL (BAD_WRITES): they would leave a log with a gap; nothing was written.
  absl::Status Commit(const paxos::Writes& writes);

 private:
  // The one row of the table `replica`. Its checksum, through the digests, covers all other rows.
  struct Head {
    paxos::Ballot promised;
    paxos::Slot chosen = 0;
    paxos::Slot first = 1, last = 0;  // Of the log; empty: last = first - 1.
    std::uint64_t log_digest = 0;     // Sum of the checksums of the rows of the log.
    paxos::Slot snapshot_index = 0;
    std::uint64_t snapshot_checksum = 0;
  };

  explicit Store(std::string dir) : dir_(std::move(dir)) {}
  // Nothing has been checked then, and until Load() is done nothing on the disk is moved: what is
  // damaged stays as it was found.
  absl::Status OpenDatabase();
  [[nodiscard]] absl::Status Corrupt(std::string_view what) const;
  absl::Status Load();
  absl::Status LoadHead();
  absl::Status LoadSnapshot();
  absl::Status LoadLog();
  absl::Status PrepareWrites();
  // Any error rolls back, and closes the store for writing.
  absl::Status InTransaction(absl::FunctionRef<absl::Status()> write);
  absl::Status Write(const paxos::Writes& writes);
  absl::Status WriteEntry(const paxos::AcceptedEntry& accepted);
  absl::Status WriteSnapshot(const paxos::Snapshot& snapshot);
  absl::Status DropThrough(paxos::Slot slot);
  absl::Status WriteHead();
  [[nodiscard]] std::uint64_t HeadChecksum() const;

  const std::string dir_;
  std::unique_ptr<sqlite::Database> database_;  // Before the statements, which it must outlive.
  sqlite::Statement write_entry_, drop_entries_, write_snapshot_, write_head_;
  std::optional<ReplicaIdentity> identity_;
  paxos::DurableState found_;
  Head head_;
  std::deque<std::uint32_t> log_checksums_;  // Of the slots from head_.first on.
  paxos::Slot pending_drop_ = 0;             // Deferred to the next urgent Commit().
  bool failed_ = false;
  std::string buffer_;
};

}  // namespace onepiece::nodemanager
