// A client of the databases. It finds the database that keeps a job's record, and the next one when
// that database is away.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/record_copy.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::node {

struct JobRecordsOptions {
  base::Duration call_timeout = std::chrono::seconds(2);         ///< For one unary call. Scaled.
  base::Duration copy_timeout = std::chrono::milliseconds(250);  ///< For Copy. Scaled.
  /// How long Copy passes over a database that did not answer it. Scaled.
  base::Duration copy_pause = std::chrono::seconds(1);
  std::size_t max_locations = 10'000;  ///< It remembers the last writes of so many jobs.
};

/// Takes the states of a job that is being watched.
///
/// Threading: called by gRPC's threads or by the thread that begins the watch, one call at a time.
/// It must not block.
class JobWatcher {
 public:
  virtual ~JobWatcher() = default;
  virtual void OnState(const v1::Job& job) = 0;
  /// The last call. OK: the job has ended.
  virtual void OnEnd(const absl::Status& status) = 0;
};

/// A watch that has begun.
///
/// Threading: thread-safe.
class JobWatch {
 public:
  virtual ~JobWatch() = default;
  /// Ends the watch soon, with CANCELLED (CALLER_GONE). It does not wait for that.
  virtual void Cancel() = 0;
};

/// Every call asks the databases in the rendezvous order of the uid. The database that took this
/// job's last write through here comes first, so that a caller reads its own writes even if another
/// database was away when it wrote. A call goes on to the next database on UNAVAILABLE,
/// DEADLINE_EXCEEDED and (except Create) NOT_FOUND. `call_timeout` limits each unary attempt.
///
/// Ownership: Owns its connections.
///
/// Threading: Thread-safe.
///
/// Blocking: Unary calls: number of databases × call_timeout at most. Watch never blocks. The
/// destructor waits until its watches have ended.
///
/// Errors: all calls may return UNAVAILABLE (NO_DATABASE) when no database is known or none
/// answered, NOT_FOUND (JOB_NOT_FOUND), and the errors of the database. While a database that may
/// hold the record is away, a miss at the others is UNAVAILABLE and not NOT_FOUND.
class JobRecords {
 public:
  /// The routing of `view` says where the databases are. Borrows `view` and `clock`, which
  /// outlive it.
  explicit JobRecords(const ClusterView& view, JobRecordsOptions options = {},
                      base::Clock& clock = base::SystemClock());
  ~JobRecords();
  JobRecords(const JobRecords&) = delete;
  JobRecords& operator=(const JobRecords&) = delete;

  /// Stores a record, or finds the one that the databases have. The uid is record.job().uid().
  absl::StatusOr<v1::CreateJobResponse> Create(const v1::JobRecord& record);
  /// Sends the record of a new job to one more database, so that one database's death loses no job
  /// that its client was told of. That is the first in the order which did not take the job's last
  /// write through here. The call has copy_timeout, and does not hold up the caller before Await().
  /// A database that does not answer is passed over for copy_pause. Returns nullptr when none is
  /// left. The copy borrows this object.
  std::unique_ptr<RecordCopy> Copy(const v1::JobRecord& record);
  /// Takes or renews the lease to start a job (ClaimStart). The first database that knows the job
  /// decides.
  absl::StatusOr<v1::ClaimStartResponse> Claim(const v1::ClaimStartRequest& request);
  absl::StatusOr<v1::JobRecord> Update(const v1::UpdateJobRequest& request);
  /// `timeout` (scaled), if given, limits each attempt in place of call_timeout.
  absl::StatusOr<v1::JobRecord> Get(const base::Uid& uid,
                                    std::optional<base::Duration> timeout = std::nullopt);
  /// Returns a page over all databases, newest first, each job once. It leaves out a database that
  /// is away.
  ///
  /// Errors: UNAVAILABLE when no database answers.
  absl::StatusOr<v1::ListJobsResponse> List(const v1::ListJobsRequest& request);
  /// These two are known to a second database, if one answers within copy_timeout, before they
  /// return.
  absl::StatusOr<v1::Job> Acknowledge(const base::Uid& uid);
  absl::Status Delete(const base::Uid& uid);

  /// Tells the watcher the job's states until the job has ended. It costs no thread. When the
  /// database goes away or is silent for 60 s (scaled), the watch moves to the next one. A state
  /// may come twice. `watcher` is kept until its OnEnd has returned.
  std::shared_ptr<JobWatch> Watch(const base::Uid& uid, std::shared_ptr<JobWatcher> watcher);

 private:
  friend class WatchRun;
  friend class ResultFetches;
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

/// Returns the uid in a job's name, "jobs/{uid}", or nullopt when the name is malformed.
std::optional<base::Uid> UidOfName(std::string_view name);
std::string NameOfUid(const base::Uid& uid);

}  // namespace onepiece::node
