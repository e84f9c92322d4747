// What keeps values, as the measurements see it: our database, Redis and memcached behind one
// interface. Internal to onepiece-bench-database.
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

/// The value that every key of a measurement gets: any bytes, 64-byte aligned, with what a stage
/// that makes a result knows of it.
struct Value {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
  std::string sha256;  ///< 32 bytes.
};
Value MakeValue(std::size_t bytes);

/// One client and its connection. Thread-confined.
class Session {
 public:
  virtual ~Session() = default;
  /// Returns when the store has the value.
  virtual absl::Status Put(std::uint32_t key, const Value& value) = 0;
  /// Returns when the whole value is in this process's memory, having compared its length and its
  /// ends with `expected`'s.
  virtual absl::Status Get(std::uint32_t key, const Value& expected) = 0;
};

/// A running server. Killed by the destructor. Thread-safe but for Clear.
class Store {
 public:
  virtual ~Store() = default;
  virtual absl::StatusOr<std::unique_ptr<Session>> Connect() = 0;
  /// Forgets all values, for the next turn. Not while sessions are at work.
  virtual absl::Status Clear() = 0;
  /// Of the process that keeps the values.
  [[nodiscard]] virtual pid_t pid() const = 0;
};

/// How our database is read.
enum class Door { kFabric, kGrpc };

/// A NodeManager and a database of ours under `folder`. Puts always go over the fabric.
absl::StatusOr<std::unique_ptr<Store>> StartOurs(const std::string& folder, Door door);
/// redis-server without persistence, hiredis clients over loopback.
absl::StatusOr<std::unique_ptr<Store>> StartRedis(const std::string& folder);
/// memcached with large items allowed, libmemcached clients over loopback.
absl::StatusOr<std::unique_ptr<Store>> StartMemcached(const std::string& folder);

/// Requests a second that redis-benchmark reaches with pipelining, {puts, gets}.
/// Errors: NOT_FOUND.
absl::StatusOr<std::pair<double, double>> RedisPipelined(const Store& redis,
                                                         std::size_t value_bytes, int clients,
                                                         std::size_t values);

}  // namespace onepiece::bench
