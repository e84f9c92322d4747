// Watching a job without a thread: streams of gRPC's callback API.
#include <algorithm>

#include "cluster/job/job_record.h"
#include "cluster/node/job_records_impl.h"
#include "grpcpp/support/client_callback.h"

namespace onepiece::node {
namespace {

// A database repeats an unchanged state every 20 s. One that is silent for this long is lost.
constexpr base::Duration kWatchIdleLimit = std::chrono::seconds(60);

}  // namespace

/// One call to one database. It frees itself.
class WatchRun::Stream final : public grpc::ClientReadReactor<v1::Job> {
 public:
  Stream(std::shared_ptr<WatchRun> run, std::shared_ptr<DatabaseStub> stub)
      : run_(std::move(run)), stub_(std::move(stub)) {
    request_.set_name(NameOfUid(run_->uid_));
    stub_->async()->WatchJob(&context_, &request_, this);
  }
  void Start() {
    StartRead(&job_);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (run_->Heard(job_)) return StartRead(&job_);
    Cancel();
  }
  void OnDone(const grpc::Status& status) override {
    run_->Ended(status);
    delete this;
  }

  const std::shared_ptr<WatchRun> run_;
  const std::shared_ptr<DatabaseStub> stub_;
  v1::WatchJobRequest request_;
  grpc::ClientContext context_;
  v1::Job job_;
};

void WatchRun::Begin() {
  databases_ = records_.DatabasesFor(uid_);
  next_ = 0;
  misses_ = {};
  refused_ = absl::OkStatus();
  heard_ = false;
  lost_.reset();
  Next();
}

void WatchRun::Next() {
  if (IsCancelled()) return Finish(Cancelled());
  if (next_ == databases_.size()) return EndRound();
  leave_ = false;
  auto* const stream =
      new Stream(shared_from_this(), records_.StubFor(databases_[next_++].address()));
  {
    const base::MutexLock lock(mutex_);
    stream_ = stream;
    heard_at_ = records_.clock.Now();
    if (cancelled_) stream->Cancel();
  }
  stream->Start();
}

void WatchRun::EndRound() {
  // A database that did not say what it has may have the result.
  if (lost_.has_value() && misses_.away.ok() && refused_.ok()) {
    watcher_->OnState(*lost_);
    return Finish(absl::OkStatus());
  }
  if (heard_) return records_.watches.BeginLater(shared_from_this());
  Finish(refused_.ok() ? misses_.Verdict() : refused_);
}

bool WatchRun::Heard(const v1::Job& job) {
  {
    const base::MutexLock lock(mutex_);
    heard_at_ = records_.clock.Now();
    if (cancelled_) return false;
  }
  heard_ = true;
  // The next database may still have the result.
  if (IsLost(job)) {
    lost_ = job;
    leave_ = true;
    return false;
  }
  watcher_->OnState(job);
  over_ = job::IsTerminal(job.state());
  return !over_;
}

void WatchRun::Ended(const grpc::Status& status) {
  {
    const base::MutexLock lock(mutex_);
    stream_ = nullptr;
  }
  if (over_) return Finish(absl::OkStatus());
  if (IsCancelled()) return Finish(Cancelled());
  if (leave_) return Next();
  absl::Status result = rpc::FromGrpc(status);
  // A server that shuts down cancels its streams, and CancelIfSilent() cancels ours.
  if (absl::IsCancelled(result)) result = absl::UnavailableError(result.message());
  if (absl::IsResourceExhausted(result)) {
    refused_ = std::move(result);
  } else if (!result.ok() && !misses_.Take(result)) {
    // A stream that ends with OK before its job has ended comes from a database that shuts down.
    return Finish(result);
  }
  Next();
}

void WatchRun::Finish(const absl::Status& status) {
  watcher_->OnEnd(status);
  watcher_.reset();
  records_.watches.Remove(shared_from_this());
}

void WatchRun::Cancel() {
  const base::MutexLock lock(mutex_);
  cancelled_ = true;
  if (stream_ != nullptr) stream_->Cancel();
}

void WatchRun::CancelIfSilent(base::MonotonicTime now) {
  const base::MutexLock lock(mutex_);
  if (stream_ != nullptr && now - heard_at_ > base::Scaled(kWatchIdleLimit)) stream_->Cancel();
}

bool WatchRun::IsCancelled() {
  const base::MutexLock lock(mutex_);
  return cancelled_;
}

WatchRegistry::~WatchRegistry() {
  std::jthread thread;
  {
    const base::MutexLock lock(mutex_);
    stopping_ = true;
    // Those that wait for their next round end now.
    std::multimap<base::MonotonicTime, std::shared_ptr<WatchRun>> now;
    for (auto& [time, run] : later_) now.emplace(clock_.Now(), std::move(run));
    later_ = std::move(now);
    changed_.NotifyAll();
  }
  for (const auto& run : All()) run->Cancel();
  {
    base::MutexLock lock(mutex_);
    changed_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return runs_.empty(); });
    thread = std::move(thread_);
  }
  // It joins with the lock free.
}

void WatchRegistry::Add(const std::shared_ptr<WatchRun>& run) {
  const base::MutexLock lock(mutex_);
  runs_.insert(run);
  if (thread_.joinable()) return;
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void WatchRegistry::Remove(const std::shared_ptr<WatchRun>& run) {
  const base::MutexLock lock(mutex_);
  runs_.erase(run);
  if (runs_.empty()) changed_.NotifyAll();
}

void WatchRegistry::BeginLater(const std::shared_ptr<WatchRun>& run) {
  const base::MutexLock lock(mutex_);
  later_.emplace(clock_.Now() + (stopping_ ? base::Duration::zero() : kPollInterval), run);
  changed_.NotifyAll();
}

void WatchRegistry::Run(const std::stop_token& stop) {
  const base::Duration look = base::Scaled(kWatchIdleLimit) / 8;
  base::MonotonicTime next_look = clock_.Now() + look;
  while (!stop.stop_requested()) {
    std::vector<std::shared_ptr<WatchRun>> due;
    {
      base::MutexLock lock(mutex_);
      const auto first = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return later_.empty() ? next_look : std::min(next_look, later_.begin()->first);
      };
      const base::MonotonicTime until = first();
      clock_.WaitUntil(changed_, lock, stop, until,
                       [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return first() < until; });
      const auto end = later_.upper_bound(clock_.Now());
      for (auto it = later_.begin(); it != end; ++it) due.push_back(it->second);
      later_.erase(later_.begin(), end);
    }
    for (const auto& run : due) run->Begin();
    const base::MonotonicTime now = clock_.Now();
    if (now < next_look) continue;
    for (const auto& run : All()) run->CancelIfSilent(now);
    next_look = now + look;
  }
}

std::vector<std::shared_ptr<WatchRun>> WatchRegistry::All() {
  const base::MutexLock lock(mutex_);
  return {runs_.begin(), runs_.end()};
}

std::shared_ptr<JobWatch> JobRecords::Watch(const base::Uid& uid,
                                            std::shared_ptr<JobWatcher> watcher) {
  const auto run = std::make_shared<WatchRun>(*impl_, uid, std::move(watcher));
  impl_->watches.Add(run);
  run->Begin();
  return run;
}

}  // namespace onepiece::node
