// The stores that are measured, behind one interface: our database, Redis and memcached. Internal
// to onepiece-bench-database.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace onepiece::bench {

/// The value that every key of a measurement gets: any bytes, 64-byte aligned, with the facts that
/// a stage knows about a result that it makes.
struct Value {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
  std::string sha256;  ///< 32 bytes.
};
Value MakeValue(std::size_t bytes);

/// One client and its connection.
///
/// Threading: thread-confined.
class Session {
 public:
  virtual ~Session() = default;
  /// Returns when the store has the value.
  virtual absl::Status Put(std::uint32_t key, const Value& value) = 0;
  /// Returns when the whole value is in this process's memory. Compares its length and its ends
  /// with `expected`'s.
  virtual absl::Status Get(std::uint32_t key, const Value& expected) = 0;
};

/// A running server. The destructor kills it.
///
/// Threading: may be used from any thread, except Clear.
class Store {
 public:
  virtual ~Store() = default;
  virtual absl::StatusOr<std::unique_ptr<Session>> Connect() = 0;
  /// Forgets all values, for the next turn.
  ///
  /// REQUIRES: no session is at work.
  virtual absl::Status Clear() = 0;
  /// Returns the id of the process that keeps the values.
  [[nodiscard]] virtual pid_t pid() const = 0;
};

/// The way in which our database is read.
enum class Door { kFabric, kGrpc };

/// Starts a NodeManager and a database of ours under `folder`. Puts always go over the fabric.
absl::StatusOr<std::unique_ptr<Store>> StartOurs(const std::string& folder, Door door);
/// Starts redis-server without persistence. Clients use hiredis over loopback.
absl::StatusOr<std::unique_ptr<Store>> StartRedis(const std::string& folder);
/// Starts memcached and allows large items. Clients use libmemcached over loopback.
absl::StatusOr<std::unique_ptr<Store>> StartMemcached(const std::string& folder);

/// Returns the requests a second that redis-benchmark reaches with pipelining, {puts, gets}.
///
/// Errors: NOT_FOUND.
absl::StatusOr<std::pair<double, double>> RedisPipelined(const Store& redis,
                                                         std::size_t value_bytes, int clients,
                                                         std::size_t values);

}  // namespace onepiece::bench
