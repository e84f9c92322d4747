#include "cluster/fabric/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
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
//
// Errors: INTERNAL when the process cannot be looked at, which does not mean that it is dead.
absl::StatusOr<std::uint64_t> StartTime(std::int32_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::array<char, 1024> line{};
  const ssize_t size = fd < 0 ? -1 : read(fd, line.data(), line.size());
  const int error = errno;
  if (fd >= 0) close(fd);
  if (size < 0 && (error == ENOENT || error == ESRCH)) return 0;
  if (size < 0) {
    return base::MakeError(absl::StatusCode::kInternal, "PROC_FAILED",
                           path + ": " + std::strerror(error));
  }
  const std::string text(line.data(), static_cast<std::size_t>(size));
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  std::uint64_t start_time = 0;
  fields >> start_time;
  return start_time;
}

// Identifies one boot and one process-id namespace. A process id means nothing outside of both.
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

PeerIdentity ReadSelf() {
  const std::int32_t pid = getpid();
  return {.host = HostIdentity(), .pid = pid, .start_time = StartTime(pid).value_or(0)};
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
    // The descriptor is readable once the last thread has gone. From then on the process makes no
    // store.
    pollfd poll_fd{.fd = fd_, .events = POLLIN, .revents = 0};
    return poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & POLLIN) != 0;
  }

 private:
  const int fd_;
};

}  // namespace

PeerIdentity SelfIdentity() {
  // The identity is kept, because later there may be no descriptor left to read it with. A forked
  // child is another process.
  static const PeerIdentity first = ReadSelf();
  return getpid() == first.pid ? first : ReadSelf();
}

absl::StatusOr<std::unique_ptr<ProcessWatch>> WatchProcess(const PeerIdentity& identity) {
  if (identity.host != SelfIdentity().host) return std::make_unique<FixedWatch>(false);
  const int fd = identity.pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, identity.pid, 0)) : -1;
  if (fd < 0) {
    // Pid 0 stands for nobody.
    if (identity.pid <= 0 || errno == ESRCH) return std::make_unique<FixedWatch>(true);
    return base::MakeError(absl::StatusCode::kInternal, "PIDFD_FAILED",
                           std::string("pidfd_open: ") + std::strerror(errno));
  }
  auto watch = std::make_unique<PidfdWatch>(fd);
  // The descriptor pins the process. A different start time means that the id was reused before
  // that.
  ONEPIECE_ASSIGN_OR_RETURN(const std::uint64_t start_time, StartTime(identity.pid));
  if (start_time != identity.start_time) return std::make_unique<FixedWatch>(true);
  return watch;
}

absl::StatusOr<std::unique_ptr<ProcessWatch>> WatchLivingPeer(const PeerIdentity& identity) {
  ONEPIECE_ASSIGN_OR_RETURN(auto watch, WatchProcess(identity));
  if (watch->IsDead()) {
    return base::MakeError(absl::StatusCode::kUnavailable, "PEER_GONE",
                           "the peer's process is dead");
  }
  return watch;
}

}  // namespace onepiece::fabric
