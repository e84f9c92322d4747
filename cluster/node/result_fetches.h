// Fetching results from the databases without a thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/rpc/result_part.h"
#include "grpcpp/generic/generic_stub.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::node {

class JobRecords;

/// Takes the parts of a result.
///
/// Threading: called by gRPC's threads or by the thread that begins the fetch, one call at a time.
/// It must not block.
class PartTaker {
 public:
  virtual ~PartTaker() = default;
  /// `artifact` is in the first part only.
  virtual void OnPart(rpc::ResultPart part) = 0;
  /// The last call. The errors are those of JobRecords, ABORTED (RESULT_CHANGED) and CANCELLED
  /// (CALLER_GONE).
  virtual void OnEnd(const absl::Status& status) = 0;
};

/// One fetch. It reads a part when its taker wants one, so a taker that waits stops the database.
///
/// Threading: thread-safe.
/// Blocking: never.
class ResultFetch {
 public:
  virtual ~ResultFetch() = default;
  /// Call it once. The first part is wanted from the beginning.
  virtual void Begin() = 0;
  /// One more part is wanted. Has no effect after the end.
  virtual void Next() = 0;
  /// Ends the fetch soon, with CANCELLED (CALLER_GONE). It does not wait for that.
  virtual void Cancel() = 0;
};

/// Fetches artifacts (see v1::FetchResultRequest) with gRPC's callback API. When a database goes
/// away or is silent, a fetch goes on at the next one, from the byte where it stopped. Its taker
/// sees each byte once. The parts' bytes are not copied: they are those that gRPC has received.
///
/// Ownership: borrows `records`, which must outlive it. Its connections are its own, so that a long
/// result holds up no call.
/// Threading: thread-safe. It has one thread, which ends calls to silent databases.
/// Blocking: the destructor cancels the fetches and waits for their ends.
class ResultFetches {
 public:
  explicit ResultFetches(JobRecords& records);
  ~ResultFetches();
  ResultFetches(const ResultFetches&) = delete;
  ResultFetches& operator=(const ResultFetches&) = delete;

  /// What is fetched, as in v1::FetchResultRequest.
  struct Wanted {
    base::Uid uid;
    std::string artifact;
    std::int64_t offset_bytes = 0, limit_bytes = 0;
  };
  /// `taker` is kept until its OnEnd has returned.
  std::shared_ptr<ResultFetch> Make(Wanted wanted, std::shared_ptr<PartTaker> taker);

 private:
  class Run;

  std::vector<v1::Endpoint> DatabasesFor(const base::Uid& uid);
  std::shared_ptr<grpc::GenericStub> StubFor(const std::string& address);
  base::MonotonicTime Now() const;
  void Add(const std::shared_ptr<Run>& run);
  void Remove(const std::shared_ptr<Run>& run);
  std::vector<std::shared_ptr<Run>> All();
  void EndSilent(const std::stop_token& stop);

  JobRecords& records_;
  base::Mutex mutex_;
  base::CondVar all_ended_;
  std::map<std::string, std::shared_ptr<grpc::GenericStub>> stubs_ ABSL_GUARDED_BY(mutex_);
  std::set<std::shared_ptr<Run>> runs_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;  // Last: it ends before what it uses.
};

}  // namespace onepiece::node
