#include "cluster/local/ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "cluster/base/ids.h"
#include "cluster/base/status.h"

namespace onepiece::local {
namespace {

// Linux gives ports from 32768 on to outgoing connections (ip_local_port_range). None of them takes
// a lower port between this look and the bind of the process that gets it.
constexpr int kFirstPort = 20000, kEndPort = 32768;
constexpr int kTries = 500;

bool IsFree(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  const bool free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return free;
}

}  // namespace

absl::StatusOr<std::vector<int>> FreePorts(int count) {
  std::vector<int> ports;
  for (int i = 0; i < kTries && static_cast<int>(ports.size()) < count; ++i) {
    const int port = kFirstPort + static_cast<int>(base::RandomU64() % (kEndPort - kFirstPort));
    if (std::find(ports.begin(), ports.end(), port) == ports.end() && IsFree(port))
      ports.push_back(port);
  }
  if (static_cast<int>(ports.size()) == count) return ports;
  return base::MakeError(absl::StatusCode::kResourceExhausted, "NO_PORTS",
                         "no free port of 127.0.0.1 between " + std::to_string(kFirstPort) +
                             " and " + std::to_string(kEndPort - 1));
}

}  // namespace onepiece::local
