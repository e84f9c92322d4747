#include "cluster/history/conditions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/config/watched.h"

namespace onepiece::history {
namespace {

// A part is old after several polls (1 s) and reports (0.5 s).
constexpr std::int64_t kOldMs = 15'000;
constexpr double kReportSeconds = 10;
constexpr double kSkewSeconds = 1;
constexpr std::int64_t kWaitingMs = 5'000;
constexpr std::int64_t kFailedJobsMs = 10 * 60'000;
constexpr std::int64_t kFailedPlansMs = 60 * 60'000;

using Findings = std::vector<Finding>;

template <typename Matches>
Findings FindNodes(const session::Snapshot& snapshot, Matches matches) {
  Findings found;
  for (const v1::Node& node : snapshot.cluster.value->nodes()) {
    if (matches(node)) found.push_back({"node/" + node.node_id(), std::nullopt, node.detail()});
  }
  return found;
}

Findings DeadNodes(const session::Snapshot& snapshot, const session::LinkStatus&) {
  return FindNodes(snapshot, [](const v1::Node& node) { return node.state() == v1::Node::DEAD; });
}

Findings QuarantinedNodes(const session::Snapshot& snapshot, const session::LinkStatus&) {
  return FindNodes(snapshot,
                   [](const v1::Node& node) { return node.activity() == v1::QUARANTINED; });
}

Findings StuckNodes(const session::Snapshot& snapshot, const session::LinkStatus&) {
  Findings found =
      FindNodes(snapshot, [](const v1::Node& node) { return node.activity() == v1::STUCK; });
  for (Finding& finding : found) {
    const auto& nodes = snapshot.cluster.value->nodes();
    // 5 is the length of "node/". The node is always found, because the finding was made from it.
    const auto node = std::ranges::find(nodes, finding.entity.substr(5), &v1::Node::node_id);
    finding.value = static_cast<double>(node->load().no_progress_ms()) / 1000;
  }
  return found;
}

Findings SilentNodes(const session::Snapshot& snapshot, const session::LinkStatus& link) {
  Findings found;
  // Reports carry the server's time, so the local time is corrected by the skew.
  const double now = static_cast<double>(snapshot.cluster.as_of_ms) / 1000 + link.clock_skew_s;
  for (const v1::Node& node : snapshot.cluster.value->nodes()) {
    if (node.state() == v1::Node::DEAD || !node.has_last_report_time()) continue;
    const auto& time = node.last_report_time();
    const double age =
        now - static_cast<double>(time.seconds()) - static_cast<double>(time.nanos()) / 1e9;
    if (age > kReportSeconds) found.push_back({"node/" + node.node_id(), age, node.detail()});
  }
  return found;
}

Findings WrongClocks(const session::Snapshot& snapshot, const session::LinkStatus&) {
  Findings found;
  for (const v1::Node& node : snapshot.cluster.value->nodes()) {
    const double skew_s = static_cast<double>(node.load().clock_skew_ms()) / 1000;
    if (node.state() == v1::Node::DEAD || std::abs(skew_s) <= kSkewSeconds) continue;
    found.push_back({"node/" + node.node_id(), std::abs(skew_s),
                     absl::StrFormat("%.1f s %s the NodeManager's", std::abs(skew_s),
                                     skew_s > 0 ? "ahead of" : "behind")});
  }
  return found;
}

// A consumer takes messages out of its ring immediately and computes later. A message that waits
// for long means that the consumer does not look.
Findings StuckRings(const session::Snapshot& snapshot, const session::LinkStatus&) {
  Findings found;
  for (const session::RingEntry& ring : *snapshot.rings.value) {
    const bool waits = ring.health.used_slots() > 0 && ring.health.oldest_age_ms() >= kWaitingMs;
    const bool flows = ring.rates && ring.rates->messages_per_s > 0;
    if (!waits || flows || !ring.error.empty()) continue;
    found.push_back({"ring/" + ring.node_id,
                     static_cast<double>(ring.health.oldest_age_ms()) / 1000,
                     absl::StrCat(ring.health.used_slots(), " messages wait")});
  }
  return found;
}

Findings FailedJobs(const session::Snapshot& snapshot, const session::LinkStatus&) {
  struct Failures {
    int count = 0;
    const v1::Job* last = nullptr;
  };
  std::map<std::string, Failures> by_app;
  for (const session::JobEntry& entry : snapshot.jobs.value->jobs) {
    const v1::Job& job = *entry.job;
    const std::int64_t end_ms = job.end_time().seconds() * 1000;
    if (job.state() != v1::Job::FAILED || end_ms < snapshot.at_ms - kFailedJobsMs) continue;
    Failures& failures = by_app[job.app_id()];
    ++failures.count;
    if (failures.last == nullptr || end_ms > failures.last->end_time().seconds() * 1000)
      failures.last = &job;
  }
  Findings found;
  for (const auto& [app, failures] : by_app) {
    const v1::Job& job = *failures.last;
    found.push_back({"app/" + app, failures.count,
                     absl::StrCat("the last one is ", job.uid(), ": ", job.error().reason(), " ",
                                  job.error().message())});
  }
  return found;
}

Findings NoLeader(const session::Snapshot& snapshot, const session::LinkStatus&) {
  const session::Replicas& replicas = *snapshot.replicas.value;
  const bool led = std::ranges::any_of(replicas, [](const session::ReplicaEntry& replica) {
    return replica.error.empty() && replica.status &&
           replica.status->role() == v1::ReplicaStatus::LEADER;
  });
  if (led || replicas.empty()) return {};
  const auto silent = std::ranges::count_if(
      replicas, [](const session::ReplicaEntry& replica) { return !replica.error.empty(); });
  return {{"cluster", std::nullopt,
           absl::StrCat(silent, " of ", replicas.size(), " replicas do not answer")}};
}

Findings FailedPlans(const session::Snapshot& snapshot, const session::LinkStatus&) {
  Findings found;
  for (const v1::Plan& plan : snapshot.plans.value->plans()) {
    if (plan.state() != v1::Plan::FAILED || !plan.undone_by().empty()) continue;
    if (plan.end_unix_ms() < snapshot.at_ms - kFailedPlansMs) continue;
    const auto failed = std::ranges::find(plan.moves(), v1::Move::FAILED,
                                          [](const v1::Move& m) { return m.phase(); });
    found.push_back({"plan/" + plan.plan_id(), std::nullopt,
                     failed == plan.moves().end()
                         ? plan.reason()
                         : absl::StrCat(failed->node_id(), ": ", failed->detail())});
  }
  return found;
}

constexpr std::array<Condition, config::kAlertConditions.size()> kConditions = {{
    {"node-dead", Source::kCluster, DeadNodes},
    {"job-failed", Source::kJobs, FailedJobs},
    {"ring-stuck", Source::kRings, StuckRings},
    {"no-progress", Source::kCluster, StuckNodes},
    {"no-leader", Source::kReplicas, NoLeader},
    {"stale-reports", Source::kCluster, SilentNodes},
    {"quarantined", Source::kCluster, QuarantinedNodes},
    {"clock-skew", Source::kCluster, WrongClocks},
    {"plan-failed", Source::kPlans, FailedPlans},
}};
static_assert(std::ranges::equal(kConditions, config::kAlertConditions, {}, &Condition::name));

template <typename T>
std::string WhyOld(const session::Part<T>& part, std::int64_t now_ms) {
  if (!part.value) return part.error.empty() ? "nothing has been heard yet" : part.error;
  if (now_ms - part.as_of_ms <= kOldMs) return "";
  return absl::StrCat("the last news are ", (now_ms - part.as_of_ms) / 1000, " s old",
                      part.error.empty() ? "" : ": ", part.error);
}

int Rank(session::Alert::State state) {
  switch (state) {
    case session::Alert::State::kFiring:
      return 0;
    case session::Alert::State::kError:
      return 1;
    case session::Alert::State::kNoData:
      return 2;
    case session::Alert::State::kPending:
      return 3;
    case session::Alert::State::kResolved:
      return 4;
  }
  return 4;
}

}  // namespace

bool IsWorse(const session::Alert& a, const session::Alert& b) {
  const auto key = [](const session::Alert& alert) {
    return std::make_tuple(Rank(alert.state), -static_cast<int>(alert.severity), alert.since_ms,
                           std::string_view(alert.id));
  };
  return key(a) < key(b);
}

std::string WhyNoData(Source source, const session::Snapshot& snapshot,
                      const session::LinkStatus& link) {
  if (link.link != session::Link::kLive && link.link != session::Link::kLagging &&
      link.link != session::Link::kOffline) {
    return link.detail.empty() ? "there is no connection" : "no connection: " + link.detail;
  }
  switch (source) {
    case Source::kCluster:
      return WhyOld(snapshot.cluster, snapshot.at_ms);
    case Source::kElasticity:
      return WhyOld(snapshot.elasticity, snapshot.at_ms);
    case Source::kRings:
      return WhyOld(snapshot.rings, snapshot.at_ms);
    case Source::kJobs:
      return WhyOld(snapshot.jobs, snapshot.at_ms);
    case Source::kDatabases:
      return WhyOld(snapshot.databases, snapshot.at_ms);
    case Source::kReplicas:
      return WhyOld(snapshot.replicas, snapshot.at_ms);
    case Source::kPlans:
      return WhyOld(snapshot.plans, snapshot.at_ms);
    case Source::kAlways:
      return "";
  }
  return "";
}

const Condition* FindCondition(std::string_view name) {
  const auto found = std::ranges::find(kConditions, name, &Condition::name);
  return found == kConditions.end() ? nullptr : &*found;
}

std::string ConditionNames() {
  std::string names;
  for (const Condition& condition : kConditions) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(condition.name));
  }
  return names;
}

std::optional<Source> SourceOfSeries(std::string_view pattern) {
  static constexpr std::array<Source, config::kSeriesKinds.size()> kSources = {
      Source::kCluster,  Source::kRings, Source::kElasticity, Source::kDatabases,
      Source::kReplicas, Source::kJobs,  Source::kAlways};
  for (std::size_t i = 0; i < kSources.size(); ++i) {
    if (pattern.starts_with(config::kSeriesKinds[i])) return kSources[i];
  }
  return std::nullopt;
}

}  // namespace onepiece::history
