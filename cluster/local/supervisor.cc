#include "cluster/local/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cluster/base/check.h"
#include "cluster/base/status.h"
#include "cluster/client/client.h"
#include "cluster/service/program.h"

namespace onepiece::local {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// The interval at which the supervisor looks for files that it waits for.
constexpr milliseconds kLook(20);
constexpr seconds kStable(30);  ///< After this long, a process gets the first backoff again.
/// How often the NodeManager is asked while a process may be silent.
constexpr int kAsksInSilence = 10;
constexpr std::uintmax_t kMaxLogBytes = std::uintmax_t{16} << 20;

base::MonotonicTime Now() { return base::SystemClock().Now(); }

/// Returns true when every stage is served in every workflow set that has a proxy.
bool EveryStageServed(const v1::Cluster& cluster) {
  std::set<std::string> sets;
  std::set<std::tuple<std::string, std::string, std::string>> served;  // Set, application, stage.
  for (const auto& node : cluster.nodes()) {
    if (node.role() == v1::PROXY) sets.insert(node.workflow_set());
    if (node.state() != v1::Node::READY) continue;
    const v1::Assignment& does = node.assignment();
    const std::string& set =
        does.workflow_set().empty() ? node.workflow_set() : does.workflow_set();
    for (const auto& app_id : does.app_ids()) served.emplace(set, app_id, does.stage().stage());
  }
  for (const std::string& set : sets) {
    for (const auto& workflow : cluster.workflows()) {
      for (const auto& stage : workflow.stages()) {
        if (!served.contains({set, workflow.app_id(), stage.stage()})) return false;
      }
    }
  }
  return true;
}

/// Returns the seats that nobody has taken, as the leader sees them.
///
/// Errors: UNAVAILABLE while there is no leader.
absl::StatusOr<std::vector<std::string>> VacantSeats(client::Client& client) {
  for (const client::ReplicaAnswer& replica : client.AskReplicas()) {
    if (!replica.status.ok() || replica.status->role() != v1::ReplicaStatus::LEADER) continue;
    std::vector<std::string> vacant;
    for (const v1::Seat& seat : replica.status->members().seats()) {
      if (seat.replica() == 0) vacant.push_back(seat.name());
    }
    return vacant;
  }
  return absl::UnavailableError("the NodeManager has no leader yet");
}

absl::StatusOr<Readiness> AskNodeManager(const std::vector<std::string>& nodemanagers) {
  client::ClientOptions options;
  options.nodemanagers = nodemanagers;
  options.timeout = options.attempt_timeout = base::Scaled(seconds(1));
  client::Client client(options);
  ONEPIECE_ASSIGN_OR_RETURN(const v1::Cluster cluster, client.GetCluster());
  const bool idle_is_ready = EveryStageServed(cluster);
  Readiness readiness;
  // The cluster is ready only when every replica votes. Before that, the loss of the first replica
  // would be the loss of the group.
  if (nodemanagers.size() > 1) {
    ONEPIECE_ASSIGN_OR_RETURN(readiness.vacant, VacantSeats(client));
  }
  for (const auto& node : cluster.nodes()) {
    const bool idle = node.state() == v1::Node::STARTING && node.detail() == "idle";
    if (node.state() == v1::Node::READY || (idle && idle_is_ready))
      readiness.ready.insert(node.pid());
    if (node.state() == v1::Node::DEAD) readiness.silent[node.node_id()] = node.pid();
    if (node.detail().starts_with("loading failed")) readiness.failed[node.pid()] = node.detail();
  }
  return readiness;
}

absl::Status Interrupted() {
  return base::MakeError(absl::StatusCode::kCancelled, "INTERRUPTED",
                         "interrupted before the cluster was ready");
}

}  // namespace

SupervisorSignals::SupervisorSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&signals, signal);
  // A thread without the mask would take SIGTERM, and the process would end without Stop().
  ONEPIECE_CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
  signal(SIGPIPE, SIG_IGN);
  fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  ONEPIECE_CHECK(fd_ >= 0);
}

SupervisorSignals::~SupervisorSignals() { close(fd_); }

bool SupervisorSignals::WaitFor(base::Duration limit) {
  pollfd poll_fd{fd_, POLLIN, 0};
  poll(&poll_fd, 1, static_cast<int>(std::chrono::duration_cast<milliseconds>(limit).count()));
  signalfd_siginfo info{};
  while (read(fd_, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGCHLD) asked_to_end_ = true;
  }
  return asked_to_end_;
}

