// Ends the streams of callers that may no longer call. Private to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "nodemanager/service/watch_stream.h"

namespace onepiece::rpc {
class Door;
}

namespace onepiece::nodemanager {

/// The door judges a call when it begins, and a stream goes on for days. This looks at the callers
/// of all streams again when the door gets another table, which is at once after a revocation, and
/// every kPeriod, because certificates and tokens expire. A look costs about 2 µs for each stream.
///
/// Ownership: borrows the door, which must outlive it. Keeps no stream alive.
/// Threading: ShownBy() is thread-safe. One thread uses the rest.
/// Blocking: never.
class StreamCallers {
 public:
  static constexpr base::Duration kPeriod = std::chrono::seconds(30);

  /// What a caller has shown.
  struct ShownCredentials {
    std::string certificate, authorization;
  };

  /// A null door: the server is insecure, and this does nothing.
  explicit StreamCallers(const rpc::Door* door) : door_(door) {}

  [[nodiscard]] ShownCredentials ShownBy(const grpc::CallbackServerContext& context) const;
  /// Ends the stream at once when its caller was revoked meanwhile.
  void Add(const std::shared_ptr<WatchStream>& stream, ShownCredentials shown);
  /// Ends the streams whose callers the door would refuse now, with its error.
  void Look(base::MonotonicTime now);
  /// How long Look() may be left out.
  [[nodiscard]] base::Duration Period() const;
  [[nodiscard]] std::size_t size() const { return streams_.size(); }

 private:
  struct Stream {
    std::weak_ptr<WatchStream> stream;
    ShownCredentials shown;
  };
  [[nodiscard]] absl::Status Judge(const ShownCredentials& shown) const;

  const rpc::Door* const door_;
  static constexpr std::size_t kLeast = 64;
  std::vector<Stream> streams_;
  std::size_t most_ = kLeast;  // Entries before those of streams that have gone are dropped.
  std::uint64_t epoch_ = 0;    // Of the door's table at the last look.
  base::MonotonicTime next_{};
};

}  // namespace onepiece::nodemanager
