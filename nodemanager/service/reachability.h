// Whether newcomers can be reached by the addresses that they advertise.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"

namespace onepiece::nodemanager {

/// Refuses addresses that nobody can dial, so that no node is READY while jobs wait for it in vain.
///
/// It asks whether packets reach a port that somebody listens on, and not whether the node has time
/// to answer: the node is alive, for it registers. A loaded process, and a host on which hundreds
/// begin at once, may take seconds for a gRPC handshake, while the kernel takes the connection at
/// once. So a connection that stays silent is good. What answers something else than gRPC, or
/// closes the connection, is not a node: the port is wrong.
///
/// In a secure cluster nothing is sent: a TLS server waits in silence for its client. So only what
/// greets, or closes the connection by itself, shows as a wrong port there.
///
/// A name is dialled with gRPC, which looks it up within the limit, and then silence is refused.
///
/// Threading: thread-safe.
/// Bounds: one thread waits for each address, the caller's, and other callers for the same address
/// wait for its answer. Addresses that were reached are remembered for kRemembered, at most
/// kMaxRemembered of them, so a node that asks again costs no connection.
class Reachability {
 public:
  static constexpr base::Duration kRemembered = std::chrono::seconds(10);
  static constexpr std::size_t kMaxRemembered = 8192;

  /// An address has `limit` for its answer. 0: nothing is dialled, and all are good. `clock` says
  /// for how long addresses are remembered. `secure`: nodes speak TLS.
  Reachability(base::Duration limit, base::Clock& clock, bool secure = false)
      : limit_(limit), clock_(clock), secure_(secure) {}

  /// Errors: FAILED_PRECONDITION (UNREACHABLE_ADDRESS), which names the address and says what to do
  /// about it.
  /// Blocking: for `limit` at most.
  absl::Status Check(const std::string& address);
  /// How many connections were tried.
  [[nodiscard]] std::size_t dialled() const;

 private:
  struct Attempt {
    bool over = false;
    absl::Status result;
  };
  bool Remembers(const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remember(const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const base::Duration limit_;
  base::Clock& clock_;
  const bool secure_;
  mutable base::Mutex mutex_;
  base::CondVar ended_;
  std::size_t dialled_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, base::MonotonicTime> reached_ ABSL_GUARDED_BY(mutex_);  // And when.
  std::map<std::string, std::shared_ptr<Attempt>> attempts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::nodemanager
