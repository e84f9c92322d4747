// TaskWorker: computes the scheduler's items one after the other, each with the model of its
// application, and loads models beside that.
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
#include "stages/runtime/work_item.h"
#include "stages/sdk/stage.h"

namespace onepiece::runtime {

/// An application and the model folder that its jobs are computed with.
struct AppModel {
  std::string app;
  std::string model_dir;
  friend bool operator==(const AppModel&, const AppModel&) = default;
};

/// Two threads: one computes, one loads. There is one loaded sdk::Stage for every distinct model
/// folder. Destruction waits for the item that is being computed (it sees no cancellation, only its
/// end) and for a model that is being loaded, then releases its models to the store.
class TaskWorker {
 public:
  struct Outcome {
    std::uint64_t revision = 0;     ///< As Serve was told.
    std::vector<std::string> apps;  ///< Those that can be served.
    absl::Status error;             ///< Why the first of the others cannot.
  };
  /// Told on the loading thread how a Serve went, unless a later one has taken its place.
  using Loaded = std::function<void(const Outcome&)>;
  /// Loaded stages by model folder.
  using Stages = std::map<std::string, std::shared_ptr<sdk::Stage>>;

  /// `key` says everything but the model folder. `store`, `scheduler` and `events` outlive the
  /// worker.
  TaskWorker(ModelKey key, ModelStore& store, RequestScheduler& scheduler, WorkEvents& events,
             Loaded loaded, base::Clock& clock);
  ~TaskWorker();
  TaskWorker(const TaskWorker&) = delete;
  TaskWorker& operator=(const TaskWorker&) = delete;

  /// Serves these applications from now on: models that none of them has go to the store
  /// (the item being computed with one is finished), those that are missing are loaded; the others
  /// go on being served. Never waits for loading.
  void Serve(std::vector<AppModel> models, std::uint64_t revision);
  /// Asks both threads to end after what they are doing.
  void RequestStop();
  /// RequestStop(), and waits until they have. From one thread; Serve may not be called any more.
  void Stop();
  /// The job being computed now.
  [[nodiscard]] std::optional<base::Uid> running() const;
  /// How long the job being computed has finished no step; zero when there is none.
  [[nodiscard]] base::Duration no_progress() const;
  /// Total time spent in Stage::Run, that of the item being computed included.
  [[nodiscard]] base::Duration busy() const;
  /// A stage that is held here is not unloaded, whatever the worker does with it. Only its
  /// Metrics() may be called.
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
  // One round over what is wanted; nullopt when something else is wanted before the end.
  std::optional<Outcome> LoadMissing(const std::vector<AppModel>& models, std::uint64_t revision,
                                     const std::stop_token& stop);
  // Its status. The loaded model is kept when it is still wanted.
  absl::Status LoadModel(const std::string& model_dir);
  ModelKey KeyOf(const std::string& model_dir) const;
  void ComputeMain(const std::stop_token& stop);
  void Compute(WorkItem item);
  // The stage for an item, marked as running; nullptr when this is not the place for it.
  std::shared_ptr<sdk::Stage> Begin(const message::Header& header);
  // The computation with it is over after so long: what Serve could not release goes now.
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
  base::Duration busy_ ABSL_GUARDED_BY(mutex_){};  // Of finished items.
  // Last: they start when everything else is there.
  std::jthread loader_;
  std::jthread computer_;
};

}  // namespace onepiece::runtime
