// Fetches a result from the databases and waits for it.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cluster/base/mutex.h"
#include "cluster/node/job_records.h"
#include "cluster/node/result_fetches.h"

namespace onepiece::testing {

/// Keeps the parts of a result, and asks for the next one at once.
class WholeResult final : public node::PartTaker {
 public:
  void OnPart(rpc::ResultPart part) override {
    for (const grpc::Slice& piece : part.chunk) bytes_ += rpc::ViewOf(piece);
    fetch->Next();
  }
  void OnEnd(const absl::Status& status) override {
    const base::MutexLock lock(mutex_);
    status_ = status;
    ended_ = true;
    changed_.NotifyAll();
  }
  absl::StatusOr<std::string> Wait() {
    base::MutexLock lock(mutex_);
    changed_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_; });
    if (!status_.ok()) return status_;
    return bytes_;
  }

  std::shared_ptr<node::ResultFetch> fetch;

 private:
  std::string bytes_;  // Of one call at a time, until the last one.
  base::Mutex mutex_;
  base::CondVar changed_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

/// Blocking: until the fetch ends, which silent databases delay by 10 s each.
inline absl::StatusOr<std::string> FetchWhole(node::JobRecords& records, const base::Uid& uid) {
  node::ResultFetches fetches(records);
  const auto whole = std::make_shared<WholeResult>();
  whole->fetch = fetches.Make({.uid = uid, .artifact = ""}, whole);
  whole->fetch->Begin();
  absl::StatusOr<std::string> result = whole->Wait();
  whole->fetch = nullptr;  // They keep each other.
  return result;
}

}  // namespace onepiece::testing
