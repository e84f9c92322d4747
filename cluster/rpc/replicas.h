// Finds the leader among the NodeManager's replicas. A caller first asks the replica that led last,
// then the replica that a follower names, then the next one.
//
// A caller that wants one answer makes a LeaderSearch and asks until it has the answer:
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
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "grpcpp/channel.h"

namespace onepiece::rpc {

/// The reason that a replica gives when it does not lead. Its metadata "leader" is the leader's
/// host:port, if the replica knows it.
inline constexpr char kNotLeader[] = "NOT_LEADER";
inline constexpr char kLeader[] = "leader";

/// Returns the leader that the status of a follower names. It is empty when the follower knows no
/// leader, and nullopt when `status` does not come from a follower.
///
/// Threading: may be called from any thread.
std::optional<std::string> LeaderHint(const absl::Status& status);

/// Returns true when `status` is about the replica or the way to it and not about the request.
/// Another replica may then answer. A status that no NodeManager makes counts as well, because
/// another service listens at that address or something on the way failed.
///
/// Threading: may be called from any thread.
bool IsAboutTheReplica(const absl::Status& status);

struct Replica {
  std::string address;  ///< host:port
  std::shared_ptr<grpc::Channel> channel;
};

/// The replicas that a process knows, and the one that it believes to lead. It holds the configured
/// addresses, at most kMaxLearned learned ones, and one channel for each and for the leader.
///
/// Threading: may be used from any thread.
/// Blocking: never.
class Replicas {
 public:
  static constexpr std::size_t kMaxLearned = 16;

  /// Believes one of `configured` to lead, drawn at random so that processes spread. `user_agent`
  /// is as for MakeChannel.
  explicit Replicas(std::vector<std::string> configured, std::string user_agent = {});

  /// Takes the addresses that the cluster itself names. They replace the learned addresses and come
  /// before the configured ones (see LeaderSearch). Text that is no address is left out, and an
  /// empty list is ignored.
  void Learn(const std::vector<std::string>& addresses);
  /// Returns the learned and the configured addresses, each once.
  [[nodiscard]] std::vector<std::string> addresses() const;
  /// Returns the replica that is asked first. It need not be one of addresses(). Empty when no
  /// replica is known.
  [[nodiscard]] std::string leader() const;
  /// A count that grows whenever leader() begins to answer.
  [[nodiscard]] std::uint64_t found() const;

 private:
  friend class LeaderSearch;
  Replica Open(const std::string& address, bool alive);
  void SetLeader(const std::string& address, bool answers);
  std::vector<std::string> AddressesLocked(bool configured_too = true) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::string> Asked(bool configured_too) const;

  const std::string user_agent_;
  const std::vector<std::string> configured_;

  mutable base::Mutex mutex_;
  std::vector<std::string> learned_ ABSL_GUARDED_BY(mutex_);
  std::string leader_ ABSL_GUARDED_BY(mutex_);
  bool leader_answers_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t found_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_ ABSL_GUARDED_BY(mutex_);
};

/// One caller's search for the leader. A round asks every learned replica once. It asks the
/// configured ones too before any was learned, and after a round in which no follower answered.
/// Hints are followed immediately, also to addresses outside of the list. No replica is asked twice
/// in a round, and no round asks more than kMaxAsked.
///
/// Ownership: borrows `replicas`, which must outlive it.
/// Threading: used by one thread at a time.
class LeaderSearch {
 public:
  static constexpr std::size_t kMaxAsked = 32;

  explicit LeaderSearch(Replicas& replicas);

  /// Returns the replica to ask now.
  /// REQUIRES: the replicas have an address.
  Replica Next();
  /// Says that the replica from Next() did not help. Returns how long to wait before the next one
  /// (scaled, jittered), which is zero within a round. After a round the wait is 25 ms and grows by
  /// a quarter each time, up to 2 s. It is about a fifth of the time that has passed, so a new
  /// leader is found soon after it begins to lead.
  base::Duration Failed(const absl::Status& status);
  /// Says that the replica from Next() answered, so it leads.
  void Answered();
  /// Begins again with Replicas::leader().
  void Restart();

 private:
  Replicas& replicas_;
  std::string now_;
  std::string hint_;                ///< The hint that is asked next, if not empty.
  std::vector<std::string> asked_;  ///< The replicas asked in this round.
  bool heard_ = false;              ///< A follower answered in this round.
  bool wide_ = false;               ///< This round asks the configured replicas too.
  base::Duration pause_;
};

}  // namespace onepiece::rpc
