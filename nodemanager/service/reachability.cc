#include "nodemanager/service/reachability.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/file_descriptor.h"
#include "cluster/base/host_port.h"
#include "cluster/base/status.h"
#include "nodemanager/service/addresses.h"

namespace onepiece::nodemanager {
namespace {

// How long a connection may be silent until it is good. It lets a wrong port show itself: a server
// of another protocol greets, complains about what it gets, or closes.
constexpr base::Duration kSilenceIsGood = std::chrono::milliseconds(50);

// What a client of HTTP/2 begins with, and its empty SETTINGS.
constexpr std::string_view kHello(
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", 33);
// A frame begins with 3 bytes of length, its type, its flags and 4 bytes of stream. A server's
// first one is SETTINGS of stream 0.
constexpr std::size_t kFrameHead = 9, kTypeAt = 3, kStreamAt = 5;
constexpr char kSettings = 4;

struct Target {
  sockaddr_storage address{};
  socklen_t length = 0;
};

// Returns nullopt for a name. Names are not looked up here, because that can take any time.
std::optional<Target> ParseNumeric(const std::string& address) {
  const std::optional<base::HostPort> where = base::SplitHostPort(address);
  if (!where.has_value()) return std::nullopt;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(where->host.c_str(), where->port.c_str(), &hints, &found) != 0)
    return std::nullopt;
  Target target{.length = found->ai_addrlen};
  std::memcpy(&target.address, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return target;
}

// Returns true when `events` have come before `deadline`.
bool Await(int fd, std::int16_t events, base::MonotonicTime deadline) {
  for (;;) {
    const base::Duration left = deadline - base::SystemClock().Now();
    if (left <= base::Duration::zero()) return false;
    pollfd waiting{fd, events, 0};
    const int count = poll(&waiting, 1, static_cast<int>(left / std::chrono::milliseconds(1)) + 1);
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return false;
  }
}

// Returns an empty text, or why not.
std::string Connect(const base::FileDescriptor& socket, const Target& target,
                    base::MonotonicTime deadline) {
  const auto* raw = reinterpret_cast<const sockaddr*>(&target.address);
  if (connect(socket.get(), raw, target.length) == 0) return "";
  if (errno != EINPROGRESS) return std::strerror(errno);
  if (!Await(socket.get(), POLLOUT, deadline)) return "no answer in time";
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? "" : std::strerror(error);
}

// Returns an empty text when who is connected may be a node, or why not. A node with TLS waits for
// its client's first word, so nothing is sent to it and whoever speaks first is something else.
std::string Greet(const base::FileDescriptor& socket, bool tls, base::MonotonicTime deadline) {
  if (!tls && send(socket.get(), kHello.data(), kHello.size(), MSG_NOSIGNAL) < 0)
    return std::strerror(errno);
  std::array<char, kFrameHead> head{};
  std::size_t got = 0;
  while (got < head.size()) {
    if (!Await(socket.get(), POLLIN, deadline)) return "";
    const ssize_t count = recv(socket.get(), head.data() + got, head.size() - got, 0);
    if (count == 0) return "the connection is closed at once";
    if (count < 0) return std::strerror(errno);
    got += static_cast<std::size_t>(count);
  }
  const bool whole =
      std::all_of(head.begin() + kStreamAt, head.end(), [](char c) { return c == 0; });
  return !tls && head[kTypeAt] == kSettings && whole ? ""
                                                     : "something else than a node answers there";
}

absl::Status Dial(const std::string& address, bool tls, base::Duration limit) {
  const base::MonotonicTime begun = base::SystemClock().Now();
  const std::optional<Target> target = ParseNumeric(address);
  if (!target) return Dialling(address, limit).Check();
  const base::FileDescriptor socket(
      ::socket(target->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  std::string why = socket.get() < 0 ? std::strerror(errno) : "";
  if (why.empty()) why = Connect(socket, *target, begun + limit);
  if (why.empty()) {
    const base::MonotonicTime now = base::SystemClock().Now();
    why = Greet(socket, tls, std::min(begun + limit, now + kSilenceIsGood));
  }
  return why.empty() ? absl::OkStatus() : UnreachableAddress(address, limit, why);
}

}  // namespace

bool Reachability::Remembers(const std::string& address) {
  const auto known = reached_.find(address);
  return known != reached_.end() && clock_.Now() - known->second < kRemembered;
}

void Reachability::Remember(const std::string& address) {
  const base::MonotonicTime now = clock_.Now();
  if (reached_.size() >= kMaxRemembered)
    std::erase_if(reached_, [&](const auto& known) { return now - known.second >= kRemembered; });
  if (reached_.size() < kMaxRemembered) reached_[address] = now;
}

absl::Status Reachability::Check(const std::string& address) {
  if (limit_ <= base::Duration::zero()) return absl::OkStatus();
  std::shared_ptr<Attempt> attempt;
  {
    base::MutexLock lock(mutex_);
    if (Remembers(address)) return absl::OkStatus();
    const auto [entry, is_first] = attempts_.try_emplace(address);
    if (!is_first) {
      attempt = entry->second;
      ended_.Wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return attempt->over; });
      return attempt->result;
    }
    attempt = entry->second = std::make_shared<Attempt>();
    ++dialled_;
  }
  absl::Status result = Dial(address, tls_, limit_);
  const base::MutexLock lock(mutex_);
  if (result.ok()) Remember(address);
  attempt->over = true;
  attempt->result = result;
  attempts_.erase(address);
  ended_.NotifyAll();
  return result;
}

std::size_t Reachability::dialled() const {
  const base::MutexLock lock(mutex_);
  return dialled_;
}

}  // namespace onepiece::nodemanager
