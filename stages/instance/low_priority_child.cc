#include "stages/instance/low_priority_child.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/strings/str_split.h"
#include "cluster/base/status.h"

namespace onepiece::instance {
namespace {

namespace fs = std::filesystem;

constexpr int kLowestPriority = 19;
constexpr std::string_view kFirstToGo = "1000";

absl::Status CannotStart(absl::StatusCode code, const std::string& program,
                         const std::string& why) {
  return base::MakeError(code, "CANNOT_START", "cannot start " + program + ": " + why,
                         {{"program", program}});
}

absl::StatusOr<std::string> FindProgram(const std::string& name) {
  const auto runs = [](const std::string& path) { return ::access(path.c_str(), X_OK) == 0; };
  if (name.find('/') != std::string::npos) {
    if (runs(name)) return name;
  } else if (const char* folders = std::getenv("PATH")) {
    for (const auto& folder : absl::StrSplit(folders, ':')) {
      const std::string path = std::string(folder) + "/" + name;
      if (runs(path)) return path;
    }
  }
  return CannotStart(absl::StatusCode::kNotFound, name, "there is no such program");
}

/// Between fork and exec only async-signal-safe calls are allowed: no allocation, no locks.
[[noreturn]] void BecomeProgram(const char* program, char** arguments, const char* folder,
                                int output, pid_t parent) {
  // A program inherits blocked and ignored signals. The node blocks SIGTERM in all threads, so
  // without this the program would never see the SIGTERM of Tend.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // The parent died before prctl took effect.
  setpriority(PRIO_PROCESS, 0, kLowestPriority);
  const sched_param parameters{};
  sched_setscheduler(0, SCHED_IDLE, &parameters);
  const int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  [[maybe_unused]] const auto scored = write(score, kFirstToGo.data(), kFirstToGo.size());
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  // Libraries open files without O_CLOEXEC. The program must not hold the node's sockets and
  // devices open.
  syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
  if (chdir(folder) == 0) execv(program, arguments);
  constexpr std::string_view kFailed = "the program cannot be run\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kFailed.data(), kFailed.size());
  _exit(127);
}

}  // namespace

absl::StatusOr<LowPriorityChild> LowPriorityChild::Spawn(const std::vector<std::string>& command,
                                                         const std::string& folder) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::string found, FindProgram(command.front()));
  std::error_code error;
  const std::string program = fs::absolute(found, error).string();  // It starts in another folder.
  fs::create_directories(folder, error);
  if (error) {
    return CannotStart(absl::StatusCode::kFailedPrecondition, program,
                       folder + ": " + error.message());
  }
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  std::array<int, 2> output{};
  const auto exhausted = [&] {
    return CannotStart(absl::StatusCode::kResourceExhausted, program, std::strerror(errno));
  };
  if (::pipe2(output.data(), O_CLOEXEC) != 0) return exhausted();
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) BecomeProgram(program.c_str(), arguments.data(), folder.c_str(), output[1], parent);
  // With a writer of its own the parent would never see the end of the output.
  ::close(output[1]);
  if (pid < 0) {
    const absl::Status failed = exhausted();
    ::close(output[0]);
    return failed;
  }
  ::setpgid(pid, pid);  // Parent and child both do it, so it is done whichever runs first.
  ::fcntl(output[0], F_SETFL, O_NONBLOCK);
  const int pid_fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U));
  if (pid_fd < 0) {
    const absl::Status failed = exhausted();
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    ::close(output[0]);
    return failed;
  }
  return LowPriorityChild(pid, pid_fd, output[0], folder);
}

LowPriorityChild::LowPriorityChild(LowPriorityChild&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pid_fd_(std::exchange(other.pid_fd_, -1)),
      output_(std::exchange(other.output_, -1)),
      log_(std::exchange(other.log_, -1)),
      folder_(std::move(other.folder_)) {}

LowPriorityChild::~LowPriorityChild() {
  for (const int fd : {pid_fd_, output_, log_}) {
    if (fd >= 0) ::close(fd);
  }
}

void LowPriorityChild::Log() {
  std::array<char, 16'384> bytes{};
  ssize_t count = 0;
  while ((count = ::read(output_, bytes.data(), bytes.size())) > 0) {
    const std::string path = folder_ + "/log";
    struct stat written {};
    if (log_ >= 0 && (::fstat(log_, &written) != 0 || written.st_size + count > kLogBytes)) {
      ::close(std::exchange(log_, -1));
      ::rename(path.c_str(), (path + ".old").c_str());
    }
    if (log_ < 0) log_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    // A log that cannot be written does not stop the work.
    [[maybe_unused]] const auto ignored =
        ::write(log_, bytes.data(), static_cast<std::size_t>(count));
  }
  if (count == 0) ::close(std::exchange(output_, -1));  // End of file: all writers are gone.
}

// Logs until the child is dead (true), or until `wake_fd` is readable or `until` has come (false).
bool LowPriorityChild::WaitAndLog(int wake_fd, std::optional<base::MonotonicTime> until) {
  base::Clock& clock = base::SystemClock();  // Not injected: poll and processes use real time.
  while (true) {
    // poll skips negative descriptors: `output_` after its end, and `wake_fd` when there is none.
    std::array<pollfd, 3> fds = {
        {{pid_fd_, POLLIN, 0}, {output_, POLLIN, 0}, {wake_fd, POLLIN, 0}}};
    int timeout = -1;
    if (until.has_value()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - clock.Now());
      timeout = static_cast<int>(std::max<std::int64_t>(0, left.count()));
    }
    const int ready = ::poll(fds.data(), fds.size(), timeout);
    if (ready < 0) continue;  // A signal; there is no other reason.
    // The output comes first, so that the last words of a child that has ended are in the log.
    if (fds[1].revents != 0) Log();
    if (fds[0].revents != 0) return true;
    if (fds[2].revents != 0 || ready == 0) return false;
  }
}

int LowPriorityChild::Tend(int wake_fd) {
  if (!WaitAndLog(wake_fd, std::nullopt)) {
    // Ending takes processor time, for which the lowest priority may wait long, so the priority is
    // raised first. Without the privilege to do so these calls fail, which is no harm.
    const sched_param parameters{};
    ::sched_setscheduler(pid_, SCHED_OTHER, &parameters);
    ::setpriority(PRIO_PGRP, static_cast<id_t>(pid_), 0);
    ::kill(-pid_, SIGTERM);
    if (!WaitAndLog(-1, base::SystemClock().Now() + kTermLimit)) {
      ::kill(-pid_, SIGKILL);
      WaitAndLog(-1, std::nullopt);
    }
  }
  // Kills what is left of the group. The child is not reaped yet, so no other process group can
  // have its number.
  ::kill(-pid_, SIGKILL);
  if (output_ >= 0) Log();
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace onepiece::instance
