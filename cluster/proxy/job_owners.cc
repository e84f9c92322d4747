#include "cluster/proxy/job_owners.h"

#include <utility>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/job/job_record.h"

namespace onepiece::proxy {
namespace {

bool MayKnow(const rpc::Caller& caller, const std::string& tenant, const std::string& app_id,
             Intent intent) {
  const bool own = intent == Intent::kSee ? caller.MaySee(tenant) : caller.MayChange(tenant);
  return own && (caller.app_id().empty() || caller.app_id() == app_id);
}

/// Whether the caller may know of every job, so that nobody need be asked.
bool KnowsAll(const rpc::Caller& caller, Intent intent) {
  return caller.app_id().empty() &&
         caller.Has(intent == Intent::kSee ? identity::Scope::kRead : identity::Scope::kOperate);
}

}  // namespace

absl::Status JobUnknown(const base::Uid& uid) {
  return base::MakeError(absl::StatusCode::kNotFound, "JOB_UNKNOWN", "no job " + uid.ToString(),
                         {{"uid", uid.ToString()}});
}

bool MayKnow(const rpc::Caller& caller, const v1::Job& job, Intent intent) {
  return MayKnow(caller, job::TenantOf(job), job.app_id(), intent);
}

/// Watches a job until its first state, which says whose it is.
class JobOwners::Question final : public node::JobWatcher,
                                  public std::enable_shared_from_this<Question> {
 public:
  Question(JobOwners& owners, rpc::Caller caller, const base::Uid& uid, Intent intent,
           std::function<void(const absl::Status&)> then)
      : owners_(owners),
        caller_(std::move(caller)),
        uid_(uid),
        intent_(intent),
        then_(std::move(then)) {}

  void OnState(const v1::Job& job) override {
    if (answered_) return;
    answered_ = true;
    owners_.Note(uid_, job);
    then_(MayKnow(caller_, job, intent_) ? absl::OkStatus() : JobUnknown(uid_));
    Cancel();
  }
  void OnEnd(const absl::Status& status) override {
    if (!answered_) then_(status.ok() ? JobUnknown(uid_) : status);
    {
      const base::MutexLock lock(mutex_);
      ended_ = true;
      watch_.reset();
    }
    owners_.Done(shared_from_this());
  }

  /// Makes Cancel() possible. The question may have been cancelled already.
  void SetWatch(std::shared_ptr<node::JobWatch> watch) {
    bool cancelled = false;
    {
      const base::MutexLock lock(mutex_);
      if (ended_) return;
      watch_ = watch;
      cancelled = cancelled_;
    }
    if (cancelled) watch->Cancel();
  }
  void Cancel() {
    std::shared_ptr<node::JobWatch> watch;
    {
      const base::MutexLock lock(mutex_);
      cancelled_ = true;
      watch = watch_;
    }
    if (watch != nullptr) watch->Cancel();
  }

 private:
  JobOwners& owners_;
  const rpc::Caller caller_;
  const base::Uid uid_;
  const Intent intent_;
  const std::function<void(const absl::Status&)> then_;
  bool answered_ = false;  // The watcher's calls come one at a time.
  base::Mutex mutex_;
  std::shared_ptr<node::JobWatch> watch_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

void JobOwners::Note(const base::Uid& uid, const v1::Job& job) {
  const base::MutexLock lock(mutex_);
  const auto [entry, is_new] =
      known_.insert_or_assign(uid, Owner{.tenant = job::TenantOf(job), .app_id = job.app_id()});
  if (!is_new) return;
  order_.push_back(uid);
  if (order_.size() <= kMaxKnown) return;
  known_.erase(order_.front());
  order_.pop_front();
}

std::optional<absl::Status> JobOwners::Known(const rpc::Caller& caller, const base::Uid& uid,
                                             Intent intent) const {
  if (KnowsAll(caller, intent)) return absl::OkStatus();
  const base::MutexLock lock(mutex_);
  const auto found = known_.find(uid);
  if (found == known_.end()) return std::nullopt;
  return MayKnow(caller, found->second.tenant, found->second.app_id, intent) ? absl::OkStatus()
                                                                             : JobUnknown(uid);
}

void JobOwners::Check(const rpc::Caller& caller, const base::Uid& uid, Intent intent,
                      std::function<void(const absl::Status&)> then) {
  if (const auto known = Known(caller, uid, intent); known) return then(*known);
  const auto question = std::make_shared<Question>(*this, caller, uid, intent, then);
  {
    base::MutexLock lock(mutex_);
    if (stopped_) {
      lock.Unlock();
      return then(absl::CancelledError("this proxy is stopping"));
    }
    asked_.insert(question);
  }
  question->SetWatch(records_.Watch(uid, question));
}

void JobOwners::Done(const std::shared_ptr<Question>& question) {
  const base::MutexLock lock(mutex_);
  asked_.erase(question);
  done_.NotifyAll();
}

void JobOwners::Stop() {
  std::vector<std::shared_ptr<Question>> asked;
  {
    const base::MutexLock lock(mutex_);
    stopped_ = true;
    asked.assign(asked_.begin(), asked_.end());
  }
  for (const auto& question : asked) question->Cancel();
  base::MutexLock lock(mutex_);
  done_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return asked_.empty(); });
}

}  // namespace onepiece::proxy
