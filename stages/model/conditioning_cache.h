// Keeps encoded prompts and images for the next job that brings the same ones: nearly all jobs
// share negative prompts, and jobs that vary the seed share prompts and images.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/mutex.h"
#include "cluster/message/artifact.h"

namespace onepiece::model {

/// Maps a hash to artifacts. The hash covers all that they depend on (HashOfParts: the computation,
/// the component's content, device, precision, threads, the input), so that a hit is bit for bit
/// what a computation would give. Evicts the least recently used entries beyond the budget.
///
/// Threading: may be used from any thread.
class ConditioningCache {
 public:
  static constexpr std::int64_t kDefaultBudget = std::int64_t{256} << 20;
  static constexpr char kBudgetVariable[] = "ONEPIECE_CONDITIONING_CACHE_BYTES";
  struct Stats {
    std::int64_t hits = 0, misses = 0, evictions = 0;  ///< Since the process began.
    std::int64_t entries = 0, bytes = 0, budget = 0;
  };

  /// Returns the cache of this plug-in, which is never destroyed. Its budget in bytes is
  /// kBudgetVariable or kDefaultBudget; 0 keeps nothing.
  ///
  /// Errors: INVALID_ARGUMENT BAD_SETTING.
  static absl::StatusOr<ConditioningCache*> OfProcess();

  explicit ConditioningCache(std::int64_t budget) : budget_(budget) {}

  /// Shares the bytes.
  std::optional<std::vector<message::Artifact>> Find(std::string_view key);
  /// Keeps a copy, unless the copy would be larger than the whole budget.
  void Put(std::string_view key, const std::vector<message::Artifact>& artifacts);
  /// Returns the kept entry. If there is none, computes it and keeps it.
  ///
  /// Errors: those of `compute`.
  absl::StatusOr<std::vector<message::Artifact>> GetOr(
      std::string_view key,
      const std::function<absl::StatusOr<std::vector<message::Artifact>>()>& compute);
  [[nodiscard]] Stats stats() const;

 private:
  struct Entry {
    std::string key;
    std::vector<message::Artifact> artifacts;
    std::int64_t bytes = 0;
  };
  using Entries = std::list<Entry>;

  const std::int64_t budget_;
  mutable base::Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);  // The most recently used first.
  // Into entries_.
  std::unordered_map<std::string_view, Entries::iterator> by_key_ ABSL_GUARDED_BY(mutex_);
  std::int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t hits_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t misses_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t evictions_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace onepiece::model
