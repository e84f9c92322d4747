// The listening sockets of a server that decides which connections it takes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/rpc/connection_limits.h"

namespace onepiece::rpc {

/// Listens, and hands over the connections that the limits let in. The others are closed before
/// anything is read from them: that costs some 10 µs, a TLS handshake a hundred times as much.
///
/// gRPC has no such hook in sockets of its own, but takes connections that others have accepted.
///
/// Ownership: owns the sockets and a thread; borrows the limits.
/// Threading: one thread makes, starts and stops it. `handle` runs on the acceptor's thread.
class Acceptor {
 public:
  struct Connection {
    int listener = -1, fd = -1;
  };
  /// Takes over connection.fd.
  using Handle = std::function<void(const Connection& connection)>;

  /// Listens on all addresses that `host` has, with one port. The system chooses it for 0. The
  /// wildcard address of either family means both. An address that another socket listens on is
  /// refused and never shared.
  ///
  /// Errors: UNAVAILABLE with the system's cause as its message.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(const std::string& host,
                                                          const std::string& port,
                                                          ConnectionLimits& limits);
  /// Stop().
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  [[nodiscard]] int port() const { return port_; }
  /// Begins to accept. Connections that came before wait in the system's queue. Once `silence` has
  /// passed without an answer from a peer, its connection ends.
  void Start(Handle handle, base::Duration silence);
  /// Closes the sockets. No `handle` runs afterwards. A second call has no effect.
  void Stop();

 private:
  Acceptor(ConnectionLimits& limits, int wake) : limits_(limits), wake_(wake) {}
  void Run();
  /// Returns false when there is nothing to accept with, so that trying again must wait.
  bool AcceptSome(int listener);
  void Take(int listener, int fd, const sockaddr_storage& peer);

  ConnectionLimits& limits_;
  const int wake_;  // An eventfd: Stop() has begun.
  int port_ = 0;
  std::vector<int> listeners_;
  Handle handle_;
  int silence_ms_ = 0;
  base::MonotonicTime next_say_ = base::MonotonicTime::min();  // The thread's alone.
  std::thread thread_;
};

}  // namespace onepiece::rpc
