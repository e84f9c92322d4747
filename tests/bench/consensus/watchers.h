// Clients that listen while others write. The same ones listen to every kind of server: they read
// streams of bytes and do not look into them. Internal to onepiece-bench-consensus.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace onepiece::bench {

/// The form of a watch.
struct WatchCall {
  std::string method;   ///< "/package.Service/Method".
  std::string request;  ///< Serialised.
  /// The server streams, and the request is all that the client sends. Otherwise both sides stream,
  /// and the client's side stays open.
  bool only_server_streams = false;
};

/// Streams to one server, each over a connection of its own, as nodes have them.
///
/// Ownership: owns its thread. The streams end with it.
/// Threading: thread-safe.
class Watchers {
 public:
  /// Opens `count` streams and waits until each has got its first message.
  ///
  /// Errors: DEADLINE_EXCEEDED.
  static absl::StatusOr<std::unique_ptr<Watchers>> Open(const std::string& address,
                                                        const WatchCall& call, int count);
  virtual ~Watchers() = default;
  Watchers(const Watchers&) = delete;
  Watchers& operator=(const Watchers&) = delete;

  /// The fewest messages that one of them has got.
  [[nodiscard]] virtual std::uint64_t least_messages() const = 0;

 protected:
  Watchers() = default;
};

}  // namespace onepiece::bench
