#include "stages/runtime/task_worker.h"

#include <utility>

#include "cluster/base/status.h"
#include "spdlog/spdlog.h"
#include "stages/runtime/stage_runner.h"

namespace onepiece::runtime {
namespace {

// How long Pop waits before it looks at the stop token again by itself; stopping does not depend on
// it.
constexpr auto kIdleWait = std::chrono::seconds(10);

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
      thread_([this](const std::stop_token& stop) { Main(stop); }) {}

TaskWorker::~TaskWorker() = default;

std::optional<base::Uid> TaskWorker::running() const {
  const std::lock_guard lock(mutex_);
  return running_;
}

void TaskWorker::Main(const std::stop_token& stop) {
  auto stage = factory_();
  if (!stage.ok()) return loaded_(stage.status());
  absl::Status status;
  try {
    status = (*stage)->Load(load_);
  } catch (const std::exception& error) {
    status = base::MakeError(absl::StatusCode::kInternal, "STAGE_FAILED", error.what());
  }
  loaded_(status);
  if (!status.ok()) return;
  while (!stop.stop_requested()) {
    if (auto item = scheduler_.Pop(stop, clock_.Now() + kIdleWait))
      Compute(**stage, std::move(*item));
  }
  (*stage)->Unload();
}

void TaskWorker::Compute(sdk::Stage& stage, WorkItem item) {
  if (item.message.header.stage != stage_) {
    // Queued before the instance was given this stage.
    return events_.Finished({std::move(item), {}, WrongStage(), {}});
  }
  {
    const std::lock_guard lock(mutex_);
    running_ = item.message.header.uid;
  }
  events_.Started(item);
  const auto start_wall = clock_.WallNow();
  const auto start = clock_.Now();
  const RunOptions options = {
      .clock = &clock_,
      .cancelled = [&] { return scheduler_.IsCancelled(item.message.header.uid); },
      .progress = [&](int step, int steps) { events_.Progressed(item, step, steps); }};
  auto outputs = RunStage(stage, item.message, options);
  const WorkTiming timing = {.transfer = item.arrival_time - item.message.header.sent_time,
                             .queued = start_wall - item.arrival_time,
                             .compute = clock_.Now() - start};
  busy_ns_ += timing.compute.count();
  {
    const std::lock_guard lock(mutex_);
    running_.reset();
  }
  events_.Finished({std::move(item), timing, std::move(outputs), {}});
}

}  // namespace onepiece::runtime
