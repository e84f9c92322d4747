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
#include "nodemanager/replication/group_id.h"

namespace onepiece::nodemanager {

/// The replica to which a data folder belongs. It is written when the folder is made, and once more
/// when a new replica learns its group.
struct ReplicaIdentity {
  std::string cluster_id;  ///< Empty when it is not configured and not learned yet.
  std::string name;
  paxos::ReplicaId replica;
  GroupId group;  ///< None while the replica has not joined a group.
};

/// DIR/nodemanager.sqlite: a database in WAL mode with synchronous=FULL. Every row has a CRC-32C
/// that covers its place too.
///
/// Ownership: owns the database. While it is open, the folder is locked against a second process.
/// Threading: thread-confined.
/// Blocking: Commit() waits for the disk.
/// Errors: DATA_LOSS (DATABASE_CORRUPT) for a page, a checksum, a gap or an order that no crash
/// leaves; the message says how to come back as a new replica. FAILED_PRECONDITION
/// (DATA_DIR_IN_USE, DATABASE_VERSION). UNAVAILABLE (DISK_FULL, DATABASE_FAILED) when nothing of
/// the batch is durable, or nobody knows; open the store again before going on.
class Store {
 public:
  /// Opens an existing database, or makes an empty one.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& dir);
  ~Store();

  /// The identity that the folder held when it was opened, or got by Create(). It is nullopt for a
  /// new folder.
  [[nodiscard]] const std::optional<ReplicaIdentity>& identity() const;
  /// Moves out the state that was found. Call it once.
  /// REQUIRES: identity().
  paxos::DurableState TakeState();

  /// Fills a new folder in one transaction.
  /// REQUIRES: no identity() yet.
  absl::Status Create(const ReplicaIdentity& identity, const paxos::DurableState& state);
  /// Writes the group that a replica without a group has joined.
  /// REQUIRES: `group` is a group.
  absl::Status SetGroup(const std::string& cluster_id, GroupId group);
  /// Writes the batch in one transaction, which is durable when Commit() returns OK. Writes that
  /// are not urgent() wait for the next batch that is, and are lost in a crash. After an error this
  /// store takes no more writes.
  /// Errors: those of the class; INTERNAL (BAD_WRITES) when the writes would leave a log with a gap
  /// or take a promise back. Nothing is written then.
  absl::Status Commit(const paxos::Writes& writes);

 private:
  // The only row of the table `replica`. Its checksum covers all other rows, through their digests.
  struct Head {
    paxos::Ballot promised;
    paxos::Slot chosen;
    // The log's slots. An empty log has last == first - 1.
    paxos::Slot first = paxos::kFirstSlot, last;
    std::uint64_t log_digest = 0;  // The sum of the checksums of all rows of the log.
    paxos::Slot snapshot_index;
    std::uint64_t snapshot_checksum = 0;
  };

  explicit Store(std::string dir) : dir_(std::move(dir)) {}
  // Opens the database without a check. Nothing on the disk changes until Load() is done, so a
  // damaged database stays as it was found.
  absl::Status OpenDatabase();
  [[nodiscard]] absl::Status Corrupt(std::string_view what) const;
  absl::Status Load();
  absl::Status LoadHead();
  absl::Status LoadSnapshot();
  absl::Status LoadLog();
  absl::Status PrepareWrites();
  // Rolls back on any error, and closes the store for writing.
  absl::Status InTransaction(absl::FunctionRef<absl::Status()> write);
  absl::Status Write(const paxos::Writes& writes);
  absl::Status WriteEntry(const paxos::AcceptedEntry& accepted);
  absl::Status WriteSnapshot(const paxos::Snapshot& snapshot);
  absl::Status DropThrough(paxos::Slot slot);
  absl::Status WriteHead();
  [[nodiscard]] std::uint64_t HeadChecksum() const;

  const std::string dir_;
  std::unique_ptr<sqlite::Database> database_;  // It must outlive the statements.
  sqlite::Statement write_entry_, drop_entries_, write_snapshot_, write_head_;
  std::optional<ReplicaIdentity> identity_;
  paxos::DurableState found_;
  Head head_;
  std::deque<std::uint32_t> log_checksums_;  // The checksums of the slots from head_.first on.
  paxos::Slot pending_drop_;                 // To drop with the next urgent Commit().
  bool failed_ = false;
  std::string buffer_;
};

}  // namespace onepiece::nodemanager
