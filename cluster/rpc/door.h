// The one door of a server: every call passes it before its handler runs. It finds out who calls,
// and refuses who may not (docs/security.md, "The door").
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/rpc/access_rules.h"
#include "cluster/rpc/caller.h"
#include "onepiece/v1/identity.pb.h"

namespace grpc {
class AuthMetadataProcessor;
class ServerContextBase;
namespace experimental {
class ServerInterceptorFactoryInterface;
}
}  // namespace grpc

namespace onepiece::rpc {

struct Limits;

/// Judges the calls of one process's server. TLS has looked at the caller's certificate when the
/// connection began (tls.h). The door looks at each call: whether the certificate has ended or was
/// revoked since, whose token it brings, whether that caller calls too often, and whether it may
/// call this method.
///
/// Its refusals reach the client as "REASON: message" without further details, because gRPC carries
/// no more from there. FromGrpc() makes the reason of it again.
///
/// Ownership: borrows the clock, which outlives it. It outlives the server.
/// Threading: thread-safe.
/// Blocking: never.
class Door {
 public:
  /// `cluster` is the id that the server's own certificate names.
  Door(std::string cluster, const base::Clock& clock);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  [[nodiscard]] const std::string& cluster() const { return cluster_; }
  /// Goes by this table from now on, unless it is older than the present one. Before the first
  /// table nobody can show a token, and no certificate counts as revoked.
  void Take(const v1::IdentityTable& table);
  /// The epoch of the present table; 0 before the first.
  [[nodiscard]] std::uint64_t epoch() const { return epoch_.load(); }

  /// The tenants that have a quota. None before the first table.
  [[nodiscard]] std::vector<v1::Tenant> Tenants() const;

  /// Finds out who calls. `certificate` is the PEM that TLS has verified, or empty; `authorization`
  /// the call's metadata of that name, or empty. A certificate counts before a token.
  ///
  /// Errors: UNAUTHENTICATED (CERTIFICATE_EXPIRED, CERTIFICATE_REVOKED, BAD_TOKEN, WRONG_TOKEN,
  /// TOKEN_EXPIRED, NO_SUBJECT), UNAVAILABLE (NO_TABLE: this node has not learnt the tokens yet).
  [[nodiscard]] absl::StatusOr<Caller> Identify(std::string_view certificate,
                                                std::string_view authorization) const;
  /// Says whether `caller` may call `path`.
  ///
  /// Errors: those of CheckAccess(), UNIMPLEMENTED (METHOD_UNKNOWN).
  [[nodiscard]] absl::Status Check(std::string_view path, const Caller& caller) const;
  /// Whether the method answers with a stream. False for methods that there are not.
  [[nodiscard]] bool IsStream(std::string_view path) const;
  /// Who makes the call of this context, which has passed the door. Nobody when the caller's
  /// certificate or token ended meanwhile.
  [[nodiscard]] Caller CallerOf(const grpc::ServerContextBase& context) const;

  /// What callers and connections may do. The defaults hold until the cluster's limits come.
  [[nodiscard]] Limits& limits() { return *limits_; }

  // For rpc::Server:

  /// Sets the rules. REQUIRES: before the first call.
  void SetRules(AccessRules rules) { rules_ = std::move(rules); }
  /// What gRPC asks about each call. It borrows this door.
  [[nodiscard]] std::shared_ptr<grpc::AuthMetadataProcessor> MakeProcessor();
  /// Counts the calls that are under way, and ends those whose answer is not taken for
  /// `answer_limit`. It borrows this door.
  [[nodiscard]] std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeCounter(
      base::Duration answer_limit);

 private:
  struct Table;
  struct Known;
  absl::StatusOr<std::shared_ptr<const Known>> Know(std::string_view certificate) const;
  [[nodiscard]] absl::StatusOr<Caller> FromToken(std::string_view authorization) const;
  [[nodiscard]] std::shared_ptr<const Table> table() const;

  const std::string cluster_;
  const base::Clock& clock_;
  AccessRules rules_;
  std::atomic<std::uint64_t> epoch_{0};
  mutable base::Mutex mutex_;
  std::shared_ptr<const Table> table_ ABSL_GUARDED_BY(mutex_);
  struct Cache;
  const std::unique_ptr<Cache> cache_;  // Of certificates, which are costly to parse.
  const std::unique_ptr<Limits> limits_;
};

/// Who makes a call of a server that may be insecure: `door` is null then.
///
/// Threading: thread-safe.
Caller CallerOf(const Door* door, const grpc::ServerContextBase& context);

}  // namespace onepiece::rpc
