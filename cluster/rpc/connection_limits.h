// How many connections one address may have, and how often it may open one.
#pragma once

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/rpc/bounded_table.h"
#include "cluster/rpc/token_bucket.h"
#include "onepiece/v1/cluster_config.pb.h"

namespace onepiece::rpc {

/// Where a connection comes from.
struct Origin {
  /// What is counted together: an IPv4 address, or the first 64 bits of an IPv6 one, because
  /// whoever has one address there has them all.
  std::string name;
  bool loopback = false;
};
Origin OriginOf(const sockaddr_storage& peer);

/// Decides which connections a server takes. The limits are the cluster's (CallerLimits); a new one
/// holds for connections that come after it.
///
/// Connections from loopback addresses are only limited when the configuration names the limit. All
/// processes of an embedded cluster share that address, and who can use it is on this host already.
///
/// gRPC tells nobody when a connection ends. So a socket is remembered by its descriptor and its
/// inode, and counts as ended when the descriptor stands for something else.
///
/// Ownership: borrows the clock.
/// Threading: thread-safe.
class ConnectionLimits {
 public:
  struct Socket {
    int fd = -1;
    std::uint64_t inode = 0;
  };
  static constexpr int kConnections = 1000;
  static constexpr double kConnectionsPerS = 200;

  struct Options {
    /// Whether the descriptor still is that socket.
    std::function<bool(const Socket&)> is_open = IsSocket;
    std::size_t max_origins = 1 << 16;
    /// Connections take descriptors below this one, so that the process always has some for its
    /// files. Systems give the lowest free one.
    int max_descriptor = ThreeQuartersOfAll();
  };
  explicit ConnectionLimits(const base::Clock& clock) : ConnectionLimits(clock, Options()) {}
  ConnectionLimits(const base::Clock& clock, Options options)
      : clock_(clock), options_(std::move(options)), origins_(options_.max_origins) {}

  void Follow(const v1::CallerLimits& limits);

  enum class Verdict : std::uint8_t {
    kTaken,
    kTooMany,   ///< The address has as many as it may have.
    kNoRoom,    ///< The process has as many as it may have, of all addresses.
    kTooOften,  ///< It opens them too fast.
  };
  struct Answer {
    Verdict verdict = Verdict::kTaken;
    bool say = false;  ///< Worth a line in the log: a refusal is, once in 10 s for each address.
  };
  /// Decides about a connection that was just accepted. One that is taken counts until it ends.
  Answer Admit(const Origin& origin, const Socket& socket);

  /// So many were refused with this verdict.
  [[nodiscard]] std::int64_t Refused(Verdict verdict) const {
    return refused_[static_cast<std::size_t>(verdict)].load();
  }

 private:
  struct Holder {
    TokenBucket bucket;
    std::unordered_set<int> open;
    base::MonotonicTime next_look = base::MonotonicTime::min();
    base::MonotonicTime next_say = base::MonotonicTime::min();
    [[nodiscard]] bool IsIdle(base::MonotonicTime now) const {
      return open.empty() && bucket.IsFull(now);
    }
  };
  struct Held {
    std::uint64_t inode = 0;
    std::string origin;  // Empty: it is among the others of the table.
  };
  static int ThreeQuartersOfAll();
  static bool IsSocket(const Socket& socket);
  Answer Refuse(Holder& holder, Verdict verdict, base::MonotonicTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropEnded(Holder& holder) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(int fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const base::Clock& clock_;
  const Options options_;
  std::array<std::atomic<std::int64_t>, 4> refused_{};  // By verdict.
  base::Mutex mutex_;
  int connections_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: not configured.
  double connections_per_s_ ABSL_GUARDED_BY(mutex_) = 0;
  BoundedTable<Holder> origins_ ABSL_GUARDED_BY(mutex_);
  // By descriptor. There are never more than the process may have.
  std::unordered_map<int, Held> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::rpc
