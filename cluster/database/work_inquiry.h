// WorkInquiry: asks the keepers of work whose holder is dead whether they keep it still.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/node/cluster_view.h"
#include "onepiece/v1/database.pb.h"
#include "onepiece/v1/work.pb.h"

namespace onepiece::database {

/// A keeper gives the work of a dead holder to somebody else (node::KeptWork), so jobs wait for it.
/// But a record may be older than what its keepers were told: the newer one can die with the only
/// database that had it. Then the keeper has dropped the work, and nobody would ever end the job.
///
/// So a keeper is asked when the record has named it beside the same dead holder for 5 s. It keeps
/// nothing once it has said so twice, 5 s apart. That counts only if every other database was asked
/// for its record of the job and answered, so that none of them has a newer one which is on its
/// way. Whoever is paused, cut off or busy has said nothing. A keeper under a later incarnation
/// than the record names is asked after 1 s, and again after 1 s. Times are scaled.
///
/// Ownership: owns its thread. Borrows the view and the clock.
/// Threading: thread-safe. The ways are called on the thread of Start(), or in Ask().
/// Blocking: only Ask() and Stop() wait, for a way that is being called.
/// Invariants: there are at most kMaxOpen questions. Further ones wait for room.
class WorkInquiry {
 public:
  struct Ways {
    /// Asks a keeper (v1::WorkService.FindKept).
    std::function<absl::StatusOr<v1::FindKeptResponse>(const v1::Endpoint& keeper,
                                                       const v1::FindKeptRequest&)>
        ask_keeper;
    /// Asks another database to send its records of these jobs, soon.
    std::function<absl::Status(const v1::Endpoint& database, std::span<const base::Uid>)>
        ask_database;
  };
  static constexpr std::size_t kMaxOpen = 10'000;
  static constexpr std::size_t kMaxWorks = 1000;  ///< In one call.

  WorkInquiry(const node::ClusterView& view, Ways ways, base::Clock& clock = base::SystemClock());
  ~WorkInquiry();  ///< Stop().
  WorkInquiry(const WorkInquiry&) = delete;
  WorkInquiry& operator=(const WorkInquiry&) = delete;

  /// Returns whether the keeper of this work, whose holder is dead, keeps it as far as is known
  /// (JobStoreHooks::kept). It is asked as long as this is called every second. Never waits.
  bool IsKept(const base::Uid& uid, const v1::WorkHolder& holder);

  /// Begins to ask, on a thread of its own.
  void Start();
  void Stop();  ///< Idempotent.
  /// Asks once whoever is to be asked now. Ends early on `stop`.
  void Ask(const std::stop_token& stop = {});

 private:
  /// A job, and the bytes of a holder in its record: any change there is another question.
  using Work = std::pair<base::Uid, std::string>;
  struct Question {
    std::string keeper;          ///< Its node id.
    base::Duration pause{};      ///< Before each question.
    base::MonotonicTime seen{};  ///< When a record last had the entry.
    base::MonotonicTime next{};  ///< The keeper is not asked before.
    int denials = 0;
  };

  // Forgets what is settled, and returns the works to ask for, by their keepers.
  std::vector<std::pair<v1::Endpoint, std::vector<Work>>> Due();
  void AskKeeper(const v1::Endpoint& keeper, const std::vector<Work>& works);
  // Returns whether each other database is asked for its records of the jobs.
  bool AskDatabases(std::span<const base::Uid> uids) const;

  const node::ClusterView& view_;
  const Ways ways_;
  base::Clock& clock_;
  base::Mutex mutex_;
  std::map<Work, Question> questions_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace onepiece::database
