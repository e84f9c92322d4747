// The life of a service program: configuration, logging, signals, server, ready file, shutdown.
//
//   int main(int argc, char** argv) {
//     v1::ProxyConfig config;
//     service::ServiceOptions options(
//         {.program = "onepiece-proxy", .role = "proxy", .description = "…"}, &config);
//     return service::RunProgram(options, argc, argv, [&](service::Host& host) -> absl::Status {
//       ProxyService proxy(config, …);
//       ONEPIECE_RETURN_IF_ERROR(host.Serve({&proxy}));
//       node::NodeAgent agent(host.address(), host.metrics_address(), …);
//       …
//       ONEPIECE_RETURN_IF_ERROR(host.ReportReady());
//       host.WaitForShutdown();
//       agent.Stop();
//       host.StopServing();   // No call is inside `proxy` afterwards, so it may be destroyed.
//       return absl::OkStatus();
//     });
//   }
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "cluster/base/shutdown.h"
#include "cluster/base/status.h"
#include "cluster/service/options.h"
#include "cluster/service/secured.h"

namespace grpc {
class Service;
}
namespace onepiece::rpc {
class Door;
class Server;
}  // namespace onepiece::rpc
namespace onepiece::telemetry {
class LogRing;
class Metrics;
class Spans;
class TelemetryService;
}  // namespace onepiece::telemetry

namespace onepiece::service {

class SecureMetrics;

/// What every running service program has: the gRPC server, metrics, spans and the log. It keeps
/// the process's log lines for TailLogs from its construction on.
///
/// Ownership: owns the gRPC server, the metrics with their endpoint, and the spans. It borrows the
/// services.
/// Threading: used only by the thread that runs the body of RunProgram.
class Host {
 public:
  Host(const ProgramInfo& info, const v1::NodeConfig& node, Secured secured,
       base::ShutdownSignals& signals);
  /// Calls StopServing().
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  [[nodiscard]] const v1::NodeConfig& node() const { return node_; }
  [[nodiscard]] telemetry::Metrics& metrics() { return *metrics_; }
  [[nodiscard]] telemetry::Spans& spans() { return *spans_; }
  /// Judges the calls of the server. Null: the server is insecure.
  [[nodiscard]] rpc::Door* door() { return secured_.door.get(); }
  /// Opens `listen` and `metrics_address`, and serves `services`, health, reflection and telemetry.
  /// The services must outlive StopServing().
  ///
  /// Errors: UNAVAILABLE when an address cannot be bound. After an error nothing is served.
  absl::Status Serve(const std::vector<grpc::Service*>& services);
  /// Returns the host:port that others dial: `advertise`, else the address on which Serve()
  /// listens.
  /// REQUIRES: Serve() succeeded.
  [[nodiscard]] const std::string& address() const { return address_; }
  /// Returns the host:port of the Prometheus endpoint.
  /// REQUIRES: Serve() succeeded.
  [[nodiscard]] const std::string& metrics_address() const { return metrics_address_; }
  /// Sets the health of one gRPC service, or of the whole server for "". A program that does so
  /// tells its health itself from then on, and ReportReady() leaves it alone. May be called from
  /// any thread, between Serve() and StopServing(). Has no effect after WaitForShutdown().
  void SetHealth(const std::string& service, bool serving);
  /// Says that the service is ready: sets the health to SERVING and writes the ready file, if one
  /// is configured.
  absl::Status ReportReady();
  /// Waits for SIGTERM, SIGINT or SIGHUP. The health is NOT_SERVING afterwards.
  void WaitForShutdown();
  /// Does the same with a limit, and returns false when it passes. Once it has returned true, later
  /// calls return immediately.
  bool WaitForShutdown(base::Duration limit);
  /// Returns a token whose stop is requested when StopServing() begins. Handlers of long streams
  /// end then.
  [[nodiscard]] std::stop_token stopping() const;
  /// Stops the server and the metrics endpoint. Calls in progress get Scaled(2 s) before they are
  /// cancelled. A second call has no effect.
  void StopServing();

 private:
  absl::Status OpenAddresses();
  absl::Status ServeMetrics();
  void ShowRefusals();

  const v1::NodeConfig& node_;
  const Secured secured_;
  base::ShutdownSignals& signals_;
  bool shut_down_ = false;
  std::atomic<bool> health_is_set_ = false;  // By the program, with SetHealth().
  std::unique_ptr<telemetry::Metrics> metrics_;
  std::unique_ptr<SecureMetrics> secure_metrics_;
  std::unique_ptr<telemetry::Spans> spans_;
  const std::shared_ptr<telemetry::LogRing> logs_;  // Shared with the logger.
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<telemetry::TelemetryService> telemetry_service_;
  std::string address_, metrics_address_;
};

/// Further checks of the configuration, before a run and for --check-config. A failure gives exit
/// code 78.
using Check = std::function<absl::Status()>;
/// Runs the service until it is told to end. An error is logged and ends the program with exit code
/// 78 if BadConfig() made it, else 1.
using Body = std::function<absl::Status(Host&)>;

/// Parses the command line, checks the configuration, initialises logging, takes the node's
/// identity (secured.h), runs `body` and returns main()'s exit code. Files of the process are for
/// its user alone. It must be the first call in main(), because it blocks the signals and every
/// thread inherits that.
int RunProgram(ServiceOptions& options, int argc, const char* const* argv, const Body& body,
               const Check& check = {});

/// Makes an error that is the configuration's fault.
absl::Status BadConfig(std::string_view message);

/// Writes `text` to `path` so that a reader sees all of it or nothing.
absl::Status WriteFileAtomically(const std::string& path, std::string_view text);

}  // namespace onepiece::service
