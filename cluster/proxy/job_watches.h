// Shares one watch of each job among all clients of a proxy that watch the job.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/node/job_records.h"
#include "cluster/rpc/state_stream.h"
#include "onepiece/v1/generation.pb.h"

namespace onepiece::proxy {

/// Fans the states of jobs out to streams. The databases have one watcher of a job per proxy,
/// however many clients watch it, and no watch costs a thread.
///
/// Ownership: Borrows `records`, which must outlive it.
/// Threading: Thread-safe.
/// Blocking: Only Stop() waits, for watches that end because of it.
class JobWatches {
 public:
  using Stream = rpc::StateStream<v1::Job>;
  /// Makes of a database's job what clients see. Called once for each state, by gRPC's threads. It
  /// must not block.
  using Present = std::function<v1::Job(v1::Job)>;
  /// Gives an error the form that clients see.
  using Explain = std::function<absl::Status(absl::Status)>;

  JobWatches(node::JobRecords& records, Present present, Explain explain)
      : records_(records), present_(std::move(present)), explain_(std::move(explain)) {}
  ~JobWatches() { Stop(); }
  JobWatches(const JobWatches&) = delete;
  JobWatches& operator=(const JobWatches&) = delete;

  /// Shows the job to `stream`, and ends the stream with the job. The stream leaves when what this
  /// returns is destroyed, which must be before the watches are.
  std::shared_ptr<void> Add(const base::Uid& uid, std::shared_ptr<Stream> stream);
  /// Ends the watches, and with them their streams. Streams that are added later are shown nothing.
  /// Idempotent.
  void Stop();
  /// The jobs that are being watched at the databases.
  [[nodiscard]] std::size_t jobs() const;

 private:
  class Job;
  class Part;
  using Streams = std::list<std::shared_ptr<Stream>>;

  node::JobRecords& records_;
  const Present present_;
  const Explain explain_;
  mutable base::Mutex mutex_;
  base::CondVar ended_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  /// Jobs with streams. One that has lost its last stream may still be ending.
  std::unordered_map<base::Uid, std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mutex_);
  std::size_t watches_ ABSL_GUARDED_BY(mutex_) = 0;  ///< Those of jobs_, and those that are ending.
};

}  // namespace onepiece::proxy