std::string LastComplaint(const std::string& log_path) {
  std::error_code error;
  const auto size = fs::file_size(log_path, error);
  std::ifstream file(log_path, std::ios::binary);
  constexpr std::uintmax_t kTailBytes = 16 << 10;
  if (!error && size > kTailBytes) file.seekg(static_cast<std::streamoff>(size - kTailBytes));
  std::string line, last, complaint;
  while (std::getline(file, line)) {
    if (line.empty()) continue;
    const auto entry = nlohmann::json::parse(line, nullptr, false);
    const bool structured =
        entry.is_object() && entry.contains("message") && entry["message"].is_string();
    last = structured ? entry["message"].get<std::string>() : line;
    const std::string level = structured ? entry.value("level", "") : "";
    if (level == "error" || level == "critical") complaint = last;
  }
  return complaint.empty() ? last : complaint;
}

Supervisor::Supervisor(SupervisorOptions options, SupervisorSignals& signals)
    : options_(std::move(options)),
      signals_(signals),
      silence_(options_.silence, options_.plan.nodes.size() - options_.plan.nodemanagers) {
  ONEPIECE_CHECK(!options_.plan.nodes.empty());
  if (!options_.readiness) options_.readiness = AskNodeManager;
  for (const auto& plan : options_.plan.nodes) {
    Child child;
    child.plan = plan;
    child.backoff = options_.first_backoff;
    children_.push_back(std::move(child));
  }
  state_.cluster_id = options_.plan.cluster_id;
  state_.fabric = options_.plan.fabric;
  if (!options_.plan.insecure) state_.identity = options_.dir.Identity();
  for (std::size_t i = 0; first_node() > 1 && i < first_node(); ++i)
    state_.nodemanagers.push_back(children_[i].plan.node->listen());
  state_.supervisor = Identify(getpid());
}

Supervisor::~Supervisor() { Stop(); }

absl::Status Supervisor::Start() {
  stopped_ = false;
  absl::Status status = CleanUp(options_.dir);  // Removes what a killed supervisor left.
  // An embedded cluster starts from its configuration, without the NodeManagers' earlier state. It
  // must not wait for a workflow of an earlier cluster that nobody can serve. Jobs do not outlive
  // `onepiece down` either.
  std::error_code error;
  for (std::size_t i = 0; i < first_node(); ++i)
    fs::remove_all(children_[i].plan.node->data_dir(), error);
  if (status.ok()) status = StartAll();
  if (!status.ok()) Stop();
  return status;
}

absl::Status Supervisor::StartAll() {
  // The NodeManagers start first. A single one chooses its port, and the others are told its
  // address.
  for (const auto& [first, end] :
       {std::pair<std::size_t, std::size_t>(0, first_node()), {first_node(), children_.size()}}) {
    for (std::size_t i = first; i < end; ++i) ONEPIECE_RETURN_IF_ERROR(Launch(children_[i]));
    ONEPIECE_RETURN_IF_ERROR(WaitUntilReady(first, end));
  }
  ONEPIECE_RETURN_IF_ERROR(WaitUntilRouted());
  state_.ready = true;
  SaveState();
  return absl::OkStatus();
}

absl::Status Supervisor::Launch(Child& child) {
  NodePlan& plan = child.plan;
  child.ready = false;
  child.process = {};
  std::error_code error;
  fs::remove(plan.node->ready_file(), error);
  fs::create_directories(plan.node->data_dir(), error);
  plan.node->clear_nodemanagers();
  for (const auto& address : state_.nodemanagers) plan.node->add_nodemanagers(address);
  const std::string config_file = options_.dir.ConfigFile(plan.node_id);
  ONEPIECE_RETURN_IF_ERROR(service::WriteFileAtomically(config_file, ToYaml(*plan.config)));
  SpawnOptions spawn;
  spawn.arguments = {plan.program, "--config", config_file};
  spawn.output_path = options_.dir.LogFile(plan.node_id);
  spawn.clean_environment = true;
  if (state_.processes.empty() && &child == &children_.front()) {
    for (const auto& each : children_) fs::remove(options_.dir.LogFile(each.plan.node_id), error);
  }
  ONEPIECE_ASSIGN_OR_RETURN(child.process, Spawn(spawn));
  child.started = Now();
  spdlog::info("started {} pid={}", plan.node_id, child.process.pid);
  SaveState();
  return absl::OkStatus();
}

Supervisor::Child* Supervisor::Reap() {
  for (Child& child : children_) {
    // Several SIGCHLD may arrive as one signal, so every child is asked.
    int wait_status = 0;
    if (child.process.pid == 0 ||
        waitpid(child.process.pid, &wait_status, WNOHANG) != child.process.pid)
      continue;
    last_exit_ = wait_status;
    child.process = {};
    child.ready = false;
    return &child;
  }
  return nullptr;
}

