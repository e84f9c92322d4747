// Whose each job is: the tenant that may see it (docs/security.md, "Tenants").
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/node/job_records.h"
#include "cluster/rpc/caller.h"
#include "onepiece/v1/generation.pb.h"

namespace onepiece::proxy {

/// What a caller wants of a job.
enum class Intent {
  kSee,     ///< Its own tenant's, or all with scope read.
  kChange,  ///< Its own tenant's, or all with scope operate.
};

/// The answer for a job that is not there, and for one that the caller may not know of. They are
/// the same text, so that nobody learns which uids there are.
absl::Status JobUnknown(const base::Uid& uid);

/// Says whether a caller may know of `job`: the tenants match, and a token for one application's
/// jobs is for this application.
bool MayKnow(const rpc::Caller& caller, const v1::Job& job, Intent intent);

/// Judges whether callers may know of jobs. It remembers the owners of the jobs that it saw last,
/// and asks the databases about others, without a thread.
///
/// Ownership: borrows `records`, which outlives it.
/// Threading: thread-safe.
/// Blocking: only Stop() waits, for questions to databases that end because of it.
class JobOwners {
 public:
  static constexpr std::size_t kMaxKnown = 65'536;

  explicit JobOwners(node::JobRecords& records) : records_(records) {}
  ~JobOwners() { Stop(); }
  JobOwners(const JobOwners&) = delete;
  JobOwners& operator=(const JobOwners&) = delete;

  /// Remembers whose job this is.
  void Note(const base::Uid& uid, const v1::Job& job);
  /// What is known without asking anybody: OK, JobUnknown(), or nothing.
  [[nodiscard]] std::optional<absl::Status> Known(const rpc::Caller& caller, const base::Uid& uid,
                                                  Intent intent) const;
  /// Calls `then` once, with OK, JobUnknown() or why no database answers: at once when the owner is
  /// known, else on one of gRPC's threads, where it must not block.
  void Check(const rpc::Caller& caller, const base::Uid& uid, Intent intent,
             std::function<void(const absl::Status&)> then);
  /// Ends the questions under way, with CANCELLED, and refuses later ones. Idempotent.
  void Stop();

 private:
  class Question;
  struct Owner {
    std::string tenant, app_id;
  };
  void Done(const std::shared_ptr<Question>& question);

  node::JobRecords& records_;
  mutable base::Mutex mutex_;
  base::CondVar done_;
  std::unordered_map<base::Uid, Owner> known_ ABSL_GUARDED_BY(mutex_);
  std::deque<base::Uid> order_ ABSL_GUARDED_BY(mutex_);  ///< Of known_, the oldest first.
  std::unordered_set<std::shared_ptr<Question>> asked_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace onepiece::proxy
