#include "cluster/fabric/process.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "cluster/base/status.h"

namespace onepiece::fabric {
namespace {

// Field 22 of /proc/PID/stat; 0 when there is no such process. The second field, the program's
// name, may itself hold spaces and parentheses, so counting starts behind its last ')'.
std::uint64_t StartTime(std::int32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  std::uint64_t start_time = 0;
  fields >> start_time;
  return start_time;
}

// One boot and one process-id namespace: only within both does a process id mean anything.
std::uint64_t HostIdentity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string digits;
  for (char c; file.get(c);) {
    if (std::isxdigit(static_cast<unsigned char>(c))) digits.push_back(c);
  }
  struct stat pid_namespace {};
  if (stat("/proc/self/ns/pid", &pid_namespace) != 0) pid_namespace.st_ino = 0;
  return std::strtoull(digits.substr(0, 16).c_str(), nullptr, 16) ^ pid_namespace.st_ino;
}

class FixedWatch final : public ProcessWatch {
 public:
  explicit FixedWatch(bool dead) : dead_(dead) {}
  bool IsDead() const override { return dead_; }

 private:
  const bool dead_;
};

class PidfdWatch final : public ProcessWatch {
 public:
  explicit PidfdWatch(int fd) : fd_(fd) {}
  ~PidfdWatch() override { close(fd_); }
  PidfdWatch(const PidfdWatch&) = delete;
  PidfdWatch& operator=(const PidfdWatch&) = delete;

  bool IsDead() const override {
    // Readable once the last thread has gone: from then on none of its stores can happen any more.
    pollfd poll_fd{.fd = fd_, .events = POLLIN, .revents = 0};
    return poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & POLLIN) != 0;
  }

 private:
  const int fd_;
};

}  // namespace

PeerIdentity SelfIdentity() {
  static const std::uint64_t host = HostIdentity();
  const std::int32_t pid = getpid();
  return {.host = host, .pid = pid, .start_time = StartTime(pid)};
}

absl::StatusOr<std::unique_ptr<ProcessWatch>> WatchProcess(const PeerIdentity& identity) {
  if (identity.host != SelfIdentity().host) return std::make_unique<FixedWatch>(false);
  const int fd = identity.pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, identity.pid, 0)) : -1;
  if (fd < 0) {
    if (identity.pid <= 0 || errno == ESRCH) return std::make_unique<FixedWatch>(true);
    return base::MakeError(absl::StatusCode::kInternal, "PIDFD_FAILED",
                           std::string("pidfd_open: ") + std::strerror(errno));
  }
  auto watch = std::make_unique<PidfdWatch>(fd);
  // The descriptor pins the process; a different start time means that the id had been reused
  // before.
  if (StartTime(identity.pid) != identity.start_time) return std::make_unique<FixedWatch>(true);
  return watch;
}

}  // namespace onepiece::fabric
