#include "tests/bench/control_plane/flood.h"

#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cluster/base/clock.h"
#include "cluster/base/seconds.h"
#include "cluster/base/status.h"
#include "cluster/local/resources.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/server.h"
#include "onepiece/v1/node_manager.grpc.pb.h"

namespace onepiece::bench {
namespace {

constexpr base::Duration kBurst = std::chrono::milliseconds(5);
constexpr base::Duration kAnswerLimit = std::chrono::seconds(5);
constexpr int kClosedPorts = 1000;  // Nobody listens on the lowest ports here.

struct Registration {
  grpc::ClientContext context;
  v1::RegisterNodeRequest request;
  v1::RegisterNodeResponse response;
};

// Never has more than kUnderWay calls under way. Thread-confined.
class RegistrationFlood {
 public:
  static constexpr int kUnderWay = 4000;
  RegistrationFlood(const std::string& address, int per_second);
  ~RegistrationFlood() { (void)Stop(); }
  RegistrationFlood(const RegistrationFlood&) = delete;
  RegistrationFlood& operator=(const RegistrationFlood&) = delete;

  /// Ends, and waits for the answers to what was sent. Idempotent.
  FloodCounts Stop();

 private:
  void Run(const std::stop_token& stop, int per_second);
  void Send(std::uint64_t number);

  rpc::Server server_{rpc::ServerOptions{}};  // Of the node that begins anew.
  std::unique_ptr<v1::NodeManagerService::Stub> stub_;
  const base::MonotonicTime begun_;
  std::atomic<std::uint64_t> sent_{0}, answered_{0}, taken_{0};
  double seconds_ = 0;
  std::jthread thread_;
};

RegistrationFlood::RegistrationFlood(const std::string& address, int per_second)
    : stub_(v1::NodeManagerService::NewStub(rpc::MakeChannel(address))),
      begun_(base::SystemClock().Now()) {
  (void)server_.Start();
  thread_ =
      std::jthread([this, per_second](const std::stop_token& stop) { Run(stop, per_second); });
}

void RegistrationFlood::Send(std::uint64_t number) {
  auto* const call = new Registration;
  rpc::SetTimeout(call->context, kAnswerLimit);
  v1::Node& node = *call->request.mutable_node();
  const bool reachable = number % 2 == 0;
  node.set_node_id(reachable ? "flood" : absl::StrCat("flood-", number % kClosedPorts));
  node.set_incarnation(number + 1);
  node.set_role(v1::PROXY);
  node.set_workflow_set("default");
  node.set_address(reachable ? server_.address()
                             : absl::StrCat("127.0.0.1:", 1 + number % kClosedPorts));
  ++sent_;
  stub_->async()->RegisterNode(&call->context, &call->request, &call->response,
                               [this, call](const grpc::Status& status) {
                                 delete call;
                                 if (status.ok()) ++taken_;
                                 ++answered_;
                               });
}

void RegistrationFlood::Run(const std::stop_token& stop, int per_second) {
  base::Clock& clock = base::SystemClock();
  std::uint64_t number = 0;
  while (clock.Pause(stop, kBurst)) {
    const auto due = static_cast<std::uint64_t>(base::ToSeconds(clock.Now() - begun_) *
                                                static_cast<double>(per_second));
    // What could not be sent in time is left out and not made up for.
    for (; number < due; ++number) {
      if (sent_ - answered_ < kUnderWay) Send(number);
    }
  }
}

FloodCounts RegistrationFlood::Stop() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
    seconds_ = base::ToSeconds(base::SystemClock().Now() - begun_);
  }
  while (answered_ < sent_) base::SystemClock().Pause({}, kBurst);  // Each has a deadline.
  return {.sent = sent_, .answered = answered_, .taken = taken_, .seconds = seconds_};
}

}  // namespace

int RunFlood(const std::string& address, int per_second, base::ShutdownSignals& signals) {
  RegistrationFlood flood(address, per_second);
  signals.Wait();
  const FloodCounts counts = flood.Stop();
  std::printf("%llu %llu %llu %.6f\n", static_cast<unsigned long long>(counts.sent),
              static_cast<unsigned long long>(counts.answered),
              static_cast<unsigned long long>(counts.taken), counts.seconds);
  return EXIT_SUCCESS;
}

absl::StatusOr<std::unique_ptr<FloodProcess>> FloodProcess::Start(const std::string& address,
                                                                  int per_second,
                                                                  const std::string& dir) {
  std::string output = dir + "/flood.log";
  ONEPIECE_ASSIGN_OR_RETURN(
      const local::ProcessId id,
      local::Spawn({.arguments = {local::SelfPath(), "flood", "--address", address, "--rate",
                                  absl::StrCat(per_second)},
                    .output_path = output,
                    .clean_environment = true}));
  return std::unique_ptr<FloodProcess>(new FloodProcess(id, std::move(output)));
}

FloodProcess::~FloodProcess() {
  if (ended_) return;
  kill(id_.pid, SIGKILL);
  waitpid(id_.pid, nullptr, 0);
}

absl::StatusOr<FloodCounts> FloodProcess::Stop() {
  kill(id_.pid, SIGTERM);
  waitpid(id_.pid, nullptr, 0);
  ended_ = true;
  std::ifstream file(output_);
  FloodCounts counts;
  if (file >> counts.sent >> counts.answered >> counts.taken >> counts.seconds) return counts;
  return absl::UnavailableError("the flooding process has failed; see " + output_);
}

}  // namespace onepiece::bench
