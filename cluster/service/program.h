// The life of a service program: configuration, logging, signals, server, ready file, orderly end.
//
//   int main(int argc, char** argv) {
//     v1::ProxyConfig config;
//     service::ServiceOptions options({.program = "onepiece-proxy", .role = "proxy", .description =
//     "…"}, &config); return service::RunProgram(options, argc, argv, [&](service::Host& host) ->
//     absl::Status {
//       ProxyService proxy(config, …);
//       ONEPIECE_RETURN_IF_ERROR(host.Serve({&proxy}));
//       node::NodeAgent agent(host.address(), host.metrics_address(), …);
//       …
//       ONEPIECE_RETURN_IF_ERROR(host.ReportReady());
//       host.WaitForShutdown();
//       agent.Stop();
//       host.StopServing();   // before `proxy` goes: no call is inside it afterwards
//       return absl::OkStatus();
//     });
//   }
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "cluster/base/shutdown.h"
#include "cluster/base/status.h"
#include "cluster/service/options.h"

namespace grpc {
class Service;
}
namespace onepiece::rpc {
class Server;
}
namespace onepiece::telemetry {
class LogRing;
class Metrics;
class Spans;
class TelemetryService;
}  // namespace onepiece::telemetry

namespace onepiece::service {

/// What a running service program stands on.
///
/// Ownership  Owns the gRPC server, the metrics with their endpoint, and the spans; borrows the
/// services. From its construction on the process's log lines are kept for TailLogs.
/// Threading  Thread-confined to the body of RunProgram.
class Host {
 public:
  Host(const ProgramInfo& info, const v1::NodeConfig& node, base::ShutdownSignals& signals);
  /// StopServing().
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  [[nodiscard]] const v1::NodeConfig& node() const { return node_; }
  [[nodiscard]] telemetry::Metrics& metrics() { return *metrics_; }
  [[nodiscard]] telemetry::Spans& spans() { return *spans_; }
  /// Opens `listen` and `metrics_address` and serves `services`, health, reflection and telemetry.
  /// The services must outlive StopServing(). Errors: UNAVAILABLE when an address cannot be bound.
  absl::Status Serve(const std::vector<grpc::Service*>& services);
  /// host:port that others dial: `advertise`, else where Serve() listens. REQUIRES: Serve()
  /// succeeded.
  [[nodiscard]] const std::string& address() const { return address_; }
  /// host:port of the Prometheus endpoint. REQUIRES: Serve() succeeded.
  [[nodiscard]] const std::string& metrics_address() const { return metrics_address_; }
  /// Says that the service is ready: health SERVING, and the ready file where one is configured.
  absl::Status ReportReady();
  /// Blocks until SIGTERM, SIGINT or SIGHUP. Health says NOT_SERVING afterwards.
  void WaitForShutdown();
  /// Requested when StopServing() begins: handlers of long streams end then. REQUIRES: Serve()
  /// succeeded.
  [[nodiscard]] std::stop_token stopping() const;
  /// The same with a limit; false when it passes. Later calls return at once after true.
  bool WaitForShutdown(base::Duration limit);
  /// Ends the server and the metrics endpoint: calls in progress get Scaled(2 s), then they are
  /// cancelled. Idempotent.
  void StopServing();

 private:
  const v1::NodeConfig& node_;
  base::ShutdownSignals& signals_;
  bool shut_down_ = false;
  std::unique_ptr<telemetry::Metrics> metrics_;
  std::unique_ptr<telemetry::Spans> spans_;
  const std::shared_ptr<telemetry::LogRing> logs_;  // Shared with the logger.
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<telemetry::TelemetryService> telemetry_service_;
  std::string address_, metrics_address_;
};

/// Extra checks of the configuration, for the run and for --check-config; a failure is exit
/// code 78.
using Check = std::function<absl::Status()>;
/// Runs the service until it is told to end. An error is logged and ends the program: exit code 78
/// when it was made with BadConfig(), else 1.
using Body = std::function<absl::Status(Host&)>;

/// Parses the command line, checks, initialises logging, runs `body` and returns main()'s exit
/// code. Call it first in main(): signals must be blocked before any thread starts.
int RunProgram(ServiceOptions& options, int argc, const char* const* argv, const Body& body,
               const Check& check = {});

/// An error that is the configuration's fault.
absl::Status BadConfig(std::string_view message);

/// Writes `text` to `path` so that a reader sees all of it or none.
absl::Status WriteFileAtomically(const std::string& path, std::string_view text);

}  // namespace onepiece::service
