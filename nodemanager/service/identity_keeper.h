// What a NodeManager does about identities besides answering calls: it unseals the CA's key, keeps
// its own door up to date, and gives a cluster its first CA. Private to this folder.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/identity/authority.h"
#include "nodemanager/service/controller.h"

namespace onepiece::rpc {
class Door;
}

namespace onepiece::nodemanager {

struct IdentityKeeperOptions {
  /// The NodeManager's identity folder. It may have ca.key and ca.pem, with which this replica
  /// gives a cluster its CA; seal.key; and join-token.json, a v1::JoinToken that a leader takes
  /// over once.
  std::string folder;
  /// Gets the table of the state. Null: the NodeManager is insecure, and nothing here is of use but
  /// the uses of tenants.
  rpc::Door* door = nullptr;
  /// Returns host:port of every NodeManager replica.
  std::function<std::vector<std::string>()> addresses;
  base::Duration look_period = std::chrono::milliseconds(500);
  base::Duration use_period = std::chrono::minutes(1);  ///< Between two batches of uses.
};

/// The seal key opens the CA's key in the replicated state. Every NodeManager has it in a file, so
/// any majority can sign certificates, and a replica's database alone cannot. The replica that
/// gives the cluster its first CA makes the seal key; the others ask one that has it (GetSealKey).
///
/// Ownership: borrows the controller, the clock and the door, which must outlive it. Owns a thread.
/// Threading: thread-safe, except Start() and Stop().
/// Blocking: Look() waits for disks, for the log and for other NodeManagers, 2 s for each.
class IdentityKeeper {
 public:
  IdentityKeeper(Controller& controller, base::Clock& clock, IdentityKeeperOptions options);
  ~IdentityKeeper() { Stop(); }
  IdentityKeeper(const IdentityKeeper&) = delete;
  IdentityKeeper& operator=(const IdentityKeeper&) = delete;

  /// Starts the thread, which calls Look() every look_period.
  void Start();
  /// Idempotent.
  void Stop();
  /// One round: the door's table, the seal key, and, at the leader, the first CA, the first join
  /// token, and the tenants' uses.
  void Look();
  /// Gives the door the table of the state as this replica knows it. Cheap when it has it.
  void Refresh();

  /// The CA that signs now.
  ///
  /// Errors: FAILED_PRECONDITION (INSECURE, NO_AUTHORITY), UNAVAILABLE (NO_SEAL_KEY: this replica
  /// has not got the seal key yet).
  [[nodiscard]] absl::StatusOr<identity::Authority> Signer();
  /// A CA as the state keeps it.
  ///
  /// Errors: UNAVAILABLE (NO_SEAL_KEY).
  [[nodiscard]] absl::StatusOr<v1::AuthorityRecord> Sealed(const identity::Authority& authority);
  /// Errors: UNAVAILABLE (NO_SEAL_KEY).
  [[nodiscard]] absl::StatusOr<std::string> SealKey();

 private:
  // What the state says, as far as it matters here.
  struct Known {
    std::uint32_t level = 0;
    std::uint64_t epoch = 0;
    std::string cluster;
    std::optional<v1::AuthorityRecord> authority;  // The one that signs.
  };
  [[nodiscard]] Known Read() const;
  void KeepSealKey(const Known& known) ABSL_EXCLUSIVE_LOCKS_REQUIRED(look_mutex_);
  void FetchSealKey(const v1::AuthorityRecord& authority)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(look_mutex_);
  absl::Status TakeSealKey(const std::string& key, const v1::AuthorityRecord& authority);
  absl::Status Seed(const Known& known);
  absl::Status SeedJoinToken(const Known& known);
  void CommitUses() ABSL_EXCLUSIVE_LOCKS_REQUIRED(look_mutex_);
  // Logs an error unless it is the same as the last one of this kind.
  void Complain(const char* operation, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(look_mutex_);
  void SetKey(std::string key);
  [[nodiscard]] std::string key() const;

  Controller& controller_;
  base::Clock& clock_;
  const IdentityKeeperOptions options_;

  base::Mutex look_mutex_;  // Held for a whole Look().
  base::MonotonicTime next_fetch_ ABSL_GUARDED_BY(look_mutex_){};
  base::Duration fetch_pause_ ABSL_GUARDED_BY(look_mutex_);
  base::MonotonicTime next_uses_ ABSL_GUARDED_BY(look_mutex_){};
  std::string last_complaint_ ABSL_GUARDED_BY(look_mutex_);

  mutable base::Mutex key_mutex_ ABSL_ACQUIRED_AFTER(look_mutex_);
  std::string key_ ABSL_GUARDED_BY(key_mutex_);  // Empty: none yet.

  std::jthread worker_;
};

}  // namespace onepiece::nodemanager
