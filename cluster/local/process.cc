#include "cluster/local/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

#include "cluster/base/status.h"

namespace onepiece::local {
namespace {

/// The variables that concern every process. The others would override a service's own
/// configuration file.
constexpr std::array<std::string_view, 2> kInheritedVariables = {"ONEPIECE_LOG_LEVEL=",
                                                                 "ONEPIECE_TIME_SCALE="};

std::vector<char*> Environment(bool clean) {
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const bool inherited =
        std::any_of(kInheritedVariables.begin(), kInheritedVariables.end(),
                    [&text](std::string_view prefix) { return text.starts_with(prefix); });
    if (!clean || inherited || !text.starts_with("ONEPIECE_")) environment.push_back(*entry);
  }
  environment.push_back(nullptr);
  return environment;
}

/// Runs in the child between fork and exec, where only async-signal-safe calls are allowed: no
/// allocation, no locks. Another thread may have held the allocator's lock when this one forked.
[[noreturn]] void BecomeProgram(const SpawnOptions& options, char** arguments, char** environment,
                                int output, int error_pipe, pid_t parent) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  if (options.lifetime == Lifetime::kWithParent) {
    setpgid(0, 0);  // The terminal's Ctrl-C then reaches the supervisor only.
    // The kernel sends the signal when the thread that forked ends. So a thread that lives as long
    // as its process must spawn.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);  // The parent died before prctl took effect.
  } else {
    setsid();
  }
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  // The descriptors are marked and not closed, because `error_pipe` must work until exec succeeds.
  syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
  for (const int fd : options.keep_fds) fcntl(fd, F_SETFD, 0);
  execve(arguments[0], arguments, environment);
  // A successful exec closes the pipe, and the parent reads end of file. It reads `error`
  // otherwise.
  const int error = errno;
  [[maybe_unused]] const auto written = write(error_pipe, &error, sizeof error);
  _exit(127);
}

struct Stat {
  ProcessId process;  ///< pid 0 when there is none.
  std::string state;
};

Stat ReadStat(std::int32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  // The text is "pid (name) state …". The name may contain anything, so the fields are counted
  // after the last parenthesis.
  const auto close = text.rfind(')');
  if (close == std::string::npos) return {};
  std::istringstream fields(text.substr(close + 1));
  Stat stat;
  std::string skipped;
  fields >> stat.state;
  for (int field = 4; field <= 21; ++field) fields >> skipped;
  if (fields >> stat.process.start_time) stat.process.pid = pid;
  return stat;
}

absl::Status CannotStart(const std::string& program, int error) {
  const auto code =
      error == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kFailedPrecondition;
  return base::MakeError(code, "CANNOT_START",
                         "cannot start " + program + ": " + std::strerror(error),
                         {{"program", program}});
}

}  // namespace

ProcessId Identify(std::int32_t pid) {
  const Stat stat = ReadStat(pid);
  return stat.state == "Z" || stat.state == "X" ? ProcessId{} : stat.process;
}

bool IsRunning(const ProcessId& process) {
  return process.pid > 0 && Identify(process.pid) == process;
}

absl::StatusOr<ProcessId> Spawn(const SpawnOptions& options) {
  const std::string& program = options.arguments.front();
  std::vector<char*> arguments;
  for (const auto& argument : options.arguments)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  std::vector<char*> environment = Environment(options.clean_environment);
  const int output =
      open(options.output_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (output < 0) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "CANNOT_WRITE",
                           "cannot write " + options.output_path + ": " + std::strerror(errno));
  }
  std::array<int, 2> error_pipe{};
  if (pipe2(error_pipe.data(), O_CLOEXEC) != 0) {
    close(output);
    return CannotStart(program, errno);
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    BecomeProgram(options, arguments.data(), environment.data(), output, error_pipe[1], parent);
  }
  const int fork_error = errno;
  close(output);
  close(error_pipe[1]);
  int error = 0;
  ssize_t count = 0;
  // A signal may interrupt the read before the child has said anything. Without the retry, a
  // program that cannot start would count as started.
  do {
    count = pid < 0 ? 0 : read(error_pipe[0], &error, sizeof error);
  } while (count < 0 && errno == EINTR);
  const bool failed = pid < 0 || count == sizeof error;
  close(error_pipe[0]);
  if (failed) {
    if (pid > 0) waitpid(pid, nullptr, 0);
    return CannotStart(program, pid < 0 ? fork_error : error);
  }
  ProcessId process = Identify(pid);
  process.pid = pid;  // Even if it has ended already, because the caller reaps it.
  return process;
}

bool WaitGone(const ProcessId& process, base::Duration limit) {
  if (process.pid <= 0) return true;
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0U));
  if (fd < 0) return errno == ESRCH;
  // A process whose first thread is a zombie may still be ending. Its descriptor becomes readable
  // when all of its threads are dead.
  // The identity is compared after the descriptor is open. Before that, the pid could still pass to
  // another process.
  bool gone = ReadStat(process.pid).process != process;
  if (!gone) {
    pollfd poll_fd{fd, POLLIN, 0};
    gone = poll(&poll_fd, 1,
                static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(limit).count())) == 1;
  }
  close(fd);
  return gone;
}

bool KillAndWait(const ProcessId& process, base::Duration limit) {
  if (IsRunning(process)) kill(process.pid, SIGKILL);
  return WaitGone(process, limit);
}

}  // namespace onepiece::local