absl::Status Supervisor::EndedEarly(const Child& child) const {
  std::string message = child.plan.node_id;
  message += WIFSIGNALED(last_exit_)
                 ? " was killed by signal " + std::to_string(WTERMSIG(last_exit_))
                 : " ended with exit code " + std::to_string(WEXITSTATUS(last_exit_));
  const std::string log = options_.dir.LogFile(child.plan.node_id);
  const std::string complaint = LastComplaint(log);
  if (!complaint.empty()) message += ": " + complaint;
  message += " (log: " + log + ")";
  if (WIFEXITED(last_exit_) && WEXITSTATUS(last_exit_) == service::kExitBadConfig) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG", message);
  }
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "START_FAILED", message);
}

bool Supervisor::Report(std::string what) {
  if (!options_.on_progress) return true;
  Progress progress;
  progress.total = static_cast<int>(children_.size());
  for (const Child& child : children_) progress.ready += child.ready ? 1 : 0;
  progress.what = std::move(what);
  return options_.on_progress(progress);
}

bool Supervisor::ReadReadyFile(Child& child) {
  const auto file = nlohmann::json::parse(ReadFile(child.plan.node->ready_file()), nullptr, false);
  if (!file.is_object() || file.value("pid", 0) != child.process.pid) return false;
  child.ready = true;
  const std::string address = file.value("address", "");
  // A NodeManager keeps its port over restarts, so that the other nodes find it again.
  if (auto* manager = dynamic_cast<v1::NodeManagerConfig*>(child.plan.config.get())) {
    child.plan.node->set_listen(address);
    if (first_node() == 1) state_.nodemanagers = {address};
    // A replica that comes back without its data gets it from the others. It must not begin another
    // group.
    manager->clear_bootstrap();
  }
  SaveState();
  return true;
}

absl::Status Supervisor::Turn(base::Duration wait) {
  if (signals_.WaitFor(wait)) return Interrupted();
  if (const Child* ended = Reap()) return EndedEarly(*ended);
  return absl::OkStatus();
}

absl::Status Supervisor::WaitUntilReady(std::size_t first, std::size_t end) {
  const auto deadline = Now() + options_.start_limit;
  for (;;) {
    std::string waiting_for;
    for (std::size_t i = first; i < end; ++i) {
      Child& child = children_[i];
      if (!child.ready && ReadReadyFile(child) && !Report(child.plan.node_id + " is up"))
        return Interrupted();
      if (!child.ready) waiting_for = child.plan.node_id;
    }
    if (waiting_for.empty()) return absl::OkStatus();
    if (Now() >= deadline) {
      return base::MakeError(
          absl::StatusCode::kDeadlineExceeded, "START_TIMEOUT",
          waiting_for + " is not ready in time (log: " + options_.dir.LogFile(waiting_for) + ")");
    }
    if (!Report("waiting for " + waiting_for)) return Interrupted();
    ONEPIECE_RETURN_IF_ERROR(Turn(kLook));
  }
}

absl::Status Supervisor::WaitUntilRouted() {
  const auto deadline = Now() + options_.start_limit;
  for (;;) {
    const auto readiness = options_.readiness(state_.nodemanagers);
    std::string waiting_for = children_.front().plan.node_id;
    if (readiness.ok()) {
      waiting_for = readiness->vacant.empty() ? "" : readiness->vacant.front();
      for (std::size_t i = first_node(); i < children_.size(); ++i) {
        const std::int32_t pid = children_[i].process.pid;
        const std::string& node_id = children_[i].plan.node_id;
        if (const auto failure = readiness->failed.find(pid); failure != readiness->failed.end()) {
          return base::MakeError(
              absl::StatusCode::kFailedPrecondition, "START_FAILED",
              node_id + ": " + failure->second + " (log: " + options_.dir.LogFile(node_id) + ")");
        }
        if (!readiness->ready.contains(pid)) waiting_for = node_id;
      }
      if (waiting_for.empty()) return absl::OkStatus();
    }
    if (Now() >= deadline) {
      return base::MakeError(
          absl::StatusCode::kDeadlineExceeded, "START_TIMEOUT",
          waiting_for + " does not take work in time (log: " + options_.dir.LogFile(waiting_for) +
              "): " + LastComplaint(options_.dir.LogFile(waiting_for)));
    }
    if (!Report(waiting_for + " is loading")) return Interrupted();
    ONEPIECE_RETURN_IF_ERROR(Turn(kLook * 2));
  }
}

void Supervisor::SaveState() {
  state_.processes.clear();
  for (const Child& child : children_) {
    ProcessRecord record;
    record.node_id = child.plan.node_id;
    record.role = child.plan.role;
    record.process = child.process;
    record.log = options_.dir.LogFile(child.plan.node_id);
    record.restarts = child.restarts;
    if (child.ready) {
      const auto file =
          nlohmann::json::parse(ReadFile(child.plan.node->ready_file()), nullptr, false);
      if (file.is_object()) {
        record.address = file.value("address", "");
        record.metrics_address = file.value("metrics_address", "");
      }
    }
    state_.processes.push_back(std::move(record));
  }
  if (const absl::Status status = WriteState(options_.dir, state_); !status.ok()) {
    spdlog::warn("cannot save the cluster's state: {}", base::Message(status));
  }
}

