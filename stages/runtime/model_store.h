// ModelStore: loads stages with their models, and keeps the stages of earlier roles in memory, so
// that an instance that returns to a role need not load them again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "stages/sdk/stage.h"

namespace onepiece::runtime {

/// Identifies a loaded stage. Stages with equal keys are interchangeable.
struct ModelKey {
  std::string plugin;
  std::string stage;
  sdk::LoadOptions load;  ///< Its model folder included.
};

/// A loaded stage. The last owner unloads it.
struct LoadedModel {
  std::shared_ptr<sdk::Stage> stage;
  std::optional<base::Duration> load_time;  ///< Absent when it was still in memory.
};

/// Loads stages and parks released ones.
///
/// Ownership: owns the parked stages. A stage that it hands out belongs to the caller until the
/// caller releases it.
/// Threading: thread-safe. Stages are loaded, measured and unloaded outside the lock.
class ModelStore {
 public:
  /// Finds a plug-in's stage.
  using StageSource = std::function<absl::StatusOr<std::unique_ptr<sdk::Stage>>(
      const std::string& plugin, const std::string& stage)>;
  struct Stats {
    std::size_t parked = 0;
    std::int64_t parked_bytes = 0;
    std::uint64_t hits = 0;  ///< Stages that were still in memory.
  };

  /// Parks up to `parked_bytes` of weights (0: none), at most kMaxParked stages.
  ModelStore(StageSource source, std::int64_t parked_bytes, base::Clock& clock);
  static constexpr std::size_t kMaxParked = 64;

  /// Returns a parked stage if its files have not been replaced since, or else loads one. When
  /// there is too little memory, it drops everything parked and tries once more.
  ///
  /// Blocking: while it loads.
  /// Errors: those of the source and of Stage::Load; INTERNAL (STAGE_FAILED) when the stage throws.
  absl::StatusOr<LoadedModel> Get(const ModelKey& key);
  /// Parks the stage if it fits, and evicts the least recently used stages for it. Nobody may
  /// compute with the stage any more, since it may be handed out immediately.
  ///
  /// The stage's size is the metric `weight_bytes` that it exports. If that metric counts all
  /// stages of its plug-in, the size is what they have not parked already, and at most the size of
  /// the files in its model folder. Without the metric the size is that of the files.
  ///
  /// REQUIRES: the stage comes from Get.
  void Release(const ModelKey& key, std::shared_ptr<sdk::Stage> stage);
  /// Unloads everything that is parked.
  void DropParked();
  [[nodiscard]] Stats stats() const;

 private:
  struct Parked {
    ModelKey key;
    std::shared_ptr<sdk::Stage> stage;
    std::int64_t bytes = 0;
    std::size_t stamp = 0;  // The stamp of the model folder's files when they were loaded.
  };

  std::shared_ptr<sdk::Stage> TakeParked(const ModelKey& key);
  std::int64_t ParkedBytesOf(const std::string& plugin) const;
  absl::StatusOr<std::shared_ptr<sdk::Stage>> Load(const ModelKey& key) const;

  const StageSource source_;
  const std::int64_t budget_;
  base::Clock& clock_;
  mutable base::Mutex mutex_;
  // The stage that was released last is at the front.
  std::list<Parked> parked_ ABSL_GUARDED_BY(mutex_);
  std::int64_t parked_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t hits_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace onepiece::runtime
