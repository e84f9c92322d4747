#include "nodemanager/service/reported_states.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"

namespace onepiece::nodemanager {
namespace {

absl::Status ReportsEnd() {
  return base::MakeError(absl::StatusCode::kUnavailable, "SHUTTING_DOWN",
                         "the NodeManager is shutting down");
}

}  // namespace

ReportedStates::ReportedStates(Commit commit)
    : commit_(std::move(commit)), thread_([this](const std::stop_token& stop) { Run(stop); }) {}

void ReportedStates::Add(v1::SetNodeState change, Answer answer) {
  absl::Status refused;
  {
    const base::MutexLock lock(mutex_);
    if (stopped_) {
      refused = ReportsEnd();
    } else if (answers_ >= kMaxAnswers) {
      refused = base::MakeError(absl::StatusCode::kResourceExhausted, "REPORTS_BUSY",
                                absl::StrCat(answers_, " reports wait already: report again"));
    } else {
      Waiting& waiting = waiting_[{change.node_id(), change.incarnation()}];
      waiting.change = std::move(change);
      waiting.answers.push_back(std::move(answer));
      ++answers_;
    }
  }
  if (!refused.ok()) return answer(refused);
  added_.NotifyOne();
}

void ReportedStates::Stop() {
  {
    const base::MutexLock lock(mutex_);
    stopped_ = true;
  }
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

std::vector<ReportedStates::Waiting> ReportedStates::Take(const std::stop_token& stop) {
  std::vector<Waiting> batch;
  base::MutexLock lock(mutex_);
  added_.Wait(lock, stop,
              [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !waiting_.empty(); });
  while (!waiting_.empty() && batch.size() < kMaxBatch) {
    batch.push_back(std::move(waiting_.begin()->second));
    answers_ -= batch.back().answers.size();
    waiting_.erase(waiting_.begin());
  }
  return batch;
}

void ReportedStates::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const std::vector<Waiting> batch = Take(stop);
    if (!batch.empty()) commit_(batch);
  }
  // Nobody is added any more.
  for (std::vector<Waiting> rest = Take(stop); !rest.empty(); rest = Take(stop)) {
    for (const Waiting& waiting : rest) {
      for (const Answer& answer : waiting.answers) answer(ReportsEnd());
    }
  }
}

}  // namespace onepiece::nodemanager
