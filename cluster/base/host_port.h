// Addresses as people write them.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace onepiece::base {

/// Both as text; the host without the brackets of an IPv6 address. A value.
struct HostPort {
  std::string host;
  std::string port;
};

/// Splits "host:port" or "[v6]:port". Nothing when a part is missing. Says nothing about whether
/// the host exists or the port is a number.
///
/// Threading: thread-safe.
inline std::optional<HostPort> SplitHostPort(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  if (host.empty() || colon + 1 == address.size()) return std::nullopt;
  return HostPort{std::move(host), address.substr(colon + 1)};
}

}  // namespace onepiece::base
