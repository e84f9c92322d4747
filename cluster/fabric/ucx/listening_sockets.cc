#include "cluster/fabric/ucx/listening_sockets.h"

#include <dirent.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace onepiece::fabric {
namespace {

std::optional<ListeningSocket> Look(int fd) {
  int listens = 0;
  socklen_t size = sizeof listens;
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) return {};
  ListeningSocket socket{.fd = fd};
  size = sizeof socket.cookie;
  if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &socket.cookie, &size) != 0) return {};
  sockaddr_storage address{};
  size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  if (address.ss_family == AF_INET) {
    socket.port = ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
  } else if (address.ss_family == AF_INET6) {
    socket.port = ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  } else {
    return {};
  }
  return socket;
}

constexpr std::uint32_t kEverything = 0xffffffff;
// The IP header, wherever it begins.
constexpr std::uint32_t kIpHeader = static_cast<std::uint32_t>(SKF_NET_OFF);

// Instructions that end the program with "take it" when the packet comes from `source`, and go on
// behind themselves when not.
void AppendSource(std::vector<sock_filter>& program, const std::string& source) {
  const bool six = source.size() == 16;
  const std::uint32_t address_at = kIpHeader + (six ? 8 : 12);
  const auto words = static_cast<std::uint8_t>(source.size() / 4);
  program.push_back(BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kIpHeader));
  program.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf0));  // The version.
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, six ? 0x60u : 0x40u, 0,
                             static_cast<std::uint8_t>(2 * words + 1)));
  for (std::uint8_t i = 0; i < words; ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, source.data() + 4 * i, sizeof word);
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, address_at + 4u * i));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(word), 0,
                               static_cast<std::uint8_t>(2 * (words - 1 - i) + 1)));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, kEverything));
}

void Attach(const ListeningSocket& socket, std::vector<sock_filter>& instructions) {
  if (Look(socket.fd) != socket) return;
  const sock_fprog program{.len = static_cast<unsigned short>(instructions.size()),
                           .filter = instructions.data()};
  (void)setsockopt(socket.fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

}  // namespace

std::vector<std::string> AddressesOfThisHost() {
  std::vector<std::string> addresses;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return addresses;
  const auto add = [&addresses](const void* address, std::size_t size) {
    std::string bytes(static_cast<const char*>(address), size);
    if (std::ranges::find(addresses, bytes) == addresses.end()) addresses.push_back(bytes);
  };
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    if (at->ifa_addr->sa_family == AF_INET) {
      add(&reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr, 4);
    } else if (at->ifa_addr->sa_family == AF_INET6) {
      add(&reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr, 16);
    }
  }
  freeifaddrs(all);
  return addresses;
}

std::vector<ListeningSocket> ListeningSocketsOfThisProcess() {
  std::vector<ListeningSocket> sockets;
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return sockets;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] == '.') continue;
    if (const auto socket = Look(std::atoi(entry->d_name))) sockets.push_back(*socket);
  }
  closedir(folder);
  return sockets;
}

void Deafen(const ListeningSocket& socket) {
  std::vector<sock_filter> nothing{BPF_STMT(BPF_RET | BPF_K, 0)};
  Attach(socket, nothing);
}

void AdmitOnly(const ListeningSocket& socket, const std::vector<std::string>& sources) {
  std::vector<sock_filter> program;
  for (const std::string& source : sources) AppendSource(program, source);
  program.push_back(BPF_STMT(BPF_RET | BPF_K, 0));
  Attach(socket, program);
}

}  // namespace onepiece::fabric