void Supervisor::Restart(Child& child) {
  ++child.restarts;
  if (const absl::Status status = Launch(child); !status.ok()) {
    spdlog::error("cannot restart {}: {}", child.plan.node_id, base::Message(status));
    child.restart_at = Now() + child.backoff;
  }
}

void Supervisor::Run() {
  // The loop turns fast while a child is starting. Otherwise it waits for signals.
  while (!signals_.WaitFor(
      std::any_of(children_.begin(), children_.end(), [](const Child& c) { return !c.ready; })
          ? kLook
          : milliseconds(500))) {
    while (Child* ended = Reap()) {
      if (Now() - ended->started > kStable) ended->backoff = options_.first_backoff;
      spdlog::warn("{}; starting it again", base::Message(EndedEarly(*ended)));
      ended->restart_at = Now() + ended->backoff;
      ended->backoff = std::min(ended->backoff * 2, options_.max_backoff);
      SaveState();
    }
    for (Child& child : children_) {
      if (child.process.pid == 0 && Now() >= child.restart_at) Restart(child);
      if (child.process.pid != 0 && !child.ready) ReadReadyFile(child);
    }
    KillTheSilent();
    BoundLogs();
  }
}

// The kernel reports a process that ends. A process that stands still (stopped, or without memory)
// ends nothing, and only the NodeManager knows that it is away.
void Supervisor::KillTheSilent() {
  if (!asked_.valid()) {
    if (Now() < ask_at_) return;
    ask_at_ = Now() + options_.silence.first / kAsksInSilence;
    // The call lasts until its timeout while no NodeManager answers, and processes that die must be
    // restarted meanwhile.
    asked_ = std::async(std::launch::async, options_.readiness, state_.nodemanagers);
    return;
  }
  if (asked_.wait_for(seconds(0)) != std::future_status::ready) return;
  const absl::StatusOr<Readiness> said = asked_.get();
  if (!said.ok()) return silence_.HearNothing();
  SilentNodes silent;
  for (const Child& child : children_) {
    // The NodeManager may still name the process before this one, which is gone.
    const auto known = said->silent.find(child.plan.node_id);
    if (known != said->silent.end() && child.ready && known->second == child.process.pid)
      silent.insert(*known);
  }
  const std::optional<std::string> given_up = silence_.Hear(silent, Now());
  if (!given_up.has_value()) return;
  spdlog::error(
      "{} pid={} runs, and the NodeManager has not heard it for more than {} s: it is killed, to "
      "start again",
      *given_up, silent.at(*given_up),
      std::chrono::duration_cast<seconds>(options_.silence.first).count());
  kill(silent.at(*given_up), SIGKILL);  // Run() reaps it. SIGTERM would wait in a stopped process.
}

void Supervisor::BoundLogs() {
  if (Now() - logs_checked_ < seconds(10)) return;
  logs_checked_ = Now();
  for (const Child& child : children_) {
    const std::string log = options_.dir.LogFile(child.plan.node_id);
    std::error_code error;
    if (fs::file_size(log, error) <= kMaxLogBytes || error) continue;
    // The process keeps the file open and appends to it. A renamed file would go on growing, so the
    // log is copied and then cut.
    fs::copy_file(log, log + ".1", fs::copy_options::overwrite_existing, error);
    fs::resize_file(log, 0, error);
  }
}

void Supervisor::StopChildren(std::size_t first, std::size_t end) {
  const auto running = [&] {
    while (Reap() != nullptr) {
    }
    return std::any_of(children_.begin() + static_cast<std::ptrdiff_t>(first),
                       children_.begin() + static_cast<std::ptrdiff_t>(end),
                       [](const Child& child) { return child.process.pid != 0; });
  };
  const auto send = [&](int signal) {
    for (std::size_t i = first; i < end; ++i) {
      if (children_[i].process.pid != 0) kill(children_[i].process.pid, signal);
    }
  };
  running();
  send(SIGTERM);
  const auto deadline = Now() + options_.stop_limit;
  while (running() && Now() < deadline) signals_.WaitFor(kLook);
  send(SIGKILL);
  while (running()) signals_.WaitFor(kLook);  // This ends, because SIGKILL cannot be ignored.
}

void Supervisor::Stop() {
  if (stopped_) return;
  stopped_ = true;
  // The nodes say goodbye to the NodeManagers, so those end last.
  StopChildren(first_node(), children_.size());
  StopChildren(0, first_node());
  if (const absl::Status status = CleanUp(options_.dir); !status.ok()) {
    spdlog::error("{}", base::Message(status));
  }
}

}  // namespace onepiece::local
