#include "stages/worker/worker_process.h"

#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "absl/cleanup/cleanup.h"
#include "cluster/base/status.h"
#include "onepiece/v1/worker.pb.h"
#include "stages/runtime/stage_runner.h"
#include "stages/sdk/device_name.h"
#include "stages/worker/worker_server.h"

extern char** environ;

namespace onepiece::worker {
namespace {

constexpr auto kOpenLimit = std::chrono::seconds(5);
/// How long the end of a process may follow that of its socket.
constexpr auto kEndingLimit = std::chrono::milliseconds(500);
constexpr auto kEndingPoll = std::chrono::milliseconds(5);

absl::Status BadDevice(const std::string& name, const std::string& why) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_DEVICE",
                         "device '" + name + "': " + why, {{"device", name}});
}

bool MayUseCore(int core) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_ISSET(core, &allowed);
}

}  // namespace

absl::StatusOr<WorkerDevice> WorkerDevice::Parse(const std::string& name) {
  if (name == "cpu" || sdk::CudaIndex(name).has_value())
    return WorkerDevice{.name = name, .stage_name = name};
  constexpr std::string_view kCore = "cpu:";
  int core = -1;
  const char* const end = name.data() + name.size();
  if (name.starts_with(kCore)) {
    const auto [stop, error] = std::from_chars(name.data() + kCore.size(), end, core);
    if (error != std::errc() || stop != end || core < 0 || core >= CPU_SETSIZE) core = -1;
  }
  if (core < 0) return BadDevice(name, "not cpu, cpu:CORE or cuda:N");
  if (!MayUseCore(core)) return BadDevice(name, "this process may not run on that core");
  return WorkerDevice{.name = name, .stage_name = "cpu", .core = core};
}

std::string WorkerProcess::DefaultProgram() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path() / "onepiece-worker").string();
}

absl::StatusOr<std::shared_ptr<WorkerProcess>> WorkerProcess::Start(const std::string& program,
                                                                    const WorkerDevice& device) {
  ONEPIECE_ASSIGN_OR_RETURN(auto ends, PacketSocket::Pair());
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  const absl::Cleanup destroy = [&] {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  };
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends.second.fd(), kControlFd);
  // Libraries open files without O_CLOEXEC. The worker must not hold the instance's sockets open.
  posix_spawn_file_actions_addclosefrom_np(&actions, kControlFd + 1);
  // A program inherits blocked and ignored signals, and the terminal's Ctrl-C goes to a group.
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  const std::string core = std::to_string(device.core);
  std::array<char*, 3> arguments = {const_cast<char*>(program.c_str()),
                                    const_cast<char*>(core.c_str()), nullptr};
  pid_t pid = -1;
  if (const int error =
          ::posix_spawn(&pid, program.c_str(), &actions, &attributes, arguments.data(), environ);
      error != 0) {
    return base::MakeError(
        error == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kResourceExhausted,
        "CANNOT_START", "cannot start " + program + ": " + std::strerror(error),
        {{"program", program}});
  }
  return std::shared_ptr<WorkerProcess>(new WorkerProcess(pid, std::move(ends.first), device));
}

WorkerProcess::~WorkerProcess() {
  Kill();
  const base::MutexLock lock(mutex_);
  ReapLocked(/*wait=*/true);
}

bool WorkerProcess::ReapLocked(bool wait) {
  if (ended_) return true;
  pid_t reaped = 0;
  do {
    reaped = ::waitpid(pid_, &status_, wait ? 0 : WNOHANG);
  } while (reaped < 0 && errno == EINTR);
  ended_ = reaped != 0;
  return ended_;
}

bool WorkerProcess::alive() {
  const base::MutexLock lock(mutex_);
  return !ReapLocked(/*wait=*/false);
}

void WorkerProcess::Kill() {
  const base::MutexLock lock(mutex_);
  // Until it is reaped, nobody else gets its number.
  if (!ended_) ::kill(pid_, SIGKILL);
}

std::string WorkerProcess::Ending() {
  const base::MonotonicTime until = base::SystemClock().Now() + base::Scaled(kEndingLimit);
  while (alive() && base::SystemClock().Now() < until) base::SystemClock().Pause({}, kEndingPoll);
  const bool silent = alive();
  if (silent) Kill();
  const base::MutexLock lock(mutex_);
  ReapLocked(/*wait=*/true);
  if (silent) return "it did not answer and was killed";
  if (WIFSIGNALED(status_)) return "signal " + std::to_string(WTERMSIG(status_));
  return "exit status " + std::to_string(WEXITSTATUS(status_));
}

absl::StatusOr<PacketSocket> WorkerProcess::OpenStage() {
  ONEPIECE_ASSIGN_OR_RETURN(auto ends, PacketSocket::Pair());
  v1::ToWorker request;
  request.mutable_open();
  const base::MutexLock lock(mutex_);
  const absl::Status sent = control_.Send(request, ends.second.fd(),
                                          base::SystemClock().Now() + base::Scaled(kOpenLimit));
  if (sent.ok()) return std::move(ends.first);
  return base::MakeError(
      absl::StatusCode::kUnavailable, runtime::kWorkerLost,
      "the worker process of " + device_.name + " does not take a stage: " + base::Message(sent),
      {{"device", device_.name}});
}

}  // namespace onepiece::worker
