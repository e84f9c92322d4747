#include "cluster/history/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cluster/base/utf8.h"
#include "cluster/client/client.h"
#include "cluster/history/pieces.h"

namespace onepiece::history {
namespace {

constexpr std::size_t kMaxCellText = 300;
constexpr const char* kUnknownText = "unknown";

struct Fact {
  const char* what;
  std::string text;
  std::optional<double> number;
};
/// The first fact is the one that is shown for an entity that came or went.
using Facts = std::vector<Fact>;
using Entities = std::map<std::string, Facts>;

Fact Count(const char* what, std::uint64_t count) {
  return {what, absl::StrCat(count), static_cast<double>(count)};
}

// Rounds to whole percent, because smaller differences are noise.
Fact Share(const char* what, std::optional<double> share) {
  if (!share || !std::isfinite(*share)) return {what, kUnknownText, std::nullopt};
  const double percent = std::round(100 * *share);
  return {what, absl::StrFormat("%.0f %%", percent), percent};
}

Entities NodesOf(const v1::Cluster& cluster) {
  Entities entities;
  for (const v1::Node& node : cluster.nodes()) {
    Facts facts = {{"state", v1::Node::State_Name(node.state()), {}}};
    if (node.role() == v1::INSTANCE) {
      facts.push_back({"activity", v1::Activity_Name(node.activity()), {}});
      const std::string& stage = node.assignment().stage().stage();
      facts.push_back({"stage", stage.empty() ? "none" : stage, {}});
      const auto& apps = node.assignment().app_ids();
      facts.push_back({"applications", apps.empty() ? "none" : absl::StrJoin(apps, ", "), {}});
      const std::string& pool = node.placement().pool();
      facts.push_back({"pool", pool.empty() ? "none" : pool, {}});
    }
    facts.push_back({"incarnation", absl::StrCat(node.incarnation()), {}});
    facts.push_back(Share("utilization", node.has_load()
                                             ? std::optional<double>(node.load().utilization())
                                             : std::nullopt));
    entities.emplace("node/" + node.node_id(), std::move(facts));
  }
  return entities;
}

Entities WorkflowsOf(const v1::Cluster& cluster) {
  Entities entities;
  for (const v1::Workflow& workflow : cluster.workflows()) {
    std::vector<std::string> stages;
    for (const v1::StageSpec& stage : workflow.stages()) stages.push_back(stage.stage());
    entities.emplace("app/" + workflow.app_id(),
                     Facts{{"stages", stages.empty() ? "none" : absl::StrJoin(stages, ", "), {}}});
  }
  return entities;
}

Entities PoolsOf(const v1::Elasticity& elasticity) {
  Entities entities;
  for (const v1::PoolStatus& pool : elasticity.pools()) {
    Facts facts = {
        Count("instances", static_cast<std::uint64_t>(std::max(0, pool.instances()))),
        Share("utilization",
              pool.has_utilization() ? std::optional<double>(pool.utilization()) : std::nullopt)};
    entities.emplace("pool/" + pool.workflow_set() + "/" + pool.pool(), std::move(facts));
  }
  return entities;
}

Entities RingsOf(const session::Rings& rings) {
  Entities entities;
  for (const session::RingEntry& ring : rings) {
    const v1::RingHealth& health = ring.health;
    entities.emplace("ring/" + ring.node_id,
                     Facts{Count("used slots", health.used_slots()),
                           Count("slots", health.slots()),
                           Count("delivered", health.counters().delivered()),
                           Count("stalls", health.counters().stalls()),
                           Count("corrupted", health.counters().corrupted()),
                           {"answer", ring.error.empty() ? "answers" : ring.error, {}}});
  }
  return entities;
}

// Every state has a count, even if it is 0. When the list leaves jobs out, the counts of ended jobs
// are lower bounds.
Entities JobsOf(const session::JobList& list) {
  std::map<int, std::uint64_t> counts;
  std::uint64_t unknown = 0, active = 0;
  for (const session::JobEntry& entry : list.jobs) {
    if (!client::IsTerminal(entry.job->state())) ++active;
    if (entry.certainty == session::Certainty::kUnknownAtEnd) {
      ++unknown;
    } else {
      ++counts[entry.job->state()];
    }
  }
  Facts facts;
  const auto add = [&](const char* what, std::uint64_t count, bool at_least) {
    facts.push_back(at_least ? Fact{what, absl::StrCat("at least ", count), {}}
                             : Count(what, count));
  };
  const bool active_left_out = list.truncated && active >= kMaxActiveJobs;
  add("queued", counts[v1::Job::QUEUED], active_left_out);
  add("running", counts[v1::Job::RUNNING], active_left_out);
  add("succeeded", counts[v1::Job::SUCCEEDED], list.truncated);
  add("failed", counts[v1::Job::FAILED], list.truncated);
  add("cancelled", counts[v1::Job::CANCELLED], list.truncated);
  add("expired", counts[v1::Job::EXPIRED], list.truncated);
  add("unknown at the recording's end", unknown, active_left_out);
  return {{"jobs", std::move(facts)}};
}

Entities PlansOf(const v1::ListPlansResponse& plans) {
  Entities entities;
  for (const v1::Plan& plan : plans.plans())
    entities.emplace("plan/" + plan.plan_id(),
                     Facts{{"state", v1::Plan::State_Name(plan.state()), {}}});
  return entities;
}

const char* StateName(session::Alert::State state) {
  switch (state) {
    case session::Alert::State::kPending:
      return "pending";
    case session::Alert::State::kFiring:
      return "firing";
    case session::Alert::State::kResolved:
      return "resolved";
    case session::Alert::State::kNoData:
      return "no data";
    case session::Alert::State::kError:
      break;
  }
  return "error";
}

Entities AlertsOf(const session::Alerts& alerts) {
  Entities entities;
  for (const session::Alert& alert : alerts) {
    Facts facts = {{"state", StateName(alert.state), {}}};
    if (!alert.acknowledged_by.empty()) facts.push_back({"seen by", alert.acknowledged_by, {}});
    entities.emplace("alert/" + alert.id, std::move(facts));
  }
  return entities;
}

class Table {
 public:
  template <typename T>
  void Add(const char* part, const session::Part<T>& a, const session::Part<T>& b,
           Entities (*facts_of)(const T& value)) {
    if (a.value == b.value) return;
    if (!a.value || !b.value) {
      rows_.push_back({"cluster",
                       part,
                       a.value ? "known" : kUnknownText,
                       b.value ? "known" : kUnknownText,
                       {}});
      return;
    }
    const Entities before = facts_of(*a.value), after = facts_of(*b.value);
    auto old = before.begin();
    for (const auto& [entity, facts] : after) {
      for (; old != before.end() && old->first < entity; ++old) Gone(old->first, old->second);
      if (old != before.end() && old->first == entity) {
        Compare(entity, old->second, facts);
        ++old;
      } else {
        Push(entity, facts.front().what, "", facts.front().text, {});
      }
    }
    for (; old != before.end(); ++old) Gone(old->first, old->second);
  }
  std::vector<Difference> Take() { return std::move(rows_); }

