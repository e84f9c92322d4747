#include "stages/runtime/task_worker.h"

#include <algorithm>
#include <exception>

#include "cluster/base/status.h"
#include "stages/runtime/stage_runner.h"

namespace onepiece::runtime {
namespace {

// How long Pop waits before it looks at the stop token again by itself; stopping does not depend on
// it.
constexpr auto kIdleWait = std::chrono::seconds(10);

bool Names(const std::vector<AppModel>& models, const std::string& model_dir) {
  return std::any_of(models.begin(), models.end(),
                     [&](const AppModel& model) { return model.model_dir == model_dir; });
}

}  // namespace

TaskWorker::TaskWorker(std::string stage, StageFactory factory, sdk::LoadOptions load,
                       RequestScheduler& scheduler, WorkEvents& events, Loaded loaded,
                       base::Clock& clock)
    : stage_(std::move(stage)),
      factory_(std::move(factory)),
      load_(std::move(load)),
      scheduler_(scheduler),
      events_(events),
      loaded_(std::move(loaded)),
      clock_(clock),
      loader_([this](const std::stop_token& stop) { LoadMain(stop); }),
      computer_([this](const std::stop_token& stop) { ComputeMain(stop); }) {}

void TaskWorker::RequestStop() {
  loader_.request_stop();
  computer_.request_stop();
}

void TaskWorker::Serve(std::vector<AppModel> models, std::uint64_t revision) {
  Stages dropped;  // Unloaded outside of the lock.
  const std::lock_guard lock(mutex_);
  for (auto it = stages_.begin(); it != stages_.end();) {
    const auto next = std::next(it);
    if (!Names(models, it->first)) dropped.insert(stages_.extract(it));
    it = next;
  }
  wanted_ = std::move(models);
  wanted_revision_ = revision;
  changed_.notify_all();
}

std::optional<base::Uid> TaskWorker::running() const {
  const std::lock_guard lock(mutex_);
  return running_;
}

TaskWorker::Stages TaskWorker::stages() const {
  const std::lock_guard lock(mutex_);
  return stages_;
}

void TaskWorker::LoadMain(const std::stop_token& stop) {
  while (true) {
    std::vector<AppModel> models;
    std::uint64_t revision = 0;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return wanted_revision_ != done_revision_; })) return;
      models = wanted_;
      revision = wanted_revision_;
    }
    const auto outcome = LoadMissing(models, revision, stop);
    if (stop.stop_requested()) return;
    if (outcome) loaded_(*outcome);
  }
}

std::optional<TaskWorker::Outcome> TaskWorker::LoadMissing(const std::vector<AppModel>& models,
                                                           std::uint64_t revision,
                                                           const std::stop_token& stop) {
  Outcome outcome{.revision = revision, .apps = {}, .error = {}};
  std::map<std::string, absl::Status> failed;
  for (const auto& [app, model_dir] : models) {
    if (!stages().contains(model_dir) && !failed.contains(model_dir)) {
      auto stage = LoadModel(model_dir);
      const std::lock_guard lock(mutex_);
      if (!stage.ok()) {
        failed.emplace(model_dir, stage.status());
      } else if (Names(wanted_, model_dir)) {
        stages_.emplace(model_dir, *std::move(stage));
        changed_.notify_all();
      }
      if (wanted_revision_ != revision || stop.stop_requested()) return std::nullopt;
    }
    const auto failure = failed.find(model_dir);
    if (failure == failed.end()) {
      outcome.apps.push_back(app);
    } else if (outcome.error.ok()) {
      outcome.error = base::Annotate(failure->second, "application " + app);
    }
  }
  const std::lock_guard lock(mutex_);
  if (wanted_revision_ != revision) return std::nullopt;
  done_revision_ = revision;
  return outcome;
}

absl::StatusOr<std::shared_ptr<sdk::Stage>> TaskWorker::LoadModel(
    const std::string& model_dir) const {
  std::unique_ptr<sdk::Stage> stage;
  sdk::LoadOptions options = load_;
  options.model_dir = model_dir;
  try {
    ONEPIECE_ASSIGN_OR_RETURN(stage, factory_());
    ONEPIECE_RETURN_IF_ERROR(stage->Load(options));
  } catch (const std::exception& error) {
    return base::MakeError(absl::StatusCode::kInternal, "STAGE_FAILED", error.what());
  }
  return std::shared_ptr<sdk::Stage>(stage.release(), [](sdk::Stage* loaded) {
    loaded->Unload();
    delete loaded;
  });
}

void TaskWorker::ComputeMain(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      // Without any model nothing is taken: what is queued waits for the first.
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return !stages_.empty(); })) return;
    }
    if (auto item = scheduler_.Pop(stop, clock_.Now() + kIdleWait)) Compute(std::move(*item));
  }
}

std::shared_ptr<sdk::Stage> TaskWorker::Begin(const message::Header& header) {
  const std::lock_guard lock(mutex_);
  if (header.stage != stage_) return nullptr;
  const auto wanted = std::find_if(wanted_.begin(), wanted_.end(),
                                   [&](const AppModel& model) { return model.app == header.app; });
  const auto found = wanted == wanted_.end() ? stages_.end() : stages_.find(wanted->model_dir);
  if (found == stages_.end()) return nullptr;
  running_ = header.uid;
  return found->second;
}

void TaskWorker::Compute(WorkItem item) {
  std::shared_ptr<sdk::Stage> stage = Begin(item.message.header);
  if (stage == nullptr) {
    // Queued before the instance was given this stage, or before the application's model is here.
    return events_.Finished({std::move(item), {}, WrongStage(), {}});
  }
  events_.Started(item);
  const auto start_wall = clock_.WallNow();
  const auto start = clock_.Now();
  std::vector<message::Artifact> saved;
  const RunOptions options = {
      .clock = &clock_,
      .cancelled = [&] { return scheduler_.IsCancelled(item.message.header.uid); },
      .progress = [&](int step, int steps) { events_.Progressed(item, step, steps); },
      .hand_over = [&](int) { return scheduler_.HandsOver(item.message.header.uid); },
      .saved = &saved};
  auto outputs = RunStage(*stage, item.message, options);
  const WorkTiming timing = {.transfer = item.arrival_time - item.message.header.sent_time,
                             .queued = start_wall - item.arrival_time,
                             .compute = clock_.Now() - start};
  if (!saved.empty()) AddSaved(item, saved);
  busy_ns_ += timing.compute.count();
  stage.reset();  // Unloads a model that is no longer wanted.
  {
    const std::lock_guard lock(mutex_);
    running_.reset();
  }
  events_.Finished({std::move(item), timing, std::move(outputs), {}});
}

}  // namespace onepiece::runtime
