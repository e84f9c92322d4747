#include "cluster/rpc/acceptor.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cluster/base/status.h"

namespace onepiece::rpc {
namespace {

constexpr int kBacklog = 4096;        // The system's own limit (somaxconn) may be lower.
constexpr int kAtOnce = 64;           // Of one socket, before the others have their turn.
constexpr int kNoDescriptorMs = 100;  // How long to wait when the process has no descriptor left.
constexpr base::Duration kSayFailurePeriod = std::chrono::seconds(10);

absl::Status CannotListen(const std::string& why) { return absl::UnavailableError(why); }

bool IsWildcard(const addrinfo& where) {
  if (where.ai_family == AF_INET)
    return reinterpret_cast<const sockaddr_in*>(where.ai_addr)->sin_addr.s_addr == INADDR_ANY;
  return where.ai_family == AF_INET6 &&
         IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(where.ai_addr)->sin6_addr);
}

std::uint16_t& PortIn(sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(address).sin_port;
}

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(PortIn(address));
}

void SetOption(int fd, int level, int name, int value) {
  (void)setsockopt(fd, level, name, &value, sizeof(value));
}

/// Returns a listening socket, or -1 with errno.
int ListenOn(sockaddr_storage address, socklen_t length, bool both_families) {
  const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  // Without SO_REUSEPORT two servers never share a port. This lets one follow another quickly.
  SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.ss_family == AF_INET6)
    SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, both_families ? 0 : 1);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
      listen(fd, kBacklog) == 0) {
    return fd;
  }
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

/// Returns a socket that listens on every address of both families, or -1 with errno: a system may
/// have no IPv6.
int ListenEverywhere(int port) {
  sockaddr_storage any{};
  any.ss_family = AF_INET6;
  PortIn(any) = htons(static_cast<std::uint16_t>(port));
  return ListenOn(any, sizeof(sockaddr_in6), true);
}

/// Opens one socket for each address, all with the port of the first.
std::vector<int> ListenOnAll(const addrinfo* found, std::string& why) {
  std::vector<int> listeners;
  int port = 0;
  for (const addrinfo* where = found; where != nullptr; where = where->ai_next) {
    sockaddr_storage address{};
    std::memcpy(&address, where->ai_addr, where->ai_addrlen);
    if (port != 0) PortIn(address) = htons(static_cast<std::uint16_t>(port));
    int fd = -1;
    if (IsWildcard(*where)) fd = ListenEverywhere(ntohs(PortIn(address)));
    const bool everywhere = fd >= 0;
    // A taken port is taken; only a system without IPv6 deserves a second try.
    if (fd < 0 && !(IsWildcard(*where) && errno == EADDRINUSE))
      fd = ListenOn(address, where->ai_addrlen, false);
    if (fd < 0) {
      why = std::strerror(errno);
      continue;
    }
    listeners.push_back(fd);
    if (port == 0) port = PortOf(fd);
    if (everywhere) break;
  }
  return listeners;
}

bool IsOutOfDescriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(const std::string& host,
                                                           const std::string& port,
                                                           ConnectionLimits& limits) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0)
    return CannotListen(gai_strerror(error));
  std::string why = "refused";
  std::vector<int> listeners = ListenOnAll(found, why);
  freeaddrinfo(found);
  if (listeners.empty()) return CannotListen(why);
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  std::unique_ptr<Acceptor> acceptor(new Acceptor(limits, wake));
  acceptor->listeners_ = std::move(listeners);
  acceptor->port_ = PortOf(acceptor->listeners_.front());
  if (wake < 0) return CannotListen(std::strerror(errno));
  return acceptor;
}

Acceptor::~Acceptor() {
  Stop();
  if (wake_ >= 0) close(wake_);
}

void Acceptor::Start(Handle handle, base::Duration silence) {
  handle_ = std::move(handle);
  silence_ms_ = static_cast<int>(silence / std::chrono::milliseconds(1));
  thread_ = std::thread([this] { Run(); });
}

void Acceptor::Stop() {
  if (thread_.joinable()) {
    const std::uint64_t one = 1;
    (void)!write(wake_, &one, sizeof(one));
    thread_.join();
  }
  for (const int fd : listeners_) close(fd);
  listeners_.clear();
}

void Acceptor::Run() {
  bool has_descriptors = true;
  for (;;) {
    std::vector<pollfd> waiting{{.fd = wake_, .events = POLLIN, .revents = 0}};
    // What waits to be accepted would wake a thread again and again that has no descriptor for it.
    for (std::size_t i = 0; has_descriptors && i < listeners_.size(); ++i)
      waiting.push_back({.fd = listeners_[i], .events = POLLIN, .revents = 0});
    const int ready = poll(waiting.data(), waiting.size(), has_descriptors ? -1 : kNoDescriptorMs);
    if (ready < 0 && errno != EINTR) return;
    if (waiting.front().revents != 0) return;
    has_descriptors = true;
    for (std::size_t i = 1; ready > 0 && i < waiting.size(); ++i) {
      if (waiting[i].revents != 0) has_descriptors &= AcceptSome(waiting[i].fd);
    }
  }
}

bool Acceptor::AcceptSome(int listener) {
  for (int i = 0; i < kAtOnce; ++i) {
    sockaddr_storage peer{};
    socklen_t length = sizeof(peer);
    const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&peer), &length,
                           SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      Take(listener, fd, peer);
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
    if (!IsOutOfDescriptors(errno)) continue;  // That connection has ended already.
    const std::string why = std::strerror(errno);
    if (const auto now = base::SystemClock().Now(); now >= next_say_) {
      next_say_ = now + kSayFailurePeriod;
      spdlog::error("op=accept detail=\"cannot accept connections: {}\"", why);
    }
    return false;
  }
  return true;
}

void Acceptor::Take(int listener, int fd, const sockaddr_storage& peer) {
  struct stat about {};
  if (fstat(fd, &about) != 0) {
    close(fd);
    return;
  }
  using Verdict = ConnectionLimits::Verdict;
  const Origin origin = OriginOf(peer);
  const auto [verdict, say] = limits_.Admit(origin, {.fd = fd, .inode = about.st_ino});
  if (verdict != Verdict::kTaken) {
    close(fd);
    if (!say) return;
    spdlog::warn("op=refuse_connection from={} reason={}", origin.name,
                 verdict == Verdict::kTooMany  ? "TOO_MANY_CONNECTIONS"
                 : verdict == Verdict::kNoRoom ? "NO_DESCRIPTORS"
                                               : "TOO_MANY_CONNECTIONS_PER_S");
    return;
  }
  // As gRPC sets sockets of its own.
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (silence_ms_ > 0) SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, silence_ms_);
  handle_({.listener = listener, .fd = fd});
}

}  // namespace onepiece::rpc
