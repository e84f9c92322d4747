#include "cluster/rpc/connection_limits.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace onepiece::rpc {
namespace {

// An address at its limit may come 10,000 times a second, and a look at all that it has open costs
// a system call for each.
constexpr base::Duration kLookPeriod = std::chrono::milliseconds(100);
constexpr base::Duration kSayPeriod = std::chrono::seconds(10);
constexpr std::size_t kPrefixBytes = 8;  // Of an IPv6 address.

Origin OriginOfV4(const in_addr& address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &address, text.data(), text.size());
  return {.name = text.data(), .loopback = (ntohl(address.s_addr) >> 24) == 127};
}

}  // namespace

Origin OriginOf(const sockaddr_storage& peer) {
  if (peer.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &peer, sizeof(v4));
    return OriginOfV4(v4.sin_addr);
  }
  if (peer.ss_family != AF_INET6) return {.name = "local", .loopback = true};
  sockaddr_in6 v6{};
  std::memcpy(&v6, &peer, sizeof(v6));
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    in_addr mapped{};
    std::memcpy(&mapped, &v6.sin6_addr.s6_addr[12], sizeof(mapped));
    return OriginOfV4(mapped);
  }
  const bool loopback = IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
  std::fill(std::begin(v6.sin6_addr.s6_addr) + kPrefixBytes, std::end(v6.sin6_addr.s6_addr), 0);
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  return {.name = std::string(text.data()) + "/64", .loopback = loopback};
}

int ConnectionLimits::ThreeQuartersOfAll() {
  rlimit limit{};
  constexpr rlim_t kMost = 1 << 30;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMost;
  return static_cast<int>(std::min(limit.rlim_cur, kMost) / 4 * 3);
}

bool ConnectionLimits::IsSocket(const Socket& socket) {
  struct stat now {};
  return fstat(socket.fd, &now) == 0 && now.st_ino == socket.inode && S_ISSOCK(now.st_mode);
}

void ConnectionLimits::Follow(const v1::CallerLimits& limits) {
  const base::MutexLock lock(mutex_);
  connections_ = limits.connections();
  connections_per_s_ = limits.connections_per_s();
}

ConnectionLimits::Answer ConnectionLimits::Admit(const Origin& origin, const Socket& socket) {
  const base::MonotonicTime now = clock_.Now();
  const base::MutexLock lock(mutex_);
  // Whoever had this descriptor has ended, or it could not have been given again.
  Forget(socket.fd);
  const bool most_counts = connections_ > 0 || !origin.loopback;
  const bool rate_counts = connections_per_s_ > 0 || !origin.loopback;
  const int most = connections_ > 0 ? connections_ : kConnections;
  const double per_s = connections_per_s_ > 0 ? connections_per_s_ : kConnectionsPerS;
  Holder& holder = origins_.Of(origin.name, now);
  const bool has_own = &holder != &origins_.others();
  if (socket.fd >= options_.max_descriptor) return Refuse(holder, Verdict::kNoRoom, now);
  if (!most_counts && !rate_counts) return {};
  // What may be saved up is a second's worth.
  if (rate_counts && holder.bucket.Take(per_s, per_s, now) > base::Duration::zero())
    return Refuse(holder, Verdict::kTooOften, now);
  const auto is_full = [&] { return holder.open.size() >= static_cast<std::size_t>(most); };
  if (most_counts && is_full() && now >= holder.next_look) {
    holder.next_look = now + kLookPeriod;
    DropEnded(holder);
  }
  if (most_counts && is_full()) return Refuse(holder, Verdict::kTooMany, now);
  holder.open.insert(socket.fd);
  held_[socket.fd] = {.inode = socket.inode, .origin = has_own ? origin.name : ""};
  return {};
}

ConnectionLimits::Answer ConnectionLimits::Refuse(Holder& holder, Verdict verdict,
                                                  base::MonotonicTime now) {
  ++refused_[static_cast<std::size_t>(verdict)];
  const bool say = now >= holder.next_say;
  if (say) holder.next_say = now + kSayPeriod;
  return {.verdict = verdict, .say = say};
}

void ConnectionLimits::DropEnded(Holder& holder) {
  std::erase_if(holder.open, [this](int fd) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto held = held_.find(fd);
    if (held == held_.end()) return true;
    if (options_.is_open({.fd = fd, .inode = held->second.inode})) return false;
    held_.erase(held);
    return true;
  });
}

void ConnectionLimits::Forget(int fd) {
  const auto held = held_.find(fd);
  if (held == held_.end()) return;
  const std::string& origin = held->second.origin;
  // An entry with open connections is never swept.
  Holder* holder = origin.empty() ? &origins_.others() : origins_.Find(origin);
  if (holder != nullptr) holder->open.erase(fd);
  held_.erase(held);
}

}  // namespace onepiece::rpc
