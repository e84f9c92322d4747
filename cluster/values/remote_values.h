// A database's values as a peer sees them: gets by one-sided reads, large puts by one-sided writes.
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
  std::string node_id;  ///< Ours, for the database's log.
  std::string address;  ///< The database's, host:port.
  base::Duration call_timeout = std::chrono::seconds(2);
};

/// Results of at least this size are worth a reservation; smaller ones go through the ring.
inline constexpr std::uint64_t kDirectBytes = std::uint64_t{1} << 20;

/// Ownership: Owns its connections: one to the index, one to each segment that it has used of late.
/// `fabric` and `clock` outlive it.
/// Threading: Thread-safe; one-sided operations on one segment take turns. A thread of its own
/// closes connections that nobody uses, as they keep memory that the database gave back.
/// Blocking: By `deadline`.
class RemoteValues {
 public:
  static std::unique_ptr<RemoteValues> Create(fabric::Fabric& fabric, RemoteValuesOptions options,
                                              base::Clock& clock = base::SystemClock());
  virtual ~RemoteValues() = default;

  /// Two one-sided reads: the index, the bytes; checked. Tries again where a value moved meanwhile.
  /// Errors: NOT_FOUND (NOT_INDEXED: not in registered memory there; ask by message), UNAVAILABLE
  /// (the database is away), DEADLINE_EXCEEDED.
  virtual absl::StatusOr<message::Buffer> Get(const ValueKey& key,
                                              base::MonotonicTime deadline) = 0;
  /// Reserve, write, commit. `message` is a kResult or kReplica whose artifacts are all kBytes with
  /// sha256. True: the database has it; false: it does not keep it (late, or over the budget).
  /// Errors: INVALID_ARGUMENT (BAD_RESULT: not such a message), RESOURCE_EXHAUSTED (no room to
  /// write it now), UNAVAILABLE, DEADLINE_EXCEEDED. After the last three it may go by message: a
  /// result that is here already is no harm.
  virtual absl::StatusOr<bool> Put(const message::Message& message,
                                   base::MonotonicTime deadline) = 0;

 protected:
  RemoteValues() = default;
};

/// True for a kResult or kReplica that is worth a reservation.
bool IsForPut(const message::Message& message);

/// The RemoteValues of every database that was asked for, by address.
///
/// Ownership: As RemoteValues; callers share.
/// Threading: Thread-safe.
/// Invariants: At most kMaxPeers are kept: databases come back under other addresses.
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
