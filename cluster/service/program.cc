#include "cluster/service/program.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cluster/base/check.h"
#include "cluster/base/logging.h"
#include "cluster/rpc/door.h"
#include "cluster/rpc/grpc_log.h"
#include "cluster/rpc/limits.h"
#include "cluster/rpc/server.h"
#include "cluster/rpc/tls.h"
#include "cluster/service/secure_metrics.h"
#include "cluster/telemetry/log_ring.h"
#include "cluster/telemetry/metrics.h"
#include "cluster/telemetry/spans.h"
#include "cluster/telemetry/telemetry_service.h"

namespace onepiece::service {
namespace {

constexpr char kBadConfig[] = "BAD_CONFIG";
constexpr auto kGrace = std::chrono::seconds(2);

absl::Status FileError(const std::string& path, const char* what) {
  return base::MakeError(absl::StatusCode::kUnavailable, "FILE_NOT_WRITTEN",
                         absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(errno)));
}

absl::Status WriteAll(int fd, const std::string& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return FileError(path, "write");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return fsync(fd) == 0 ? absl::OkStatus() : FileError(path, "write");
}

// Systems give a process 1,024 descriptors and let it ask for many more. The NodeManager has a
// connection of each node, and a cluster may have 4,096 nodes.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

absl::Status BadConfig(std::string_view message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, kBadConfig, message);
}

absl::Status WriteFileAtomically(const std::string& path, std::string_view text) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return FileError(temporary, "create");
  absl::Status status = WriteAll(fd, temporary, text);
  close(fd);
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0)
    status = FileError(path, "create");
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

Host::Host(const ProgramInfo& info, const v1::NodeConfig& node, Secured secured,
           base::ShutdownSignals& signals)
    : node_(node),
      secured_(std::move(secured)),
      signals_(signals),
      metrics_(std::make_unique<telemetry::Metrics>(info.role, node.node_id())),
      spans_(std::make_unique<telemetry::Spans>(node.node_id())),
      logs_(std::make_shared<telemetry::LogRing>()),
      server_(std::make_unique<rpc::Server>(rpc::ServerOptions{
          .listen = node.listen(), .credentials = secured_.server, .door = secured_.door.get()})),
      telemetry_service_(std::make_unique<telemetry::TelemetryService>(
          *spans_, *logs_, server_->stopping(),
          telemetry::TelemetryServiceOptions{.node_id = node.node_id()})) {
  // The logger's list of sinks has no lock. No other thread logs yet.
  spdlog::default_logger()->sinks().push_back(logs_);
  if (door() != nullptr) ShowRefusals();
}

Host::~Host() { StopServing(); }

absl::Status Host::Serve(const std::vector<grpc::Service*>& services) {
  for (grpc::Service* service : services) server_->AddService(*service);
  server_->AddService(*telemetry_service_);
  const absl::Status status = OpenAddresses();
  // The caller destroys the services after an error, and the server may be up all the same.
  if (!status.ok()) StopServing();
  return status;
}

absl::Status Host::OpenAddresses() {
  ONEPIECE_RETURN_IF_ERROR(server_->Start().status());
  address_ = node_.advertise().empty() ? server_->address() : node_.advertise();
  ONEPIECE_RETURN_IF_ERROR(ServeMetrics());
  spdlog::info("op=serve address={} metrics_address={}", address_, metrics_address_);
  return absl::OkStatus();
}

absl::Status Host::ServeMetrics() {
  if (secured_.door == nullptr || IsLoopback(node_.metrics_address())) {
    ONEPIECE_ASSIGN_OR_RETURN(metrics_address_, metrics_->Serve(node_.metrics_address()));
    return absl::OkStatus();
  }
  ONEPIECE_ASSIGN_OR_RETURN(
      secure_metrics_,
      SecureMetrics::Serve(node_.metrics_address(), node_.identity(), *metrics_, *secured_.door));
  metrics_address_ = secure_metrics_->address();
  return absl::OkStatus();
}

