// A gRPC server as every process of the cluster runs it: bounded, with health, reflection and an
// orderly end.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"

namespace grpc {
class Server;
class Service;
}  // namespace grpc

namespace onepiece::rpc {

/// Largest message in either direction, in bytes: a job with all the inputs that it may bring
/// (workflow::kMaxInputBytes) and its parameters. Results cross gRPC in chunks.
inline constexpr int kMaxMessageBytes = 72 << 20;

struct ServerOptions {
  std::string listen = "127.0.0.1:0";  ///< host:port; port 0 is chosen by the system.
  int max_threads =
      256;  ///< Calls in progress; a stream holds its thread. More: RESOURCE_EXHAUSTED.
};

enum class Health { kNotServing, kServing };

/// A server of synchronous services.
///
/// Ownership  Borrows the services: they outlive Shutdown().
/// Threading  Constructed, started and shut down by one thread; the rest is thread-safe. Handlers
/// run on gRPC's
///            threads.
/// Blocking   Shutdown() waits for the handlers; the destructor is Shutdown(0).
class Server {
 public:
  explicit Server(ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// REQUIRES: Start() has not been called.
  void AddService(grpc::Service& service);
  /// Listens and serves; returns the port. Health is kNotServing until SetHealth. An address that
  /// another socket listens on is refused, never shared. Errors: UNAVAILABLE with reason
  /// CANNOT_LISTEN, which names the address and the system's cause; INVALID_ARGUMENT with reason
  /// BAD_ADDRESS.
  absl::StatusOr<int> Start();
  /// host:port that Start() listens on.
  [[nodiscard]] const std::string& address() const { return address_; }
  /// What the standard health service answers for "". REQUIRES: Start() succeeded.
  void SetHealth(Health health);
  /// Requested when Shutdown() begins: handlers of long streams end when they see it.
  [[nodiscard]] std::stop_token stopping() const { return stopping_.get_token(); }
  /// Refuses new calls, waits up to `grace` (scaled) for those in progress, cancels the rest and
  /// waits for their handlers to return. Idempotent.
  void Shutdown(base::Duration grace);

 private:
  ServerOptions options_;
  std::vector<grpc::Service*> services_;
  std::string address_;
  std::stop_source stopping_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace onepiece::rpc
