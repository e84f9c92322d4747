#include "cluster/history/cluster_rules.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/client/client.h"

namespace onepiece::history {
namespace {

// The list has no configurations in it, so most looks cost little.
ClusterRules::Answer AskForNews(client::Client& client, std::uint64_t known) {
  v1::ListConfigRevisionsRequest newest;
  newest.set_page_size(1);
  ONEPIECE_ASSIGN_OR_RETURN(const v1::ListConfigRevisionsResponse page,
                            client.ListConfigRevisions(newest));
  const std::uint64_t present = page.revisions().empty() ? 0 : page.revisions(0).revision();
  if (present == known) return std::nullopt;
  if (present == 0) return v1::ConfigRevision();
  ONEPIECE_ASSIGN_OR_RETURN(v1::ConfigRevision revision, client.GetConfig());
  return revision;
}

}  // namespace

/// What a look on another thread tells.
struct ClusterRules::Shared {
  base::Mutex mutex;
  bool looks ABSL_GUARDED_BY(mutex) = false;
  std::optional<Answer> answer ABSL_GUARDED_BY(mutex);
};

ClusterRules::ClusterRules(Look look, base::Clock& clock)
    : look_(std::move(look)),
      clock_(clock),
      next_look_(clock.Now()),
      shared_(std::make_shared<Shared>()) {}

std::optional<std::vector<Rule>> ClusterRules::News() {
  std::optional<Answer> answer;
  bool begins = false;
  {
    const base::MutexLock lock(shared_->mutex);
    answer = std::exchange(shared_->answer, std::nullopt);
    begins = !shared_->looks && clock_.Now() >= next_look_;
    shared_->looks |= begins;
  }
  std::optional<std::vector<Rule>> news;
  if (answer && answer->ok() && **answer) {
    known_ = (**answer)->revision();
    auto rules = RulesOf((**answer)->config());
    news = rules.ok() ? *std::move(rules) : std::vector<Rule>();
  }
  if (!begins) return news;
  next_look_ = clock_.Now() + kInterval;
  const bool begun = look_(known_, [shared = shared_](Answer told) {
    const base::MutexLock lock(shared->mutex);
    shared->answer = std::move(told);
    shared->looks = false;
  });
  if (!begun) {
    const base::MutexLock lock(shared_->mutex);
    shared_->looks = false;
  }
  return news;
}

ClusterRules::Look LookIn(session::Session& session) {
  return [&session](std::uint64_t known, std::function<void(ClusterRules::Answer)> done) {
    return session.Do([known, done = std::move(done)](client::Client& client) {
      done(AskForNews(client, known));
    });
  };
}

}  // namespace onepiece::history
