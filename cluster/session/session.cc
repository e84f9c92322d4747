#include "cluster/session/session.h"

#include <algorithm>
#include <deque>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/session/feeds.h"

namespace onepiece::session {
namespace {

constexpr std::size_t kMaxWaiting = 64;
constexpr int kActionThreads = 4;
constexpr std::chrono::seconds kActionTimeout(10);

client::ClientOptions ClientOptions(const ClusterAddress& target, const std::string& user_agent,
                                    base::Duration timeout, std::stop_token stop) {
  client::ClientOptions options;
  options.user_agent = user_agent;
  options.nodemanagers = target.nodemanagers;
  options.timeout = base::Scaled(timeout);
  options.attempt_timeout = std::min(options.attempt_timeout, options.timeout);
  options.stop = std::move(stop);
  return options;
}

}  // namespace

class Session::Impl {
 public:
  Impl(ClusterAddress target, SessionOptions options)
      : target_(std::move(target)),
        options_(std::move(options)),
        channels_(options_.user_agent),
        reads_(ClientOptions(target_, options_.user_agent, kReadTimeout, stop_.get_token())),
        actions_client_(
            ClientOptions(target_, options_.user_agent, kActionTimeout, stop_.get_token())) {
    for (const auto follow : {FollowCluster, FollowPlans, FollowRings, FollowDatabases, FollowJobs})
      threads_.emplace_back([this, follow] { follow(feeds_, stop_.get_token()); });
    for (int i = 0; i < kActionThreads; ++i) threads_.emplace_back([this] { RunActions(); });
  }
  ~Impl() { stop_.request_stop(); }

  bool Do(Action action) {
    const base::MutexLock lock(mutex_);
    if (waiting_.size() >= kMaxWaiting) return false;
    waiting_.push_back(std::move(action));
    condition_.NotifyOne();
    return true;
  }

  const ClusterAddress& target() const { return target_; }
  Board& board() { return board_; }

 private:
  void RunActions() {
    const std::stop_token stop = stop_.get_token();
    base::MutexLock lock(mutex_);
    // Actions that still wait when the session ends are run too, so that everybody who asked gets
    // an answer. The client's calls then end immediately with CANCELLED.
    while (condition_.Wait(
        lock, stop, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !waiting_.empty(); })) {
      const Action action = std::move(waiting_.front());
      waiting_.pop_front();
      lock.Unlock();
      action(actions_client_);
      lock.Lock();
    }
  }

  const ClusterAddress target_;
  const SessionOptions options_;
  std::stop_source stop_;
  Board board_;
  Channels channels_;
  client::Client reads_, actions_client_;
  Feeds feeds_{target_, options_, board_, channels_, reads_};
  base::Mutex mutex_;
  base::CondVar condition_;
  std::deque<Action> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::jthread> threads_;  // Last: they use the others.
};

Session::Session(ClusterAddress target, SessionOptions options)
    : impl_(std::make_unique<Impl>(std::move(target), std::move(options))) {}
Session::~Session() = default;

const ClusterAddress& Session::target() const { return impl_->target(); }

std::shared_ptr<const Snapshot> Session::Latest() const { return impl_->board().Latest(); }

LinkStatus Session::status() const { return impl_->board().link(); }

void Session::NoteAnswer(const absl::Status& status) {
  if (base::GetReason(status).reason == "READ_ONLY") impl_->board().RefusedReadOnly();
}

void Session::RetryNow() { impl_->board().Wake(); }

void Session::Resync() { impl_->board().Resync(); }

bool Session::Do(Action action) { return impl_->Do(std::move(action)); }

std::vector<v1::Node> Session::Nodes() const {
  std::vector<v1::Node> nodes;
  const auto cluster = impl_->board().cluster();
  if (cluster == nullptr) return nodes;
  for (const v1::Node& node : cluster->nodes()) {
    if (node.state() != v1::Node::DEAD && !node.address().empty()) nodes.push_back(node);
  }
  return nodes;
}

void Session::SetAlerts(Part<Alerts> alerts) {
  impl_->board().PutPart(&Snapshot::alerts, std::move(alerts));
}

}  // namespace onepiece::session
