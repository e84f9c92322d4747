#include "stages/runtime/task_manager.h"

#include <algorithm>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"

namespace onepiece::runtime {
namespace {

constexpr base::Duration kFirstRetry = std::chrono::seconds(1);
constexpr base::Duration kLastRetry = std::chrono::minutes(1);

bool SameWorkers(const StageAssignment& a, const StageAssignment& b) {
  return a.stage == b.stage && a.plugin == b.plugin && a.load.device == b.load.device &&
         a.load.threads == b.load.threads && a.load.precision == b.load.precision &&
         a.load.plan == b.load.plan && a.workers == b.workers && a.devices == b.devices;
}

// Returns nullptr when the assignment does not name the application.
const std::string* ModelOf(const StageAssignment& assignment, const std::string& app) {
  const auto found = std::find_if(assignment.models.begin(), assignment.models.end(),
                                  [&](const AppModel& model) { return model.app == app; });
  return found == assignment.models.end() ? nullptr : &found->model_dir;
}

bool Contains(const std::vector<std::string>& apps, const std::string& app) {
  return std::find(apps.begin(), apps.end(), app) != apps.end();
}

}  // namespace

TaskManager::TaskManager(StageSource source, RequestScheduler& scheduler, WorkEvents& events,
                         StatusChanged changed, base::Clock& clock, std::int64_t parked_bytes)
    : scheduler_(scheduler),
      events_(events),
      changed_(std::move(changed)),
      clock_(clock),
      store_(std::move(source), parked_bytes, clock) {}

TaskManager::~TaskManager() { Assign({}); }

void TaskManager::Assign(const StageAssignment& assignment) {
  bool known = false, settled = false;
  {
    const base::MutexLock lock(mutex_);
    settled = pending_ == 0;
    known = SameWorkers(assignment, assignment_) && assignment.models == assignment_.models &&
            (!settled || status_.error.ok());
    if (known) assignment_.epoch = assignment.epoch;
    if (known && settled) status_.epoch = assignment.epoch;
  }
  if (known) {
    // Nothing is loaded, so no other report would say that the new epoch is served.
    if (settled) Report();
    return;
  }
  // The lock is free here. Nobody else changes the assignment, since calls of Assign do not
  // overlap.
  if (SameWorkers(assignment, this->assignment())) {
    ChangeModels(assignment);
  } else {
    Restart(assignment);
  }
}

void TaskManager::ChangeModels(const StageAssignment& assignment) {
  std::uint64_t generation = 0;
  {
    const base::MutexLock lock(mutex_);
    std::erase_if(status_.apps, [&](const std::string& app) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      const std::string* model = ModelOf(assignment, app);
      // The assignment names every application that the status names, because each change of the
      // assignment removes the others here.
      return model == nullptr || *model != *ModelOf(assignment_, app);
    });
    if (status_.apps.empty())
      status_ = {.state = TaskState::kLoading, .epoch = assignment.epoch, .apps = {}, .error = {}};
    assignment_ = assignment;
    generation = ++generation_;
    failures_ = 0;
    pending_ = assignment.workers;
  }
  Report();
  // The status no longer names the dropped applications when their models go.
  for (TaskWorker* worker : Workers()) worker->Serve(assignment.models, generation);
}

void TaskManager::Restart(const StageAssignment& assignment) {
  std::uint64_t generation = 0;
  {
    const base::MutexLock lock(mutex_);
    generation = ++generation_;
  }
  // Until all workers have ended, their work counts for the old assignment.
  // All of them are asked before any is waited for, so that they end at the same time.
  for (TaskWorker* worker : Workers()) worker->RequestStop();
  for (TaskWorker* worker : Workers()) worker->Stop();
  std::vector<std::unique_ptr<TaskWorker>> old;
  {
    const base::MutexLock lock(mutex_);
    old.swap(workers_);
    // The sum is taken under the lock of the swap. Otherwise busy() would fall for a moment, and
    // utilisation with it.
    for (const auto& worker : old) past_busy_ += worker->busy();
  }
  old.clear();  // The old weights are gone, or parked, before new ones are loaded.
  const bool idle = assignment.stage.empty();
  {
    const base::MutexLock lock(mutex_);
    failures_ = 0;
    assignment_ = assignment;
    status_ = {.state = idle ? TaskState::kIdle : TaskState::kLoading,
               .epoch = assignment.epoch,
               .apps = {},
               .error = {}};
    pending_ = idle ? 0 : assignment.workers;
  }
  Report();
  if (idle) return;
  std::vector<std::unique_ptr<TaskWorker>> workers;
  for (int i = 0; i < assignment.workers; ++i) {
    ModelKey key{assignment.plugin, assignment.stage, assignment.load};
    if (!assignment.devices.empty()) key.load.device = assignment.devices[i];
    workers.push_back(std::make_unique<TaskWorker>(
        std::move(key), store_, scheduler_, events_,
        [this](const TaskWorker::Outcome& outcome) { WorkerLoaded(outcome); }, clock_));
    workers.back()->Serve(assignment.models, generation);
  }
  const base::MutexLock lock(mutex_);
  workers_ = std::move(workers);
}

