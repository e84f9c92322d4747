// The listening sockets of this process, which a library may have opened. Internal to the backend.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace onepiece::fabric {

/// A value type.
struct ListeningSocket {
  int fd = -1;
  std::uint64_t cookie = 0;  ///< The kernel's name for the socket; never used again.
  std::uint16_t port = 0;
  friend bool operator==(const ListeningSocket&, const ListeningSocket&) = default;
};

/// Those of TCP. Empty where /proc is not mounted.
std::vector<ListeningSocket> ListeningSocketsOfThisProcess();

/// IP addresses of this host, 4 or 16 bytes each, in network order.
std::vector<std::string> AddressesOfThisHost();

/// Lets the kernel drop whatever does not come from one of `sources` (4 or 16 bytes each). The
/// connections that the socket accepts keep that filter. Does nothing when `socket` has been
/// closed.
void AdmitOnly(const ListeningSocket& socket, const std::vector<std::string>& sources);

/// Lets the kernel drop whatever arrives at the socket, so that it accepts nobody any more.
/// Connections that were accepted go on. Shutting the socket down would wake its owner, and UCX
/// then closes the descriptor but keeps its number. Does nothing when `socket` has been closed.
void Deafen(const ListeningSocket& socket);

}  // namespace onepiece::fabric
