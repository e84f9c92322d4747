#include "cluster/fabric/shm/process.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
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

class DeadPeer final : public Peer {
 public:
  bool IsDead() const override { return true; }
};

class PidfdPeer final : public Peer {
 public:
  explicit PidfdPeer(int fd) : fd_(fd) {}
  ~PidfdPeer() override { close(fd_); }
  PidfdPeer(const PidfdPeer&) = delete;
  PidfdPeer& operator=(const PidfdPeer&) = delete;

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
  const std::int32_t pid = getpid();
  return {.pid = pid, .start_time = StartTime(pid)};
}

absl::StatusOr<std::unique_ptr<Peer>> WatchProcess(const PeerIdentity& identity) {
  const int fd = identity.pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, identity.pid, 0)) : -1;
  if (fd < 0) {
    if (identity.pid <= 0 || errno == ESRCH) return std::make_unique<DeadPeer>();
    return base::MakeError(absl::StatusCode::kInternal, "PIDFD_FAILED",
                           std::string("pidfd_open: ") + std::strerror(errno));
  }
  auto peer = std::make_unique<PidfdPeer>(fd);
  // The descriptor pins the process; a different start time means that the id had been reused
  // before.
  if (StartTime(identity.pid) != identity.start_time) return std::make_unique<DeadPeer>();
  return peer;
}

}  // namespace onepiece::fabric
