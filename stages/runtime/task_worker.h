// TaskWorker: computes the scheduler's items one after the other, each with the model of its
// application, and loads models at the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "stages/runtime/model_store.h"
#include "stages/runtime/request_scheduler.h"
#include "stages/runtime/stage_runner.h"
#include "stages/runtime/work_item.h"
#include "stages/sdk/stage.h"

namespace onepiece::runtime {

/// An application and the model folder that its jobs are computed with.
struct AppModel {
  std::string app;
  std::string model_dir;
  /// Why the model may not be loaded; OK: it may.
  absl::Status refused = absl::OkStatus();
  friend bool operator==(const AppModel&, const AppModel&) = default;
};

/// One thread computes and another loads. There is one loaded sdk::Stage for every distinct model
/// folder.
///
/// Ownership: owns its threads and the loaded stages, which it releases to the store at its end.
/// Blocking: destruction waits for the item that is being computed, without cancelling it, and for
/// a model that is being loaded.
class TaskWorker {
 public:
  struct Outcome {
    std::uint64_t revision = 0;     ///< The revision that Serve was given.
    std::vector<std::string> apps;  ///< The applications that can be served.
    absl::Status error;             ///< Why the first of the others cannot be served.
  };
  /// Called on the loading thread with the outcome of a Serve, unless a later Serve replaced it.
  using Loaded = std::function<void(const Outcome&)>;
  /// Loaded stages by model folder.
  using Stages = std::map<std::string, std::shared_ptr<sdk::Stage>>;

  /// `key` names everything but the model folder. `store`, `scheduler` and `events` must outlive
  /// the worker.
  TaskWorker(ModelKey key, ModelStore& store, RequestScheduler& scheduler, WorkEvents& events,
             Loaded loaded, base::Clock& clock);
  ~TaskWorker();
  TaskWorker(const TaskWorker&) = delete;
  TaskWorker& operator=(const TaskWorker&) = delete;

  /// Serves these applications from now on. Models that none of them uses are released to the
  /// store, once the item that is being computed with them has ended. Missing models are loaded,
  /// and the others are served meanwhile. Never waits for loading.
  void Serve(std::vector<AppModel> models, std::uint64_t revision);
  /// Asks both threads to end after what they are doing.
  void RequestStop();
  /// Does RequestStop() and waits until both threads have ended. Call it from one thread. Serve
  /// must not be called afterwards.
  void Stop();
  /// Returns the job that is being computed.
  [[nodiscard]] std::optional<base::Uid> running() const;
  /// Returns how long the running job has gone without finishing a step; zero without a job.
  [[nodiscard]] base::Duration no_progress() const;
  /// Returns the total time spent in Stage::Run. It includes the running job.
  [[nodiscard]] base::Duration busy() const;
  /// Returns the loaded stages. As long as the caller holds a stage, it is not unloaded. The caller
  /// may only call its Metrics().
  [[nodiscard]] Stages stages() const;

 private:
  struct Running {
    base::Uid uid;
    const sdk::Stage* stage = nullptr;
    std::string model_dir;
    base::MonotonicTime began{};
    base::MonotonicTime progressed{};  // When it began or finished its last step.
  };

  void LoadMain(const std::stop_token& stop);
  // Loads the wanted models that are missing. Returns nullopt when other models are wanted before
  // it is done.
  std::optional<Outcome> LoadMissing(const std::vector<AppModel>& models, std::uint64_t revision,
                                     const std::stop_token& stop);
  // Loads a model, and keeps it if it is still wanted.
  absl::Status LoadModel(const std::string& model_dir);
  ModelKey KeyOf(const std::string& model_dir) const;
  void ComputeMain(const std::stop_token& stop);
  void Compute(WorkItem item);
  // Runs the stage, and again after what another run may mend: too little memory while models are
  // parked, and a lost worker process.
  absl::StatusOr<std::vector<message::Artifact>> RunAgain(sdk::Stage& stage, WorkItem& item,
                                                          const RunOptions& options);
  // Returns the stage for an item and marks it as running; nullptr when this worker does not serve
  // the item.
  std::shared_ptr<sdk::Stage> Begin(const message::Header& header);
  // Ends a computation that took `compute`. Releases the stage if Serve dropped it meanwhile.
  void End(std::shared_ptr<sdk::Stage> stage, base::Duration compute);

  const ModelKey key_;
  ModelStore& store_;
  RequestScheduler& scheduler_;
  WorkEvents& events_;
  const Loaded loaded_;
  base::Clock& clock_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<AppModel> wanted_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t wanted_revision_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t done_revision_ ABSL_GUARDED_BY(mutex_) = 0;
  Stages stages_ ABSL_GUARDED_BY(mutex_);
  std::optional<Running> running_ ABSL_GUARDED_BY(mutex_);
  base::Duration busy_ ABSL_GUARDED_BY(mutex_){};  // The computing time of finished items.
  // Declared last: the threads use everything above.
  std::jthread loader_;
  std::jthread computer_;
};

}  // namespace onepiece::runtime
