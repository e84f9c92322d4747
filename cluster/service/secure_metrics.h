// The metrics endpoint of a node on addresses that others can reach: HTTPS, and only for those who
// may read (docs/security.md, "Metrics"). On loopback addresses Metrics::Serve() has the plain one.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace onepiece::rpc {
class Door;
}
namespace onepiece::telemetry {
class Metrics;
}

namespace onepiece::service {

/// Serves GET https://ADDRESS/metrics with TLS 1.3 and the node's certificate, to the cluster's
/// nodes and to principals with the scope read. A principal shows a certificate, or a token as
/// "Authorization: Bearer …". Others get 401 or 403 with the reason as text.
///
/// The identity's files are read again for each connection, so a renewed certificate and another CA
/// need no restart. A few threads answer; while all are busy, connections wait in the kernel.
///
/// Ownership: borrows the metrics and the door, which outlive it.
/// Threading: thread-safe.
/// Blocking: the destructor waits for requests in progress, which take at most a few seconds.
class SecureMetrics {
 public:
  /// `address` is host:port; the system chooses a port for 0. `identity` is the node's identity
  /// folder.
  ///
  /// Errors: UNAVAILABLE (CANNOT_LISTEN).
  static absl::StatusOr<std::unique_ptr<SecureMetrics>> Serve(const std::string& address,
                                                              const std::string& identity,
                                                              telemetry::Metrics& metrics,
                                                              const rpc::Door& door);
  ~SecureMetrics();
  SecureMetrics(const SecureMetrics&) = delete;
  SecureMetrics& operator=(const SecureMetrics&) = delete;

  /// host:port.
  [[nodiscard]] const std::string& address() const;

 private:
  struct Impl;
  explicit SecureMetrics(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace onepiece::service
