// ModelStore: loads stages with their models, and keeps those of earlier roles in memory, so that
// an instance that comes back to a role need not load again.
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

/// What makes two loaded stages interchangeable.
struct ModelKey {
  std::string plugin;
  std::string stage;
  sdk::LoadOptions load;  ///< Its model folder included.
};

/// A loaded stage. The last owner unloads it.
struct LoadedModel {
  std::shared_ptr<sdk::Stage> stage;
  std::optional<base::Duration> load_time;  ///< Absent when it was in memory.
};

/// Ownership: Owns what is parked; what it hands out belongs to the caller until he releases it.
/// Threading: Thread-safe. Stages are loaded, measured and unloaded outside of the lock.
class ModelStore {
 public:
  /// Finds a plug-in's stage.
  using StageSource = std::function<absl::StatusOr<std::unique_ptr<sdk::Stage>>(
      const std::string& plugin, const std::string& stage)>;
  struct Stats {
    std::size_t parked = 0;
    std::int64_t parked_bytes = 0;
    std::uint64_t hits = 0;  ///< Loads that were not needed.
  };

  /// Parks up to `parked_bytes` of weights (0: none), at most kMaxParked stages.
  ModelStore(StageSource source, std::int64_t parked_bytes, base::Clock& clock);
  static constexpr std::size_t kMaxParked = 64;

  /// A parked stage whose files have not been replaced since, else one that is loaded now. When
  /// there is no memory for it, everything parked goes and it is tried once more. Blocks while
  /// loading.
  /// Errors: those of the source and of Stage::Load; INTERNAL (STAGE_FAILED) when it throws.
  absl::StatusOr<LoadedModel> Get(const ModelKey& key);
  /// Parks the stage if it fits, for which the ones unused longest go. Nobody computes with it any
  /// more, since it may be handed out again at once. Its size is what it exports as `weight_bytes`;
  /// where that is of the process, what is not parked already, at most the files in its model
  /// folder; else those files'. REQUIRES: it comes from Get.
  void Release(const ModelKey& key, std::shared_ptr<sdk::Stage> stage);
  /// Unloads everything that is parked.
  void DropParked();
  [[nodiscard]] Stats stats() const;

 private:
  struct Parked {
    ModelKey key;
    std::shared_ptr<sdk::Stage> stage;
    std::int64_t bytes = 0;
    std::size_t stamp = 0;  // Of the model folder's files as they were loaded.
  };

  std::shared_ptr<sdk::Stage> TakeParked(const ModelKey& key);
  absl::StatusOr<std::shared_ptr<sdk::Stage>> Load(const ModelKey& key) const;

  const StageSource source_;
  const std::int64_t budget_;
  base::Clock& clock_;
  mutable base::Mutex mutex_;
  // The one released last is at the front.
  std::list<Parked> parked_ ABSL_GUARDED_BY(mutex_);
  std::int64_t parked_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t hits_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace onepiece::runtime
