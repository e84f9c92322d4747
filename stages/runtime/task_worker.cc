#include "stages/runtime/task_worker.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "stages/runtime/stage_runner.h"

namespace onepiece::runtime {
namespace {

// How long Pop waits at most. Stopping does not depend on it, since the stop token ends the wait.
constexpr auto kIdleWait = std::chrono::seconds(10);
// A job during whose computation more processes have died, workers or instances, is not begun
// again here: it may be what kills them. node::KeptWork counts in the same way.
constexpr std::uint32_t kMaxDeaths = 2;

bool Names(const std::vector<AppModel>& models, const std::string& model_dir) {
  return std::any_of(models.begin(), models.end(),
                     [&](const AppModel& model) { return model.model_dir == model_dir; });
}

}  // namespace

TaskWorker::TaskWorker(ModelKey key, ModelStore& store, RequestScheduler& scheduler,
                       WorkEvents& events, Loaded loaded, base::Clock& clock)
    : key_(std::move(key)),
      store_(store),
      scheduler_(scheduler),
      events_(events),
      loaded_(std::move(loaded)),
      clock_(clock),
      loader_([this](const std::stop_token& stop) { LoadMain(stop); }),
      computer_([this](const std::stop_token& stop) { ComputeMain(stop); }) {}

TaskWorker::~TaskWorker() {
  Stop();
  for (auto& [model_dir, stage] : stages_) store_.Release(KeyOf(model_dir), std::move(stage));
}

ModelKey TaskWorker::KeyOf(const std::string& model_dir) const {
  ModelKey key = key_;
  key.load.model_dir = model_dir;
  return key;
}

void TaskWorker::RequestStop() {
  loader_.request_stop();
  computer_.request_stop();
}

void TaskWorker::Stop() {
  RequestStop();
  if (loader_.joinable()) loader_.join();
  if (computer_.joinable()) computer_.join();
}

void TaskWorker::Serve(std::vector<AppModel> models, std::uint64_t revision) {
  Stages dropped;
  {
    const base::MutexLock lock(mutex_);
    for (auto it = stages_.begin(); it != stages_.end();) {
      const auto next = std::next(it);
      if (!Names(models, it->first)) {
        // A running stage is not released here: another worker could get it from the store, and
        // runs of one stage must not overlap. End releases it.
        if (running_ && running_->stage == it->second.get()) {
          stages_.erase(it);
        } else {
          dropped.insert(stages_.extract(it));
        }
      }
      it = next;
    }
    wanted_ = std::move(models);
    wanted_revision_ = revision;
  }
  for (auto& [model_dir, stage] : dropped) store_.Release(KeyOf(model_dir), std::move(stage));
  // Notify only after the release: parked models can be dropped to make room for new ones.
  changed_.NotifyAll();
}

std::optional<base::Uid> TaskWorker::running() const {
  const base::MutexLock lock(mutex_);
  if (!running_) return std::nullopt;
  return running_->uid;
}

base::Duration TaskWorker::no_progress() const {
  const base::MutexLock lock(mutex_);
  return running_ ? clock_.Now() - running_->progressed : base::Duration::zero();
}

base::Duration TaskWorker::busy() const {
  const base::MutexLock lock(mutex_);
  return running_ ? busy_ + (clock_.Now() - running_->began) : busy_;
}

TaskWorker::Stages TaskWorker::stages() const {
  const base::MutexLock lock(mutex_);
  return stages_;
}

void TaskWorker::LoadMain(const std::stop_token& stop) {
  while (true) {
    std::vector<AppModel> models;
    std::uint64_t revision = 0;
    {
      base::MutexLock lock(mutex_);
      const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return wanted_revision_ != done_revision_;
      };
      if (!changed_.Wait(lock, stop, has_work)) return;
      models = wanted_;
      revision = wanted_revision_;
    }
    const auto outcome = LoadMissing(models, revision, stop);
    if (stop.stop_requested()) return;
    // The callback takes the task manager's lock, under which busy() and running() take this
    // worker's. So it is called without a lock.
    if (outcome) loaded_(*outcome);
  }
}

std::optional<TaskWorker::Outcome> TaskWorker::LoadMissing(const std::vector<AppModel>& models,
                                                           std::uint64_t revision,
                                                           const std::stop_token& stop) {
  Outcome outcome{.revision = revision, .apps = {}, .error = {}};
  std::map<std::string, absl::Status> failed;
  for (const auto& [app, model_dir, refused] : models) {
    if (!refused.ok()) failed.emplace(model_dir, refused);
    if (!stages().contains(model_dir) && !failed.contains(model_dir)) {
      if (absl::Status status = LoadModel(model_dir); !status.ok())
        failed.emplace(model_dir, std::move(status));
      const base::MutexLock lock(mutex_);
      if (wanted_revision_ != revision || stop.stop_requested()) return std::nullopt;
    }
    const auto failure = failed.find(model_dir);
    if (failure == failed.end()) {
      outcome.apps.push_back(app);
    } else if (outcome.error.ok()) {
      outcome.error = base::Annotate(failure->second, "application " + app);
    }
  }
  const base::MutexLock lock(mutex_);
  if (wanted_revision_ != revision) return std::nullopt;
  // A revision is done even if models failed. Otherwise this thread would load them again without a
  // pause; TaskManager::RetryFailed sets the pace with a new revision.
  done_revision_ = revision;
  return outcome;
}

