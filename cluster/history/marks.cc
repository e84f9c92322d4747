#include "cluster/history/marks.h"

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "cluster/base/utf8.h"
#include "cluster/history/codec.h"
#include "cluster/history/pieces.h"

namespace onepiece::history {
namespace {

constexpr std::size_t kMaxMarks = 200;
constexpr std::size_t kMaxMarkText = 500;
// A job that had ended longer than this before it was listed is no news.
constexpr std::int64_t kNewsMs = 10'000;

class Marks {
 public:
  explicit Marks(std::int64_t at_ms) : at_ms_(at_ms) {}
  void Add(Mark::Kind kind, const std::string& entity, const std::string& text) {
    if (marks_.size() >= kMaxMarks) {
      ++more_;
      return;
    }
    marks_.push_back({at_ms_, kind, entity, base::ToUtf8(text, kMaxMarkText)});
  }
  std::vector<Mark> Take() {
    if (more_ > 0) {
      marks_.push_back({at_ms_, Mark::Kind::kTopology, "cluster",
                        absl::StrCat(more_, " more changes at this moment")});
    }
    return std::move(marks_);
  }

 private:
  const std::int64_t at_ms_;
  std::vector<Mark> marks_;
  int more_ = 0;
};

void CompareNodes(const v1::Node& before, const v1::Node& now, Marks& marks) {
  const auto add = [&](const std::string& what) {
    marks.Add(Mark::Kind::kTopology, "node/" + now.node_id(), now.node_id() + what);
  };
  const std::string because = now.detail().empty() ? "" : ": " + now.detail();
  if (now.state() != before.state()) {
    if (now.state() == v1::Node::DEAD) add(" died" + because);
    if (now.state() == v1::Node::READY) add(" is ready");
    if (now.state() == v1::Node::STARTING && now.incarnation() == before.incarnation()) {
      add(" is starting");
    }
  }
  if (now.incarnation() != before.incarnation()) {
    // The supervisor may restart a process between two snapshots. A new incarnation then shows that
    // the process before has died.
    add(before.state() == v1::Node::DEAD ? " has started anew" : " died and has started anew");
  }
  if (now.activity() != before.activity()) {
    if (now.activity() == v1::QUARANTINED) add(" is quarantined" + because);
    if (now.activity() == v1::STUCK) add(" is stuck" + because);
    if (now.activity() == v1::DRAINING) add(" is draining");
  }
  if (now.placement().pool() != before.placement().pool()) {
    add(now.placement().pool().empty() ? " is idle" : " goes to " + now.placement().pool());
  }
}

void CompareClusters(const v1::Cluster& before, const v1::Cluster& now, Marks& marks) {
  std::unordered_map<std::string_view, const v1::Node*> old;
  for (const v1::Node& node : before.nodes()) old.emplace(node.node_id(), &node);
  for (const v1::Node& node : now.nodes()) {
    const auto known = old.find(node.node_id());
    if (known == old.end()) {
      marks.Add(Mark::Kind::kTopology, "node/" + node.node_id(), node.node_id() + " joined");
      continue;
    }
    CompareNodes(*known->second, node, marks);
    old.erase(known);
  }
  for (const auto& [id, node] : old) {
    marks.Add(Mark::Kind::kTopology, "node/" + node->node_id(), node->node_id() + " is gone");
  }
  std::map<std::string_view, bool> workflows;  // Whether the workflow is still there.
  for (const v1::Workflow& workflow : before.workflows()) workflows[workflow.app_id()] = false;
  for (const v1::Workflow& workflow : now.workflows()) {
    const auto known = workflows.find(workflow.app_id());
    if (known == workflows.end()) {
      marks.Add(Mark::Kind::kTopology, "app/" + workflow.app_id(),
                "workflow " + workflow.app_id() + " was added");
    } else {
      known->second = true;
    }
  }
  for (const auto& [app, there] : workflows) {
    if (there) continue;
    marks.Add(Mark::Kind::kTopology, absl::StrCat("app/", std::string(app)),
              absl::StrCat("workflow ", std::string(app), " was deleted"));
  }
}

std::string_view PlanWord(v1::Plan::State state) {
  switch (state) {
    case v1::Plan::RUNNING:
      return "started";
    case v1::Plan::UNCONFIRMED:
      return "waits for confirmation";
    case v1::Plan::DONE:
      return "is done";
    case v1::Plan::REVERTING:
      return "is being reverted";
    case v1::Plan::REVERTED:
      return "was reverted";
    case v1::Plan::FAILED:
      return "failed";
    default:
      return "";
  }
}

void ComparePlans(const v1::ListPlansResponse& before, const v1::ListPlansResponse& now,
                  Marks& marks) {
  std::unordered_map<std::string_view, v1::Plan::State> old;
  for (const v1::Plan& plan : before.plans()) old.emplace(plan.plan_id(), plan.state());
  for (const v1::Plan& plan : now.plans()) {
    const auto known = old.find(plan.plan_id());
    if (known != old.end() && known->second == plan.state()) continue;
    std::string text =
        absl::StrCat("plan ", plan.plan_id(), " ", std::string(PlanWord(plan.state())));
    if (known == old.end()) absl::StrAppend(&text, " (", plan.actor(), ": ", plan.reason(), ")");
    marks.Add(Mark::Kind::kPlan, "plan/" + plan.plan_id(), text);
  }
}

void CompareAlerts(const session::Alerts& before, const session::Alerts& now, Marks& marks) {
  std::unordered_map<std::string_view, session::Alert::State> old;
  for (const session::Alert& alert : before) old.emplace(alert.id, alert.state);
  for (const session::Alert& alert : now) {
    const auto known = old.find(alert.id);
    if (known != old.end() && known->second == alert.state) continue;
    if (alert.state == session::Alert::State::kFiring)
      marks.Add(Mark::Kind::kAlert, alert.entity, alert.rule + ": " + alert.text);
    if (alert.state == session::Alert::State::kResolved && known != old.end())
      marks.Add(Mark::Kind::kAlert, alert.entity, alert.rule + " is over: " + alert.text);
  }
}

void CompareJobs(const session::JobList& before, const session::JobList& now, std::int64_t then_ms,
                 Marks& marks) {
  std::unordered_map<std::string_view, const v1::Job*> old;
  for (const session::JobEntry& entry : before.jobs) old.emplace(entry.job->uid(), entry.job.get());
  for (const session::JobEntry& entry : now.jobs) {
    const v1::Job& job = *entry.job;
    if (job.state() != v1::Job::FAILED) continue;
    const auto known = old.find(job.uid());
    const bool news = known == old.end() ? job.end_time().seconds() * 1000 >= then_ms - kNewsMs
                                         : known->second->state() != v1::Job::FAILED;
    if (!news) continue;
    marks.Add(Mark::Kind::kJobFailed, "job/" + job.uid(),
              absl::StrCat("job ", job.uid(), " of ", job.app_id(),
                           " failed: ", job.error().reason(), " ", job.error().message()));
  }
}

template <typename T>
bool Differ(const session::Part<T>& before, const session::Part<T>& now) {
  // These are pointers. Feeds keep the pointer while nothing has changed, so an unchanged part
  // costs nothing here.
  return before.value && now.value && before.value != now.value;
}

}  // namespace

std::vector<Mark> WhatHappened(const session::Snapshot& before, const session::Snapshot& now) {
  Marks marks(now.at_ms);
  if (Differ(before.cluster, now.cluster))
    CompareClusters(*before.cluster.value, *now.cluster.value, marks);
  if (Differ(before.plans, now.plans)) ComparePlans(*before.plans.value, *now.plans.value, marks);
  if (now.alerts.value && before.alerts.value != now.alerts.value) {
    static const session::Alerts none;
    CompareAlerts(before.alerts.value ? *before.alerts.value : none, *now.alerts.value, marks);
  }
  if (Differ(before.jobs, now.jobs))
    CompareJobs(*before.jobs.value, *now.jobs.value, before.at_ms, marks);
  return marks.Take();
}

std::uint32_t MarkSum(std::int64_t at_ms, std::int64_t kind, std::string_view entity,
                      std::string_view text) {
  return RowSum(at_ms, text, RowSum(kind, entity));
}

}  // namespace onepiece::history
