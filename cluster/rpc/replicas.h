// Whom of the NodeManager's replicas to ask: the one that led last, the one that a follower names,
// else the next.
//
// A caller that wants one answer makes a LeaderSearch and asks until it has it:
//
//   LeaderSearch search(replicas);
//   for (;;) {
//     const Replica replica = search.Next();
//     absl::Status status = …call replica.channel…;
//     if (!IsAboutTheReplica(status)) { search.Answered(); return status; }
//     if (const base::Duration pause = search.Failed(status); pause > 0) …wait, at most until the
//     deadline…;
//   }
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "grpcpp/channel.h"

namespace onepiece::rpc {

/// Reason of a replica that does not lead; its metadata "leader" is the leader's host:port, if
/// known.
inline constexpr char kNotLeader[] = "NOT_LEADER";
inline constexpr char kLeader[] = "leader";

/// nullopt: `status` does not say that the replica follows. Empty: it knows no leader. Thread-safe.
std::optional<std::string> LeaderHint(const absl::Status& status);

/// The status tells of the replica or of the way to it, not of the request: another one may answer.
/// So does one that no NodeManager has made: another service listens at that address, or something
/// on the way failed. Thread-safe.
bool IsAboutTheReplica(const absl::Status& status);

struct Replica {
  std::string address;  ///< host:port
  std::shared_ptr<grpc::Channel> channel;
};

/// The replicas that a process knows, and which one it takes for the leader.
///
/// Threading  Thread-safe. Blocking: never.
/// Bounds     The configured addresses and kMaxLearned learned ones, one channel for each and for
/// the leader.
class Replicas {
 public:
  static constexpr std::size_t kMaxLearned = 16;

  /// Begins with one of `configured`, drawn at random, so that processes spread. `user_agent` as
  /// for MakeChannel.
  explicit Replicas(std::vector<std::string> configured, std::string user_agent = {});

  /// What the cluster says of itself: replaces what was learned before, and comes before what was
  /// configured (see LeaderSearch). What is no address is left out; an empty list is ignored.
  void Learn(const std::vector<std::string>& addresses);
  /// Configured and learned ones, each once.
  [[nodiscard]] std::vector<std::string> addresses() const;
  /// Who is asked first; may be none of addresses(). Empty when none is known at all.
  [[nodiscard]] std::string leader() const;
  /// Grows when leader() answers that did not before.
  [[nodiscard]] std::uint64_t found() const;

 private:
  friend class LeaderSearch;
  Replica Open(const std::string& address, bool alive);
  void SetLeader(const std::string& address, bool answers);
  std::vector<std::string> AddressesLocked(bool configured_too = true) const;
  std::vector<std::string> Asked(bool configured_too) const;

  const std::string user_agent_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  const std::vector<std::string> configured_;
  std::vector<std::string> learned_;
  std::string leader_;
  bool leader_answers_ = false;
  std::uint64_t found_ = 0;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_;
};

/// One caller's way to the leader. A round asks every learned replica once (before any was learned,
/// and after a round in which none of them answered: the configured ones too); hints are followed
/// at once, to addresses outside of the list too, but nobody is asked twice in a round and no round
/// is longer than kMaxAsked.
///
/// Ownership  Borrows the replicas. Threading  Thread-confined.
class LeaderSearch {
 public:
  static constexpr std::size_t kMaxAsked = 32;

  explicit LeaderSearch(Replicas& replicas);

  /// Whom to ask now. REQUIRES: the replicas have an address.
  Replica Next();
  /// The replica that Next() gave does not help. Returns how long to wait before the next one
  /// (scaled, jittered): zero within a round. After a round 25 ms, growing by a quarter to 2 s:
  /// about a fifth of the time that has passed, so a new leader is found soon after it leads.
  base::Duration Failed(const absl::Status& status);
  /// The replica that Next() gave answered: it leads.
  void Answered();
  /// Begins anew with whom Replicas::leader() names.
  void Restart();

 private:
  Replicas& replicas_;
  std::string now_;
  std::string hint_;                ///< To be asked next, if not empty.
  std::vector<std::string> asked_;  ///< In this round.
  bool heard_ = false;              ///< Somebody who follows, in this round.
  bool wide_ = false;               ///< Ask the configured ones too.
  base::Duration pause_;
};

}  // namespace onepiece::rpc
