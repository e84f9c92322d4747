// A TaskManager over a stage whose behaviour the test sets, and what became of its work.
#pragma once

#include <QTemporaryDir>
#include <QtTest>
#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "stages/runtime/task_manager.h"

namespace onepiece::runtime {

constexpr auto kSoon = std::chrono::seconds(20);  // Only reached when a test fails.

// The behaviour of the stage under test in Run and Load. Each test sets it.
struct Script {
  std::function<absl::StatusOr<std::vector<message::Artifact>>(sdk::StageContext&)> run;
  std::function<absl::Status(const sdk::LoadOptions&)> load;
  std::atomic<int> loads = 0, unloads = 0;
  std::atomic<double> process_hits = 0;
  std::atomic<double> process_weights = -1;  // Negative: each stage has its own 100 bytes.
};

class ScriptedStage final : public sdk::Stage {
 public:
  explicit ScriptedStage(Script& script) : script_(script) {}
  sdk::StageInfo Info() const override {
    return {.name = "echo", .inputs = {"in"}, .outputs = {"out"}};
  }
  absl::Status Load(const sdk::LoadOptions& options) override {
    ++script_.loads;
    options_ = options;
    return script_.load ? script_.load(options) : absl::OkStatus();
  }
  absl::StatusOr<std::vector<message::Artifact>> Run(
      sdk::StageContext& context, const std::vector<message::Artifact>& inputs) override {
    ++runs_;
    if (script_.run) return script_.run(context);
    return std::vector{message::BytesArtifact(
        "out", "text/plain", std::string(inputs[0].data.text()) + "!" + options_.model_dir)};
  }
  void Unload() override { ++script_.unloads; }
  std::vector<sdk::StageMetric> Metrics() const override {
    return {
        {.name = "runs_total", .help = "", .counter = true, .value = static_cast<double>(runs_)},
        {.name = "hits_total",
         .help = "",
         .counter = true,
         .of_process = true,
         .value = script_.process_hits},
        {.name = "weight_bytes",
         .help = "",
         .of_process = script_.process_weights >= 0,
         .value = script_.process_weights >= 0 ? script_.process_weights.load() : 100}};
  }

 private:
  Script& script_;
  sdk::LoadOptions options_;
  std::atomic<int> runs_ = 0;
};

// Makes an artifact of its own name ("read" when its name is "same"), and notes its inputs.
class ListingStage final : public sdk::Stage {
 public:
  ListingStage(std::string name, std::vector<std::string>& seen)
      : name_(std::move(name)), seen_(seen) {}
  sdk::StageInfo Info() const override { return {.name = name_}; }
  absl::Status Load(const sdk::LoadOptions&) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<message::Artifact>> Run(
      sdk::StageContext&, const std::vector<message::Artifact>& inputs) override {
    std::string line = name_ + ":";
    for (const message::Artifact& input : inputs) line += " " + input.name;
    seen_.push_back(line);
    return std::vector{message::BytesArtifact(name_ == "same" ? "read" : name_, "", "x")};
  }
  void Unload() override {}

 private:
  const std::string name_;
  std::vector<std::string>& seen_;
};

class Recorder final : public WorkEvents {
 public:
  void Started(const WorkItem&) override { ++started; }
  void Progressed(const WorkItem&, int step, int steps) override {
    progress.emplace_back(step, steps);
  }
  void Finished(FinishedWork work) override {
    const base::MutexLock lock(mutex_);
    finished_.push_back(std::move(work));
    changed_.NotifyAll();
  }
  void ModelLoaded(const std::string&, const std::string&, base::Duration) override {}
  FinishedWork Next() {
    base::MutexLock lock(mutex_);
    const auto is_there = [this]()
                              ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !finished_.empty(); };
    if (!changed_.WaitFor(lock, kSoon, is_there)) throw std::runtime_error("no finished work");
    FinishedWork work = std::move(finished_.front());
    finished_.erase(finished_.begin());
    return work;
  }

  std::atomic<int> started = 0;
  std::vector<std::pair<int, int>> progress;  // Read after Next(), which orders it.

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<FinishedWork> finished_ ABSL_GUARDED_BY(mutex_);
};

struct TasksFixture {
  explicit TasksFixture(std::int64_t parked_bytes = 0) : budget(parked_bytes) {}
  TaskManager::StageSource Source() {
    return [this](const std::string& plugin,
                  const std::string&) -> absl::StatusOr<std::unique_ptr<sdk::Stage>> {
      if (plugin == "missing") return absl::NotFoundError("no plug-in 'missing'");
      return std::make_unique<ScriptedStage>(script);
    };
  }
  bool WaitFor(TaskState state, std::uint64_t epoch = 0) {
    base::MutexLock lock(mutex);
    return changed.WaitFor(lock, kSoon, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
      return !states.empty() && states.back().state == state && states.back().epoch == epoch;
    });
  }
  std::vector<TaskStatus> States() {
    const base::MutexLock lock(mutex);
    return states;
  }
  std::size_t Reports() {
    const base::MutexLock lock(mutex);
    return states.size();
  }
  WorkItem Item(bool with_input = true, const std::string& app = "app") {
    WorkItem item;
    item.message.header.app = app;
    item.message.header.uid = base::Uid::GenerateRandom();
    item.message.header.stage = "echo";
    item.message.header.deadline = clock.Now() + std::chrono::seconds(60);
    if (with_input) item.message.artifacts = {message::BytesArtifact("in", "text/plain", "hi")};
    return item;
  }

  const std::int64_t budget;
  base::ManualClock clock;
  Script script;
  Recorder events;
  base::Mutex mutex;
  base::CondVar changed;
  std::vector<TaskStatus> states ABSL_GUARDED_BY(mutex);
  RequestScheduler scheduler{{}, std::make_unique<IndividualMode>(), clock};
  TaskManager manager{Source(),
                      scheduler,
                      events,
                      [this](const TaskStatus& status) {
                        const base::MutexLock lock(mutex);
                        states.push_back(status);
                        changed.NotifyAll();
                      },
                      clock,
                      budget};
};

inline void WriteFile(const QTemporaryDir& folder, const std::string& text) {
  QFile file(folder.filePath("weights"));
  if (!file.open(QIODevice::WriteOnly) || file.write(text.data(), qint64(text.size())) < 0)
    qFatal("no file");
}

inline StageAssignment Echo(std::string plugin = "p", int workers = 1) {
  return {.stage = "echo",
          .plugin = std::move(plugin),
          .load = {},
          .models = {{"app", ""}},
          .workers = workers};
}

inline StageAssignment Pool(std::uint64_t epoch, std::vector<AppModel> models) {
  StageAssignment assignment = Echo();
  assignment.models = std::move(models);
  assignment.epoch = epoch;
  return assignment;
}

inline std::string TextOf(const FinishedWork& work) {
  return work.outputs.ok() ? std::string(work.outputs->at(0).data.text())
                           : base::GetReason(work.outputs.status()).reason;
}

}  // namespace onepiece::runtime
