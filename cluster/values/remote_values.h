// A database's values as a peer sees them. Gets are one-sided reads; large puts are one-sided
// writes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/fabric/fabric.h"
#include "cluster/message/message.h"
#include "cluster/values/value_index.h"

namespace onepiece::values {

struct RemoteValuesOptions {
  std::string node_id;  ///< This node's id, for the database's log.
  std::string address;  ///< The database's host:port.
  base::Duration call_timeout = std::chrono::seconds(2);
};

/// Results of at least this size are worth a reservation. Smaller ones go through the ring.
inline constexpr std::uint64_t kDirectBytes = std::uint64_t{1} << 20;

/// The values of one database.
///
/// Ownership: owns its connections: one to the index, and one to each segment that it used lately.
/// `fabric` and `clock` must outlive it.
///
/// Threading: thread-safe. One-sided operations on one segment take turns. A thread of its own
/// closes idle connections, because a connection keeps memory that the database has given back. It
/// also gives up the reservations of puts that failed, again and again until the database knows.
///
/// Blocking: Get and Put return by `deadline`. The destructor waits for a few call_timeouts at
/// most, while reservations are left to give up.
class RemoteValues {
 public:
  static std::unique_ptr<RemoteValues> Create(fabric::Fabric& fabric, RemoteValuesOptions options,
                                              base::Clock& clock = base::SystemClock());
  virtual ~RemoteValues() = default;

  /// Reads the index and then the bytes, and checks them. Retries when the value moved meanwhile.
  ///
  /// Errors: NOT_FOUND (NOT_INDEXED: the database does not have the value in registered memory; ask
  /// for it by message), UNAVAILABLE (the database is away), DEADLINE_EXCEEDED.
  virtual absl::StatusOr<message::Buffer> Get(const ValueKey& key,
                                              base::MonotonicTime deadline) = 0;
  /// Reserves room, writes the result there and commits it. `message` is a kResult or kReplica
  /// whose artifacts are all kBytes with sha256. Returns true when the database has it, and false
  /// when the database does not keep it (it is late; a kReplica may be over the budget).
  ///
  /// Errors: INVALID_ARGUMENT (BAD_RESULT: not such a message), RESOURCE_EXHAUSTED (no room to
  /// write it now; HasNoRoom (no_room.h) says whether there is none to keep it either),
  /// UNAVAILABLE, DEADLINE_EXCEEDED. After the last three the caller may send the result by
  /// message, unless HasNoRoom: a result that the database already has does no harm.
  virtual absl::StatusOr<bool> Put(const message::Message& message,
                                   base::MonotonicTime deadline) = 0;

 protected:
  RemoteValues() = default;
};

/// True for a kResult or kReplica that Put takes: of bytes with SHA-256, and not empty.
bool CanPut(const message::Message& message);
/// True for a message that Put takes and that is worth a reservation.
bool IsForPut(const message::Message& message);

/// The RemoteValues of the databases that callers asked for, by address.
///
/// Ownership: shares each RemoteValues with its callers. `fabric` and `clock` must outlive it.
///
/// Threading: thread-safe.
///
/// Invariants: it keeps at most kMaxPeers, because databases come back under other addresses.
class ValuePeers {
 public:
  static constexpr std::size_t kMaxPeers = 32;
  ValuePeers(fabric::Fabric& fabric, std::string node_id, base::Clock& clock = base::SystemClock());
  std::shared_ptr<RemoteValues> At(const std::string& address);

 private:
  fabric::Fabric& fabric_;
  const std::string node_id_;
  base::Clock& clock_;
  base::Mutex mutex_;
  std::map<std::string, std::shared_ptr<RemoteValues>> peers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::values
