#include "gui/models/job_wait.h"

#include <QStringList>
#include <algorithm>

#include "gui/models/format.h"
#include "gui/models/permissions.h"

namespace onepiece::gui {
namespace {

bool Serves(const v1::Node& node, const std::string& set, const std::string& app,
            const std::string& stage) {
  const v1::Assignment& placed = node.assignment();
  if (node.role() != v1::INSTANCE || node.state() == v1::Node::DEAD ||
      placed.stage().stage() != stage) {
    return false;
  }
  const std::string& of =
      placed.workflow_set().empty() ? node.workflow_set() : placed.workflow_set();
  return (set.empty() || of == set) &&
         std::ranges::find(placed.app_ids(), app) != placed.app_ids().end();
}

void Add(StageQueue& queue, double& compute_s, const v1::Node& node, const std::string& app) {
  switch (node.activity()) {
    case v1::LOADING:
      ++queue.loading;
      break;
    case v1::STUCK:
      ++queue.stuck;
      break;
    case v1::SERVING:
      ++queue.serving;
      queue.workers += std::max(1, node.load().workers());
      queue.utilization += node.load().utilization();
      break;
    default:
      break;
  }
  queue.queued += std::max<std::int64_t>(0, node.load().queued_jobs());
  for (const v1::StageLoad& load : node.load().stages()) {
    if (load.app_id() != app || load.stage() != queue.stage) continue;
    queue.samples += load.jobs();
    compute_s += load.compute_s();
  }
}

const v1::Workflow* FindWorkflow(const session::Snapshot& snapshot, const std::string& app) {
  if (snapshot.cluster.value == nullptr) return nullptr;
  for (const v1::Workflow& workflow : snapshot.cluster.value->workflows()) {
    if (workflow.app_id() == app) return &workflow;
  }
  return nullptr;
}

/// "Instances that serve it: 2, 97 % busy."
QString WhoServes(const StageQueue& queue) {
  if (queue.serving > 0) {
    return Tr("Instances that serve it: %1, %2 busy.")
        .arg(queue.serving)
        .arg(FormatShare(queue.utilization));
  }
  if (queue.loading > 0)
    return Tr("No instance serves it yet; %1 load its model.").arg(queue.loading);
  if (queue.stuck > 0)
    return Tr("No instance serves it; %1 have it and are stuck.").arg(queue.stuck);
  return Tr("No instance serves it: it waits until one does. See Rebalance.");
}

QString About(double seconds, const StageQueue& queue) {
  return Tr("About %1, at %2 a job (mean of %3).")
      .arg(FormatSeconds(seconds), FormatSeconds(*queue.seconds_per_job))
      .arg(queue.samples);
}

}  // namespace

std::optional<double> StageQueue::wait_s(std::int64_t ahead) const {
  if (!seconds_per_job.has_value() || workers == 0) return std::nullopt;
  return static_cast<double>(ahead) * *seconds_per_job / workers;
}

std::vector<StageQueue> QueuesOf(const session::Snapshot& snapshot, const std::string& set,
                                 const std::string& app) {
  std::vector<StageQueue> queues;
  const v1::Workflow* workflow = FindWorkflow(snapshot, app);
  if (workflow == nullptr || AreNodesHidden(snapshot)) return queues;
  for (const v1::StageSpec& stage : workflow->stages()) {
    StageQueue& queue = queues.emplace_back();
    queue.stage = stage.stage();
    double compute_s = 0;
    for (const v1::Node& node : snapshot.cluster.value->nodes()) {
      if (Serves(node, set, app, stage.stage())) Add(queue, compute_s, node, app);
    }
    if (queue.serving > 0) queue.utilization /= queue.serving;
    if (queue.samples >= kMinSamples)
      queue.seconds_per_job = compute_s / static_cast<double>(queue.samples);
  }
  return queues;
}

QString WhyItWaits(const session::Snapshot& snapshot, const v1::Job& job,
                   const std::vector<JobRow>& active, std::int64_t now_ms) {
  if (job.state() != v1::Job::QUEUED) return {};
  const auto queues = QueuesOf(snapshot, job.workflow_set(), job.app_id());
  const std::string stage =
      !job.stage().empty() || queues.empty() ? job.stage() : queues.front().stage;
  // `active` is oldest first, so the jobs in front of this one came to the set before it.
  std::int64_t ahead = 0;
  for (const JobRow& row : active) {
    if (row.job->uid() == job.uid()) break;
    ahead += row.job->state() == v1::Job::QUEUED && row.job->workflow_set() == job.workflow_set() &&
             (row.job->stage() == stage || row.job->stage().empty());
  }
  QStringList text = {stage.empty() ? Tr("Waits to be taken by its first stage.")
                                    : Tr("Waits for %1. Older jobs of its set that wait there: %2.")
                                          .arg(SafeText(stage, 40))
                                          .arg(ahead)};
  const auto queue = std::ranges::find(queues, stage, &StageQueue::stage);
  if (queue != queues.end()) {
    text.append(WhoServes(*queue));
    // One is added for the job that is being computed now.
    const auto wait = queue->wait_s(ahead + 1);
    if (wait.has_value()) text.append(About(*wait, *queue));
  } else if (snapshot.cluster.value == nullptr || AreNodesHidden(snapshot)) {
    text.append(Tr("Which instances serve it is not known."));
  }
  if (job.has_deadline()) {
    const double left = static_cast<double>(ToMs(job.deadline()) - now_ms) * 1e-3;
    text.append(left > 0 ? Tr("It fails when it is not done in %1.").arg(FormatSeconds(left))
                         : Tr("Its deadline has passed."));
  }
  return text.join(u' ');
}

QString QueueNow(const session::Snapshot& snapshot, const std::string& app) {
  const auto queues = QueuesOf(snapshot, {}, app);
  if (queues.empty()) return Tr("What waits before its stages is not known.");
  QStringList text;
  std::int64_t queued = 0;
  double wait_s = 0;
  bool known = true;
  for (const StageQueue& queue : queues) {
    queued += queue.queued;
    if (queue.serving == 0)
      text.append(Tr("%1: %2").arg(SafeText(queue.stage, 40), WhoServes(queue)));
    const auto wait = queue.wait_s(queue.queued);
    known = known && (wait.has_value() || queue.queued == 0);
    wait_s += wait.value_or(0);
  }
  if (queued == 0) {
    text.prepend(Tr("Nothing waits before its stages."));
  } else if (known) {
    text.prepend(Tr("Jobs that wait before its stages: %1, about %2.")
                     .arg(queued)
                     .arg(FormatSeconds(wait_s)));
  } else {
    text.prepend(
        Tr("Jobs that wait before its stages: %1. How long that takes is not measured yet.")
            .arg(queued));
  }
  if (snapshot.elasticity.value != nullptr) {
    for (const v1::AppStatus& status : snapshot.elasticity.value->apps()) {
      if (status.app_id() != app || status.rejected_per_s() <= 0) continue;
      text.append(Tr("Set %1 is full: it refuses %2 of %3 jobs.")
                      .arg(SafeText(status.workflow_set(), 40), FormatRate(status.rejected_per_s()),
                           FormatRate(status.asked_per_s())));
    }
  }
  return text.join(u' ');
}

}  // namespace onepiece::gui
