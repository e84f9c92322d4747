// The disk of one replica: promises, log and snapshot in SQLite.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "nodemanager/paxos/types.h"

struct sqlite3;

namespace onepiece::nodemanager {

/// Who a data folder belongs to; written once, when it is made, and when a new replica learns its
/// cluster.
struct ReplicaIdentity {
  std::string cluster_id;  ///< Empty: has not joined a cluster yet.
  std::string name;
  paxos::ReplicaId replica = 0;
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
  /// The cluster that a replica with an empty cluster_id has joined.
  absl::Status SetCluster(const std::string& cluster_id);
  /// One transaction; durable when it returns OK. Writes without urgent() parts may be lost.
  absl::Status Commit(const paxos::Writes& writes);

 private:
  Store() = default;
};

}  // namespace onepiece::nodemanager
