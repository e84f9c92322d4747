// The gRPC server that every process of the cluster runs. It is bounded, serves health and
// reflection, and shuts down in an orderly way.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"

namespace grpc {
class Server;
class ServerBuilder;
class ServerCredentials;
class Service;
namespace experimental {
class ExternalConnectionAcceptor;
}
}  // namespace grpc

namespace onepiece::rpc {

class Acceptor;
class Door;

/// The largest message in either direction, in bytes. It fits a job with its parameters and all the
/// inputs that it may bring (workflow::kMaxInputBytes). Results cross gRPC in chunks.
inline constexpr int kMaxMessageBytes = 72 << 20;

struct ServerOptions {
  std::string listen = "127.0.0.1:0";  ///< host:port. The system chooses a port for 0.
  /// The largest number of synchronous calls in progress. Such a stream holds its thread; a stream
  /// of the callback API (StateStream, PartStream) holds none. Further calls are refused with
  /// RESOURCE_EXHAUSTED.
  int max_threads = 256;
  base::Duration keepalive = std::chrono::seconds(10);  ///< Silence before a ping. Scaled.
  /// With a door, a call ends when its client does not take the answer for so long. Scaled.
  base::Duration answer_limit = std::chrono::seconds(30);
  /// TLS (tls.h). Null: the server is insecure, and everybody may do everything.
  std::shared_ptr<grpc::ServerCredentials> credentials;
  /// Judges each call, and says which connections are taken. Borrowed. Set when `credentials` are,
  /// and only then.
  Door* door = nullptr;
};

enum class ServingStatus { kNotServing, kServing };

/// A server of synchronous services. Single methods may use gRPC's callback API.
///
/// Ownership: borrows the services, which must outlive Shutdown().
/// Threading: one thread constructs, starts and shuts down. The other methods may be called from
/// any thread. Handlers run on gRPC's threads.
/// Blocking: Shutdown() waits for the handlers. The destructor calls Shutdown(0).
class Server {
 public:
  explicit Server(ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// REQUIRES: Start() has not been called.
  void AddService(grpc::Service& service);
  /// Listens, serves and returns the port. The status is kNotServing until SetHealth(). An address
  /// that another socket listens on is refused and never shared.
  ///
  /// Errors: UNAVAILABLE (CANNOT_LISTEN), which names the address and the system's cause.
  /// INVALID_ARGUMENT (BAD_ADDRESS). With a door: those of AccessRules::Of().
  absl::StatusOr<int> Start();
  /// Returns the host:port that Start() listens on.
  [[nodiscard]] const std::string& address() const { return address_; }
  /// Sets the answer of the standard health service for "" and for every other service that has an
  /// answer of its own.
  /// REQUIRES, for all three: Start() succeeded, and Shutdown() has not begun.
  void SetHealth(ServingStatus health);
  /// Sets the answer for `service`, "onepiece.v1.ProxyService" or "". Services have none at first.
  void SetHealth(const std::string& service, ServingStatus health);
  /// Sets all answers to kNotServing, for good.
  void EndHealth();
  /// Returns a token whose stop is requested when Shutdown() begins. Handlers of long streams end
  /// when they see it.
  [[nodiscard]] std::stop_token stopping() const { return stopping_.get_token(); }
  /// Refuses new calls and waits up to `grace` (scaled) for the calls in progress. It then cancels
  /// the rest and waits for their handlers to return. A second call has no effect.
  void Shutdown(base::Duration grace);

 private:
  /// Puts the door in front: its rules, its judgement of each call, and sockets of which it says
  /// who is let in. `rules` gets what came of the rules when the server is built.
  absl::Status Guard(grpc::ServerBuilder& builder, absl::Status& rules);

  ServerOptions options_;
  std::vector<grpc::Service*> services_;
  std::string address_;
  std::stop_source stopping_;
  std::unique_ptr<grpc::Server> server_;
  // The door's sockets, and what gRPC takes their connections with. Null without a door.
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> hand_over_;
};

}  // namespace onepiece::rpc