absl::Status TaskWorker::LoadModel(const std::string& model_dir) {
  ONEPIECE_ASSIGN_OR_RETURN(LoadedModel model, store_.Get(KeyOf(model_dir)));
  if (model.load_time) events_.ModelLoaded(key_.stage, model_dir, *model.load_time);
  {
    const base::MutexLock lock(mutex_);
    // What is wanted now decides, not what was wanted when loading began. A later Serve that wants
    // the model too need not load it again.
    if (Names(wanted_, model_dir)) {
      stages_.emplace(model_dir, std::move(model.stage));
      changed_.NotifyAll();
      return absl::OkStatus();
    }
  }
  store_.Release(KeyOf(model_dir), std::move(model.stage));
  return absl::OkStatus();
}

void TaskWorker::ComputeMain(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      // Without a model the worker takes no items, so they stay queued until one is loaded.
      base::MutexLock lock(mutex_);
      const auto has_model = [this]()
                                 ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !stages_.empty(); };
      if (!changed_.Wait(lock, stop, has_model)) return;
    }
    if (auto item = scheduler_.Pop(stop, clock_.Now() + kIdleWait)) Compute(std::move(*item));
  }
}

std::shared_ptr<sdk::Stage> TaskWorker::Begin(const message::Header& header) {
  const base::MutexLock lock(mutex_);
  if (header.stage != key_.stage) return nullptr;
  const auto wanted = std::find_if(wanted_.begin(), wanted_.end(),
                                   [&](const AppModel& model) { return model.app == header.app; });
  const auto found = wanted == wanted_.end() ? stages_.end() : stages_.find(wanted->model_dir);
  if (found == stages_.end()) return nullptr;
  const auto now = clock_.Now();
  running_ = {header.uid, found->second.get(), found->first, now, now};
  return found->second;
}

void TaskWorker::End(std::shared_ptr<sdk::Stage> stage, base::Duration compute) {
  Running ended;
  {
    const base::MutexLock lock(mutex_);
    busy_ += compute;
    ended = *std::exchange(running_, std::nullopt);
    // Serve may have dropped the model, and the loader may have loaded it anew meanwhile. Only the
    // object itself tells.
    const auto kept = stages_.find(ended.model_dir);
    if (kept != stages_.end() && kept->second == stage) return;
  }
  store_.Release(KeyOf(ended.model_dir), std::move(stage));
}

absl::StatusOr<std::vector<message::Artifact>> TaskWorker::RunAgain(sdk::Stage& stage,
                                                                    WorkItem& item,
                                                                    const RunOptions& options) {
  message::Header& header = item.message.header;
  for (;;) {
    auto outputs = RunStage(stage, item.message, options);
    // When memory runs out, parked models make room, as they do when a model is loaded.
    if (absl::IsResourceExhausted(outputs.status()) && store_.stats().parked > 0) {
      store_.DropParked();
      continue;
    }
    if (base::GetReason(outputs.status()).reason != kWorkerLost) return outputs;
    if (++header.deaths > kMaxDeaths) {
      return base::MakeError(absl::StatusCode::kInternal, "QUARANTINED",
                             std::to_string(header.deaths) +
                                 " workers died while they computed stage " + header.stage +
                                 " of this job; it is not computed again (" +
                                 base::Message(outputs.status()) + ")");
    }
  }
}

void TaskWorker::Compute(WorkItem item) {
  const std::string app = item.message.header.app;
  std::shared_ptr<sdk::Stage> stage = Begin(item.message.header);
  if (stage == nullptr) {
    // The item was queued before the instance got this stage, or its model is not loaded yet.
    events_.Finished({std::move(item), {}, WrongStage(), {}});
    return scheduler_.Done(app, std::nullopt);
  }
  events_.Started(item);
  const auto start = clock_.Now();
  std::vector<message::Artifact> saved;
  const RunOptions options = {
      .clock = &clock_,
      .cancelled =
          [&] {
            return scheduler_.IsCancelled(item.message.header.uid) || scheduler_.IsFenced(item);
          },
      .progress =
          [&](int step, int steps) {
            {
              const base::MutexLock lock(mutex_);
              running_->progressed = clock_.Now();
            }
            events_.Progressed(item, step, steps);
          },
      .hand_over = [&](int) { return scheduler_.HandsOver(item.message.header.uid); },
      .saved = &saved};
  auto outputs = RunAgain(*stage, item, options);
  const WorkTiming timing = {.transfer = item.arrival_time - item.message.header.sent_time,
                             .queued = start - item.arrival,
                             .compute = clock_.Now() - start};
  if (!saved.empty()) AddSaved(item, saved);
  // Finished may wait for room. A worker that waits there must not count as one that computes
  // without progress.
  End(std::move(stage), timing.compute);
  events_.Finished({std::move(item), timing, std::move(outputs), {}});
  // Done comes last. Until then the scheduler still holds the item, so a drain counts it twice for
  // a moment, rather than never.
  scheduler_.Done(app, timing.compute);
}

}  // namespace onepiece::runtime
