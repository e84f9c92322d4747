#include "cluster/proxy/job_watches.h"

#include <utility>
#include <vector>

#include "cluster/base/status.h"

namespace onepiece::proxy {

/// One job's watch and its streams. The lock of JobWatches guards the members.
class JobWatches::Job final : public node::JobWatcher, public std::enable_shared_from_this<Job> {
 public:
  Job(JobWatches& all, const base::Uid& its_uid) : uid(its_uid), all_(all) {}

  void OnState(const v1::Job& job) override {
    const auto state = std::make_shared<const v1::Job>(all_.present_(job));
    Streams to;
    std::uint64_t now = 0;
    {
      const base::MutexLock lock(all_.mutex_);
      latest = state;
      now = ++version;
      to = streams;
    }
    // Streams are called without the lock, because they call gRPC.
    for (const auto& stream : to) stream->Offer(state, now);
  }

  void OnEnd(const absl::Status& status) override {
    Streams to;
    {
      const base::MutexLock lock(all_.mutex_);
      to = streams;
      ended = true;
      const auto found = all_.jobs_.find(uid);
      if (found != all_.jobs_.end() && found->second.get() == this) all_.jobs_.erase(found);
    }
    const absl::Status explained = all_.explain_(status);
    for (const auto& stream : to) stream->End(explained);
    // Last: Stop() may return now, and its caller may destroy everything.
    const base::MutexLock lock(all_.mutex_);
    if (--all_.watches_ == 0) all_.ended_.NotifyAll();
  }

  const base::Uid uid;
  Streams streams;
  std::shared_ptr<const v1::Job> latest;  ///< Null before the first state.
  std::uint64_t version = 0;              ///< Of `latest`.
  bool ended = false;
  std::shared_ptr<node::JobWatch> watch;  ///< Null until JobRecords::Watch has returned.

 private:
  JobWatches& all_;
};

/// A client's part in the watch of a job.
class JobWatches::Part {
 public:
  Part(JobWatches& all, std::shared_ptr<Job> job, Streams::iterator at)
      : all_(all), job_(std::move(job)), at_(at) {}
  ~Part() {
    std::shared_ptr<node::JobWatch> unwanted;
    {
      const base::MutexLock lock(all_.mutex_);
      job_->streams.erase(at_);
      if (!job_->streams.empty() || job_->ended) return;
      const auto found = all_.jobs_.find(job_->uid);
      if (found != all_.jobs_.end() && found->second == job_) all_.jobs_.erase(found);
      unwanted = job_->watch;
    }
    if (unwanted != nullptr) unwanted->Cancel();
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

 private:
  JobWatches& all_;
  const std::shared_ptr<Job> job_;
  const Streams::iterator at_;
};

std::shared_ptr<void> JobWatches::Add(const base::Uid& uid, std::shared_ptr<Stream> stream) {
  std::shared_ptr<Job> job;
  std::shared_ptr<Part> part;
  std::shared_ptr<const v1::Job> latest;
  std::uint64_t version = 0;
  bool is_new = false;
  {
    const base::MutexLock lock(mutex_);
    if (stopped_) return nullptr;
    std::shared_ptr<Job>& found = jobs_[uid];
    is_new = found == nullptr;
    if (is_new) {
      found = std::make_shared<Job>(*this, uid);
      ++watches_;
    }
    job = found;
    part = std::make_shared<Part>(*this, job, job->streams.insert(job->streams.end(), stream));
    latest = job->latest;
    version = job->version;
  }
  if (latest != nullptr) stream->Offer(latest, version);
  if (!is_new) return part;
  // The stream that made the job stays in it until this returns, so nobody has missed `watch`.
  const std::shared_ptr<node::JobWatch> watch = records_.Watch(uid, job);
  bool stopped = false;
  {
    const base::MutexLock lock(mutex_);
    job->watch = watch;
    stopped = stopped_;
  }
  if (stopped) watch->Cancel();
  return part;
}

void JobWatches::Stop() {
  std::vector<std::shared_ptr<node::JobWatch>> watches;
  {
    const base::MutexLock lock(mutex_);
    stopped_ = true;
    for (const auto& [uid, job] : jobs_) {
      if (job->watch != nullptr) watches.push_back(job->watch);
    }
  }
  for (const auto& watch : watches) watch->Cancel();
  base::MutexLock lock(mutex_);
  ended_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return watches_ == 0; });
}

std::size_t JobWatches::jobs() const {
  const base::MutexLock lock(mutex_);
  return watches_;
}

}  // namespace onepiece::proxy
