// A database's values as a peer sees them: gets by one-sided reads, large puts by one-sided writes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
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

/// Ownership  Owns its connections: one to the index, one to each segment it has met. `fabric` and
///            `clock` outlive it.
/// Threading  Thread-safe; one-sided operations on one segment take turns.
/// Blocking   By `deadline`.
class RemoteValues {
 public:
  static std::unique_ptr<RemoteValues> Create(fabric::Fabric& fabric, RemoteValuesOptions options,
                                              base::Clock& clock = base::SystemClock());
  virtual ~RemoteValues() = default;

  /// Two one-sided reads: the index, the bytes; checked. Tries again where a value moved meanwhile.
  /// Errors: NOT_FOUND (NOT_INDEXED: not in registered memory there; ask by message), UNAVAILABLE
  /// (the database is away), DEADLINE_EXCEEDED.
  virtual absl::StatusOr<message::Buffer> Get(const Key& key, base::MonotonicTime deadline) = 0;
  /// Reserve, write, commit. `message` is a kResult or kReplica whose artifacts are all kBytes with
  /// sha256. True: the database has it; false: it does not want it (late, or no room). Errors:
  /// UNAVAILABLE, DEADLINE_EXCEEDED (nothing or a reservation that will be forgotten is left),
  /// INVALID_ARGUMENT.
  virtual absl::StatusOr<bool> Put(const message::Message& message,
                                   base::MonotonicTime deadline) = 0;

 protected:
  RemoteValues() = default;
};

}  // namespace onepiece::values
