// What somebody may try at a port of the cluster who should get nothing there.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace grpc {
class ChannelCredentials;
}

namespace onepiece::e2e {

using Credentials = std::shared_ptr<grpc::ChannelCredentials>;

/// TLS that believes every server and shows nothing. `any_ca`: PEM of some CA.
Credentials Anybody(const std::string& any_ca);

/// Where there is no connection, one attack is as good as all.
inline constexpr std::size_t kAllAttacks = std::numeric_limits<std::size_t>::max();

struct Tried {
  std::string what;  ///< "read a prompt at 127.0.0.1:7000".
  absl::Status status;
};

/// Tries the first `count` attacks at each address. `uid` is a job's.
///
/// Threading: thread-safe.
/// Blocking: at most 5 s per attack, scaled.
std::vector<Tried> TryAttacks(const std::vector<std::string>& addresses,
                              const Credentials& credentials, const std::string& uid,
                              std::size_t count = kAllAttacks);

}  // namespace onepiece::e2e
