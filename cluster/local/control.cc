#include "cluster/local/control.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cluster/base/check.h"
#include "cluster/base/status.h"
#include "cluster/config/yaml.h"
#include "cluster/local/identities.h"
#include "cluster/local/resources.h"
#include "cluster/rpc/tls.h"

namespace onepiece::local {
namespace {

using nlohmann::json;
using std::chrono::seconds;

/// The limit of a start: three waits of the supervisor and its clean-up.
const base::Duration kUpLimit = base::Scaled(seconds(400));
const base::Duration kGoneLimit = base::Scaled(seconds(5));
const base::Duration kDownLimit = base::Scaled(seconds(40));

/// Writes one line to the CLI that waits. Returns false when the CLI is gone.
bool Tell(int fd, const json& line) {
  const std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  std::size_t written = 0;
  while (written < text.size()) {
    // SIGPIPE is ignored (SupervisorSignals), so a CLI that is gone shows as an error.
    const auto count = write(fd, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    written += static_cast<std::size_t>(count);
  }
  return true;
}

json ToJson(const Progress& progress) {
  return {{"ready", progress.ready}, {"total", progress.total}, {"what", progress.what}};
}

json ToJson(const absl::Status& status) {
  return {{"code", static_cast<int>(status.code())},
          {"reason", base::GetReason(status).reason},
          {"message", base::Message(status)}};
}

/// Interprets a line of the supervisor. Returns nullopt for progress.
std::optional<absl::Status> Understand(const json& line, const UpOptions& options) {
  if (line.contains("progress") && options.on_progress) {
    const json& progress = line["progress"];
    options.on_progress(
        {progress.value("ready", 0), progress.value("total", 0), progress.value("what", "")});
  }
  if (line.contains("error")) {
    const json& error = line["error"];
    return base::MakeError(static_cast<absl::StatusCode>(error.value("code", 2)),
                           error.value("reason", ""), error.value("message", ""));
  }
  if (line.contains("ready")) return absl::OkStatus();
  return std::nullopt;
}

/// Reads the supervisor's reports until it is ready, fails or ends, or until the time is over.
absl::Status AwaitReady(int fd, const UpOptions& options, const std::string& log) {
  const auto deadline = base::SystemClock().Now() + kUpLimit;
  std::string buffer;
  for (;;) {
    for (auto end = buffer.find('\n'); end != std::string::npos; end = buffer.find('\n')) {
      const json line = json::parse(buffer.substr(0, end), nullptr, false);
      buffer.erase(0, end + 1);
      if (!line.is_object()) continue;
      if (auto outcome = Understand(line, options); outcome.has_value()) return *outcome;
    }
    if (base::SystemClock().Now() >= deadline) {
      return base::MakeError(absl::StatusCode::kDeadlineExceeded, "START_TIMEOUT",
                             "the cluster does not get ready");
    }
    pollfd poll_fd{fd, POLLIN, 0};
    if (poll(&poll_fd, 1, 1000) <= 0) continue;
    std::array<char, 4096> chunk{};
    const auto count = read(fd, chunk.data(), chunk.size());
    if (count > 0) {
      buffer.append(chunk.data(), static_cast<std::size_t>(count));
    } else if (count == 0) {
      const std::string complaint = LastComplaint(log);
      return base::MakeError(absl::StatusCode::kFailedPrecondition, "START_FAILED",
                             "the supervisor ended before the cluster was ready (log: " + log +
                                 ")" + (complaint.empty() ? "" : ": " + complaint));
    }
  }
}

absl::StatusOr<SupervisorOptions> Plan(const UpOptions& options, const DataDir& dir) {
  SupervisorOptions supervisor;
  supervisor.dir = dir;
  ONEPIECE_ASSIGN_OR_RETURN(v1::LocalClusterConfig config, LoadConfig(options.config_file));
  if (!options.fabric.empty()) config.set_fabric(options.fabric);
  if (options.nodemanagers != 0) config.set_nodemanagers(options.nodemanagers);
  if (options.workflow_sets != 0) config.set_workflow_sets(options.workflow_sets);
  if (options.insecure) config.set_insecure(true);
  ONEPIECE_ASSIGN_OR_RETURN(const std::string cluster_id, ClusterId(dir));
  ONEPIECE_ASSIGN_OR_RETURN(supervisor.plan, MakePlan(config, dir, cluster_id));
  if (options.read_only) MakeReadOnly(supervisor.plan);
  return supervisor;
}

/// Gives the nodes and this process, which asks them, their identities.
absl::Status Secure(const ClusterPlan& plan, const DataDir& dir) {
  rpc::RequireTls13();
  if (plan.insecure) return ShowIdentity("");
  ONEPIECE_RETURN_IF_ERROR(PrepareIdentities(plan, dir, base::SystemClock().WallNow()));
  return ShowIdentity(dir.Identity());
}

}  // namespace

absl::StatusOr<v1::LocalClusterConfig> LoadConfig(const std::string& config_file) {
  v1::LocalClusterConfig config;
  std::string folder;
  if (!config_file.empty()) {
    ONEPIECE_RETURN_IF_ERROR(config::LoadYamlFile(config_file, &config));
    folder = std::filesystem::absolute(config_file).parent_path().string();
  }
  return Complete(std::move(config), folder);
}

absl::StatusOr<ClusterState> Up(const UpOptions& options) {
  umask(S_IRWXG | S_IRWXO);
  ONEPIECE_ASSIGN_OR_RETURN(const DataDir dir, PrepareDataDir(options.data_dir));
  ONEPIECE_ASSIGN_OR_RETURN(const DataDirLock lock, DataDirLock::Acquire(dir));
  ONEPIECE_RETURN_IF_ERROR(
      Plan(options, dir).status());  // Tells mistakes here, before anything starts.
  std::array<int, 2> report{};
  ONEPIECE_CHECK(pipe2(report.data(), O_CLOEXEC) == 0);
  SpawnOptions spawn;
  spawn.arguments = {SelfPath(),    kSuperviseVerb,
                     "--data-dir",  dir.path,
                     "--lock-fd",   std::to_string(lock.fd()),
                     "--report-fd", std::to_string(report[1])};
  if (!options.config_file.empty()) {
    spawn.arguments.insert(spawn.arguments.end(),
                           {"--config", std::filesystem::absolute(options.config_file).string()});
  }
  if (!options.fabric.empty()) {
    spawn.arguments.insert(spawn.arguments.end(), {"--fabric", options.fabric});
  }
  if (options.nodemanagers != 0) {
    spawn.arguments.insert(spawn.arguments.end(),
                           {"--nodemanagers", std::to_string(options.nodemanagers)});
  }
  if (options.workflow_sets != 0) {
    spawn.arguments.insert(spawn.arguments.end(),
                           {"--sets", std::to_string(options.workflow_sets)});
  }
  if (options.read_only) spawn.arguments.emplace_back("--read-only");
  if (options.insecure) spawn.arguments.emplace_back("--insecure");
  spawn.output_path = dir.LogFile("supervisor");
  // A flock belongs to the open file and not to the process. So the supervisor goes on holding it
  // when this process closes its own descriptor.
  spawn.keep_fds = {lock.fd(), report[1]};
  spawn.lifetime = Lifetime::kDetached;
  std::error_code error;
  std::filesystem::remove(spawn.output_path, error);
  const auto supervisor = Spawn(spawn);
  // While this process had the writing end, it would never read the end of file of a supervisor
  // that died.
  close(report[1]);
  absl::Status status =
      supervisor.ok() ? AwaitReady(report[0], options, spawn.output_path) : supervisor.status();
  // A supervisor that is still starting gives up and cleans up when nobody reads its reports any
  // more.
  close(report[0]);
  if (status.ok()) return FindCluster(dir.path);
  // It holds the data directory's lock until it is gone, and people try again at once.
  if (supervisor.ok()) WaitGone(*supervisor, kGoneLimit);
  return status;
}

absl::Status UpInForeground(const UpOptions& options,
                            const std::function<void(const ClusterState&)>& on_ready) {
  umask(S_IRWXG | S_IRWXO);
  SupervisorSignals signals;
  ONEPIECE_ASSIGN_OR_RETURN(const DataDir dir, PrepareDataDir(options.data_dir));
  ONEPIECE_ASSIGN_OR_RETURN(const DataDirLock lock, DataDirLock::Acquire(dir));
  ONEPIECE_ASSIGN_OR_RETURN(SupervisorOptions supervisor_options, Plan(options, dir));
  ONEPIECE_RETURN_IF_ERROR(Secure(supervisor_options.plan, dir));
  supervisor_options.on_progress = [&options](const Progress& progress) {
    if (options.on_progress) options.on_progress(progress);
    return true;
  };
  Supervisor supervisor(std::move(supervisor_options), signals);
  ONEPIECE_RETURN_IF_ERROR(supervisor.Start());
  on_ready(supervisor.state());
  supervisor.Run();
  supervisor.Stop();
  return absl::OkStatus();
}

absl::Status Supervise(const UpOptions& options, int lock_fd, int report_fd) {
  umask(S_IRWXG | S_IRWXO);
  SupervisorSignals signals;
  const DataDirLock lock = DataDirLock::Adopt(lock_fd);
  fcntl(report_fd, F_SETFD, FD_CLOEXEC);
  const DataDir dir{options.data_dir};
  auto supervisor_options = Plan(options, dir);
  absl::Status prepared = supervisor_options.status();
  if (prepared.ok()) prepared = Secure(supervisor_options->plan, dir);
  if (!prepared.ok()) {
    Tell(report_fd, {{"error", ToJson(prepared)}});
    return prepared;
  }
  std::string last;
  supervisor_options->on_progress = [report_fd, &last](const Progress& progress) {
    pollfd poll_fd{report_fd, 0, 0};
    if (poll(&poll_fd, 1, 0) != 0) return false;  // POLLERR says that the reader is gone.
    if (progress.what == last) return true;
    last = progress.what;
    return Tell(report_fd, {{"progress", ToJson(progress)}});
  };
  Supervisor supervisor(*std::move(supervisor_options), signals);
  const absl::Status started = supervisor.Start();
  if (started.ok()) {
    Tell(report_fd, {{"ready", true}});
  } else {
    Tell(report_fd, {{"error", ToJson(started)}});
  }
  close(report_fd);
  if (!started.ok()) return started;
  supervisor.Run();
  supervisor.Stop();
  return absl::OkStatus();
}

absl::StatusOr<DownResult> Down(const std::string& data_dir) {
  std::error_code error;
  const DataDir dir{std::filesystem::absolute(data_dir, error).lexically_normal().string()};
  if (!std::filesystem::exists(dir.Lock(), error)) return DownResult::kNothingRan;
  const bool left_over = std::filesystem::exists(dir.State(), error);
  auto lock = DataDirLock::Acquire(dir);
  const bool ran = !lock.ok();
  if (ran) {
    const auto state = ReadState(dir);
    ProcessId supervisor;
    if (state.ok() && state->has_value()) supervisor = (*state)->supervisor;
    if (IsRunning(supervisor)) kill(supervisor.pid, SIGTERM);
    if (!WaitGone(supervisor, kDownLimit)) KillAndWait(supervisor, base::Scaled(seconds(5)));
    // A supervisor that has only just started has not written cluster.json yet. It cannot be killed
    // from here, and it releases the lock by itself.
    const auto deadline = base::SystemClock().Now() + base::Scaled(seconds(5));
    do {
      lock = DataDirLock::Acquire(dir);
      if (!lock.ok()) base::SystemClock().Pause({}, std::chrono::milliseconds(20));
    } while (!lock.ok() && base::SystemClock().Now() < deadline);
    if (!lock.ok()) {
      return base::MakeError(
          absl::StatusCode::kDeadlineExceeded, "CLUSTER_STAYS",
          "the cluster in " + dir.path + " is starting or does not end; try again");
    }
  }
  ONEPIECE_RETURN_IF_ERROR(CleanUp(dir));
  return ran || left_over ? DownResult::kStopped : DownResult::kNothingRan;
}

absl::StatusOr<ClusterState> FindCluster(const std::string& data_dir) {
  std::error_code error;
  const DataDir dir{std::filesystem::absolute(data_dir, error).lexically_normal().string()};
  const auto state = ReadState(dir);
  if (!state.ok()) return state.status();
  if (!state->has_value() || !IsRunning((*state)->supervisor)) {
    return base::MakeError(
        absl::StatusCode::kUnavailable, "NO_CLUSTER",
        "no cluster runs in " + dir.path +
            ": start one with `onepiece up`, or name one with --data-dir or --nodemanager");
  }
  return **state;
}

}  // namespace onepiece::local
