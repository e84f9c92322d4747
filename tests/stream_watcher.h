// A client that watches a job without a thread of its own, so that a test can have thousands.
#pragma once

#include <grpcpp/support/client_callback.h>

#include <fstream>
#include <list>
#include <string>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/rpc/status.h"
#include "onepiece/v1/generation.pb.h"

namespace onepiece::testing {

/// Watches from its construction until it is destroyed.
class StreamWatcher final : public grpc::ClientReadReactor<v1::Job> {
 public:
  /// `stub` is one of GenerationService or of DatabaseService.
  template <typename Stub>
  StreamWatcher(Stub& stub, const std::string& name) {
    request_.set_name(name);
    stub.async()->WatchJob(&context_, &request_, this);
    StartRead(&read_);
    StartCall();
  }
  ~StreamWatcher() override {
    context_.TryCancel();
    base::MutexLock lock(mutex_);
    done_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_done_; });
  }
  StreamWatcher(const StreamWatcher&) = delete;
  StreamWatcher& operator=(const StreamWatcher&) = delete;

  /// The latest state, empty before the first.
  v1::Job job() {
    const base::MutexLock lock(mutex_);
    return job_;
  }
  int states() {
    const base::MutexLock lock(mutex_);
    return states_;
  }
  bool done() {
    const base::MutexLock lock(mutex_);
    return is_done_;
  }
  /// What the stream ended with.
  absl::Status status() {
    const base::MutexLock lock(mutex_);
    return rpc::FromGrpc(status_);
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    {
      const base::MutexLock lock(mutex_);
      job_ = read_;
      ++states_;
    }
    StartRead(&read_);
  }
  void OnDone(const grpc::Status& status) override {
    const base::MutexLock lock(mutex_);
    status_ = status;
    is_done_ = true;
    done_.NotifyAll();
  }

  v1::WatchJobRequest request_;
  grpc::ClientContext context_;
  v1::Job read_;
  base::Mutex mutex_;
  base::CondVar done_;
  v1::Job job_ ABSL_GUARDED_BY(mutex_);
  int states_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_done_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

using StreamWatchers = std::list<StreamWatcher>;

template <typename Predicate>
bool All(StreamWatchers& watchers, const Predicate& predicate) {
  for (StreamWatcher& watcher : watchers) {
    if (!predicate(watcher)) return false;
  }
  return true;
}

/// The threads of this process.
inline int Threads() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word && word != "Threads:") {
  }
  int threads = 0;
  status >> threads;
  return threads;
}

}  // namespace onepiece::testing
