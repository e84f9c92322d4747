// Keeps a node's identity fresh: the table by which its door judges callers, the CAs that it
// believes, and its own certificate (docs/security.md). Internal to cluster/node.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/identity/identity_folder.h"
#include "cluster/node/backoff.h"
#include "cluster/node/scrape.h"
#include "onepiece/v1/identity.pb.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::rpc {
class Door;
class Replicas;
}  // namespace onepiece::rpc
namespace onepiece::telemetry {
class Metrics;
}
namespace onepiece::node {

/// The two calls to the NodeManager. They end early when the stop is requested.
struct IdentityCalls {
  std::function<absl::StatusOr<v1::IdentityTable>(const std::stop_token&)> get_table;
  std::function<absl::StatusOr<v1::RenewResponse>(const std::stop_token&, const v1::RenewRequest&)>
      renew;
};

/// The calls over gRPC. Each asks every replica once, for at most `timeout` (scaled).
/// Ownership: borrows `replicas`.
IdentityCalls IdentityCallsTo(rpc::Replicas& replicas, base::Duration timeout);

/// Asks for the table when a report's answer names a newer one, and writes its CAs into ca.pem.
/// Renews the certificate after two thirds of its life, or at once when another CA signs now. It
/// reads the files each time, so what people put there while the program runs counts too.
///
/// All times are wall times, because a certificate's are.
///
/// Ownership: borrows the door, the clock and the metrics, which outlive it; owns a thread.
/// Threading: Hear() and FillIn() from any thread; Step() is the thread's, or a test's without
/// Start().
/// Blocking: the destructor waits for a call under way, which the stop cancels.
class IdentityUpkeep {
 public:
  /// Between two looks at the certificate when nothing is due. Scaled.
  static constexpr base::Duration kLookInterval = std::chrono::minutes(1);

  /// `folder` is that of the node's identity. Empty: it has none, and only the table is kept fresh.
  /// `metrics` may be null.
  IdentityUpkeep(rpc::Door& door, std::string folder, IdentityCalls calls,
                 telemetry::Metrics* metrics, base::Clock& clock);
  ~IdentityUpkeep();
  IdentityUpkeep(const IdentityUpkeep&) = delete;
  IdentityUpkeep& operator=(const IdentityUpkeep&) = delete;

  void Start();
  /// Ends the thread. Idempotent.
  void Stop();
  /// Takes the epoch that the answer to a report names. 0: the NodeManager has no table.
  void Hear(std::uint64_t epoch);
  /// Says in a report which table the node goes by, and which CA signed its certificate.
  void FillIn(v1::ReportNodeRequest& report) const;
  /// Does what is due, and returns how long there is nothing to do unless Hear() brings something.
  base::Duration Step(const std::stop_token& stop);
  /// The table or a certificate could not be got, or a file not be read or written, so many times.
  [[nodiscard]] std::uint64_t failures() const;

 private:
  void Run(const std::stop_token& stop);
  absl::Status RefreshTable(const std::stop_token& stop);
  absl::Status TakeAuthorities(const std::string& pem);
  absl::Status LookAtCertificate(const std::stop_token& stop);
  void NoteSigner(const identity::Certificate& certificate);
  [[nodiscard]] bool IsRenewalDue(const identity::Certificate& certificate) const;
  absl::Status Renew(const std::stop_token& stop, const identity::Certificate& old);
  void NoteFailure(std::string_view what, const absl::Status& status);

  rpc::Door& door_;
  const std::string folder_;
  const identity::IdentityFiles files_;
  const IdentityCalls calls_;
  base::Clock& clock_;
  // Step()'s alone.
  Backoff table_backoff_, renewal_backoff_;
  std::string last_failure_;  // Logged once until it changes.
  std::string signing_;       // Fingerprint of the CA that signs now; empty: unknown.

  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::uint64_t announced_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of the table that the files follow. A NodeManager's door may be ahead, because it reads the
  // state.
  std::uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  bool heard_ ABSL_GUARDED_BY(mutex_) = false;
  // Of the certificate that the files hold: its serial number, who signed it, when it ends.
  std::string serial_ ABSL_GUARDED_BY(mutex_);
  std::string signer_ ABSL_GUARDED_BY(mutex_);
  std::optional<base::WallTime> expires_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t failures_ ABSL_GUARDED_BY(mutex_) = 0;
  std::jthread thread_;
  const ScrapeHook scrape_;  // Reads the members above.
};

}  // namespace onepiece::node
