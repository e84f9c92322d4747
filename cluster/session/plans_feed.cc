// Follows what the elasticity service tells: pools and limits, plans, and the audit log.
#include "cluster/rpc/replicas.h"
#include "cluster/session/feeds.h"

namespace onepiece::session {
namespace {

constexpr int kPlans = 100;
constexpr std::size_t kAuditEntries = 1000;
constexpr int kAuditPage = 100;

/// Keeps the newest entries of the audit log. A poll asks only for entries that are not known yet.
class AuditFeed {
 public:
  explicit AuditFeed(Feeds& feeds) : feeds_(feeds) {}
  void Forget() { known_ = nullptr; }

  absl::Status Poll(const std::stop_token& stop) {
    Audit fresh;
    v1::ListAuditRequest request;
    request.set_page_size(kAuditPage);
    bool met = false;
    while (!met && fresh.size() < kAuditEntries && !stop.stop_requested()) {
      auto page = feeds_.reads.ListAudit(request);
      if (!page.ok()) return page.status();
      for (v1::AuditEntry& entry : *page->mutable_entries()) {
        met = known_ != nullptr && !known_->empty() && Same(known_->front(), entry);
        if (met) break;
        fresh.push_back(std::move(entry));
      }
      if (page->next_page_token().empty()) break;
      request.set_page_token(page->next_page_token());
    }
    if (!fresh.empty() || known_ == nullptr) {
      // If the new entries do not reach a known one, the log has begun anew, and they are all that
      // it has.
      if (met) fresh.insert(fresh.end(), known_->begin(), known_->end());
      if (fresh.size() > kAuditEntries) fresh.resize(kAuditEntries);
      known_ = std::make_shared<const Audit>(std::move(fresh));
    }
    feeds_.board.Put(&Snapshot::audit, known_);
    return absl::OkStatus();
  }

 private:
  Feeds& feeds_;
  std::shared_ptr<const Audit> known_;
};

}  // namespace

void FollowPlans(Feeds& feeds, const std::stop_token& stop) {
  AuditFeed audit(feeds);
  Turns turns;
  std::uint64_t wakes = 0;
  std::shared_ptr<const v1::Elasticity> elasticity;
  std::shared_ptr<const v1::ListPlansResponse> plans;
  v1::ListPlansRequest newest;
  newest.set_page_size(kPlans);
  do {
    const Turns now = feeds.board.turns();
    if (now.resyncs != turns.resyncs || now.clusters != turns.clusters) audit.Forget();
    turns = now;
    auto state = feeds.reads.GetElasticity();
    if (state.ok()) {
      elasticity = Keep(elasticity, *std::move(state));
      feeds.board.Put(&Snapshot::elasticity, elasticity);
    } else {
      feeds.board.Fail(&Snapshot::elasticity, Explain(state.status()));
    }
    // When nobody answers, the other questions would only wait for the same timeout.
    absl::Status away = rpc::IsAboutTheReplica(state.status()) ? state.status() : absl::OkStatus();
    if (away.ok()) {
      auto listed = feeds.reads.ListPlans(newest);
      away = listed.status();
      if (listed.ok()) {
        plans = Keep(plans, *std::move(listed));
        feeds.board.Put(&Snapshot::plans, plans);
      }
    }
    if (!away.ok()) feeds.board.Fail(&Snapshot::plans, Explain(away));
    if (!rpc::IsAboutTheReplica(away)) away = audit.Poll(stop);
    if (!away.ok()) feeds.board.Fail(&Snapshot::audit, Explain(away));
  } while (feeds.board.Sleep(feeds.options.poll_interval, stop, wakes));
}

}  // namespace onepiece::session