void TaskManager::RetryFailed() {
  std::vector<AppModel> models;
  std::uint64_t generation = 0;
  {
    const base::MutexLock lock(mutex_);
    if (status_.error.ok() || pending_ > 0 || clock_.Now() < retry_at_) return;
    models = assignment_.models;
    generation = ++generation_;
    pending_ = assignment_.workers;
  }
  for (TaskWorker* worker : Workers()) worker->Serve(models, generation);
}

void TaskManager::WorkerLoaded(const TaskWorker::Outcome& outcome) {
  {
    const base::MutexLock lock(mutex_);
    // A report about an earlier assignment would count towards `pending_` of this one.
    if (outcome.revision != generation_) return;
    if (pending_ == assignment_.workers) {
      gathered_ = outcome;
    } else {
      std::erase_if(gathered_.apps,
                    [&](const std::string& app) { return !Contains(outcome.apps, app); });
      if (gathered_.error.ok()) gathered_.error = outcome.error;
    }
    if (--pending_ > 0) return;
    status_ = {.state = gathered_.apps.empty() ? TaskState::kFailed : TaskState::kServing,
               .epoch = assignment_.epoch,
               .apps = gathered_.apps,
               .error = gathered_.error};
    // The limit keeps the shift below small. The pause has reached kLastRetry before: 2^6 s is more
    // than a minute.
    failures_ = status_.error.ok() ? 0 : std::min(failures_ + 1, 8);
    if (failures_ > 0)
      retry_at_ =
          clock_.Now() + base::Scaled(std::min(kLastRetry, kFirstRetry * (1 << (failures_ - 1))));
  }
  Report();
}

void TaskManager::Report() {
  const base::MutexLock lock(report_mutex_);
  changed_(status());
}

std::vector<TaskWorker*> TaskManager::Workers() const {
  const base::MutexLock lock(mutex_);
  std::vector<TaskWorker*> workers;
  for (const auto& worker : workers_) workers.push_back(worker.get());
  return workers;
}

TaskStatus TaskManager::status() const {
  const base::MutexLock lock(mutex_);
  return status_;
}

StageAssignment TaskManager::assignment() const {
  const base::MutexLock lock(mutex_);
  return assignment_;
}

bool TaskManager::IsAssigned(const std::string& stage, const std::string& app) const {
  const base::MutexLock lock(mutex_);
  return assignment_.stage == stage && ModelOf(assignment_, app) != nullptr;
}

std::vector<base::Uid> TaskManager::running() const {
  const base::MutexLock lock(mutex_);
  std::vector<base::Uid> uids;
  for (const auto& worker : workers_) {
    if (const auto uid = worker->running()) uids.push_back(*uid);
  }
  return uids;
}

base::Duration TaskManager::no_progress() const {
  const base::MutexLock lock(mutex_);
  base::Duration longest{};
  for (const auto& worker : workers_) longest = std::max(longest, worker->no_progress());
  return longest;
}

base::Duration TaskManager::busy() const {
  const base::MutexLock lock(mutex_);
  base::Duration total = past_busy_;
  for (const auto& worker : workers_) total += worker->busy();
  return total;
}

std::vector<sdk::StageMetric> TaskManager::Metrics() {
  std::string stage;
  std::vector<TaskWorker::Stages> held;  // Keeps the stages loaded while they are asked.
  {
    const base::MutexLock lock(mutex_);
    stage = assignment_.stage;
    for (const auto& worker : workers_) held.push_back(worker->stages());
  }
  struct Reading {
    std::shared_ptr<sdk::Stage> object;
    std::vector<sdk::StageMetric> metrics;
  };
  std::vector<Reading> readings;
  for (const auto& stages : held) {
    for (const auto& [model_dir, loaded] : stages) readings.push_back({loaded, loaded->Metrics()});
  }
  std::map<std::string, sdk::StageMetric> sums;
  const base::MutexLock lock(mutex_);
  for (const Reading& reading : readings) {
    for (const sdk::StageMetric& metric : reading.metrics) {
      const auto [sum, is_new] = sums.try_emplace(metric.name, metric);
      if (metric.counter) {
        counted_[{stage, metric.name}].Take(metric.of_process ? nullptr : reading.object,
                                            metric.value);
      } else if (!is_new && !metric.of_process) {
        sum->second.value += metric.value;
      }
    }
  }
  std::vector<sdk::StageMetric> metrics;
  for (auto& [name, metric] : sums) {
    if (metric.counter) metric.value = counted_[{stage, name}].Total();
    metrics.push_back(std::move(metric));
  }
  return metrics;
}

void TaskManager::Counted::Take(const std::shared_ptr<sdk::Stage>& object, double value) {
  double& last = object == nullptr ? of_process : living[object];
  if (value < last) gone += last;
  last = value;
}

double TaskManager::Counted::Total() {
  double total = of_process;
  std::erase_if(living, [&](const auto& entry) {
    const bool over = entry.first.expired();
    (over ? gone : total) += entry.second;
    return over;
  });
  return total + gone;
}

}  // namespace onepiece::runtime