// The door and the counters outlive the last scrape: the metrics stop before they go.
void Host::ShowRefusals() {
  using Verdict = rpc::ConnectionLimits::Verdict;
  const auto connections = [this](const char* reason) {
    return &metrics_->Counter("onepiece_connections_refused_total",
                              "Connections closed before their handshake, by reason",
                              {{"reason", reason}});
  };
  metrics_->OnScrape([door = door(), too_many = connections("too_many"),
                      too_often = connections("too_often"), no_room = connections("no_descriptors"),
                      calls = &metrics_->Counter("onepiece_calls_refused_total",
                                                 "Calls of callers that call too often")] {
    const rpc::Limits& limits = door->limits();
    const auto refused = [&](Verdict verdict) {
      return static_cast<double>(limits.connections.Refused(verdict));
    };
    telemetry::RaiseTo(*too_many, refused(Verdict::kTooMany));
    telemetry::RaiseTo(*too_often, refused(Verdict::kTooOften));
    telemetry::RaiseTo(*no_room, refused(Verdict::kNoRoom));
    telemetry::RaiseTo(*calls, static_cast<double>(limits.calls.refused()));
  });
}

void Host::SetHealth(const std::string& service, bool serving) {
  health_is_set_ = true;
  server_->SetHealth(service,
                     serving ? rpc::ServingStatus::kServing : rpc::ServingStatus::kNotServing);
}

absl::Status Host::ReportReady() {
  // Whoever waits for the ready file may call at once, so the health comes first.
  if (!health_is_set_) server_->SetHealth(rpc::ServingStatus::kServing);
  if (node_.ready_file().empty()) return absl::OkStatus();
  const nlohmann::json ready = {
      {"pid", getpid()}, {"address", address_}, {"metrics_address", metrics_address_}};
  return WriteFileAtomically(node_.ready_file(), ready.dump() + "\n");
}

void Host::WaitForShutdown() {
  while (!WaitForShutdown(std::chrono::hours(1))) {
  }
}

bool Host::WaitForShutdown(base::Duration limit) {
  if (shut_down_) return true;
  const std::optional<int> number = signals_.WaitFor(limit);
  if (!number.has_value()) return false;
  spdlog::info("op=shutdown signal={}", strsignal(*number));
  server_->EndHealth();
  shut_down_ = true;
  return true;
}

std::stop_token Host::stopping() const { return server_->stopping(); }

void Host::StopServing() {
  server_->Shutdown(kGrace);
  // Scrapes read objects of the program's body (OnScrape), which go after this call.
  metrics_->Stop();
  secure_metrics_.reset();
}

int RunProgram(ServiceOptions& options, int argc, const char* const* argv, const Body& body,
               const Check& check) {
  base::ShutdownSignals signals;
  const ServiceOptions::Parsed parsed = options.Parse(argc, argv);
  if (parsed.outcome == ServiceOptions::Outcome::kExit) return parsed.exit_code;
  if (check) {
    if (const absl::Status status = check(); !status.ok()) {
      std::cerr << options.info().program << ": " << status.message() << "\n";
      return kExitBadConfig;
    }
  }
  if (parsed.outcome == ServiceOptions::Outcome::kCheckOnly) return kExitOk;
  // Before this program's first file and first connection.
  umask(S_IRWXG | S_IRWXO);
  rpc::RequireTls13();
  rpc::KeepGrpcLogShort();
  base::InitLogging(options.node().node_id());
  RaiseDescriptorLimit();
  absl::StatusOr<Secured> secured = Secure(options.node(), options.info().role);
  absl::Status status = secured.status();
  if (status.ok()) {
    Host host(options.info(), options.node(), *std::move(secured), signals);
    status = body(host);
  }
  if (status.ok()) return kExitOk;
  const std::string reason = base::GetReason(status).reason;
  spdlog::error("op=exit reason={} error=\"{}\"", reason, base::Message(status));
  return reason == kBadConfig ? kExitBadConfig : kExitFailure;
}

}  // namespace onepiece::service