 private:
  void Gone(const std::string& entity, const Facts& facts) {
    Push(entity, facts.front().what, facts.front().text, "", {});
  }
  // Matches facts by name, because an entity does not have all facts at all times.
  void Compare(const std::string& entity, const Facts& before, const Facts& after) {
    const auto find = [](const Facts& facts, std::string_view what) -> const Fact* {
      for (const Fact& fact : facts) {
        if (fact.what == what) return &fact;
      }
      return nullptr;
    };
    for (const Fact& fact : after) {
      const Fact* old = find(before, fact.what);
      const std::string text = old == nullptr ? "none" : old->text;
      if (text == fact.text) continue;
      std::optional<double> change;
      if (old != nullptr && old->number && fact.number) change = *fact.number - *old->number;
      Push(entity, fact.what, text, fact.text, change);
    }
    for (const Fact& fact : before) {
      if (find(after, fact.what) == nullptr) Push(entity, fact.what, fact.text, "none", {});
    }
  }
  void Push(const std::string& entity, const char* what, const std::string& before,
            const std::string& after, std::optional<double> change) {
    rows_.push_back({base::ToUtf8(entity, kMaxCellText), what, base::ToUtf8(before, kMaxCellText),
                     base::ToUtf8(after, kMaxCellText), change});
  }

  std::vector<Difference> rows_;
};

}  // namespace

std::vector<Difference> Compare(const session::Snapshot& a, const session::Snapshot& b) {
  Table table;
  table.Add("nodes", a.cluster, b.cluster, NodesOf);
  if (a.cluster.value && b.cluster.value) table.Add("workflows", a.cluster, b.cluster, WorkflowsOf);
  table.Add("pools", a.elasticity, b.elasticity, PoolsOf);
  table.Add("rings", a.rings, b.rings, RingsOf);
  table.Add("jobs", a.jobs, b.jobs, JobsOf);
  table.Add("plans", a.plans, b.plans, PlansOf);
  table.Add("alerts", a.alerts, b.alerts, AlertsOf);
  return table.Take();
}

}  // namespace onepiece::history
