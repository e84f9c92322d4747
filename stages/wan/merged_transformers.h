// Keeps transformers with LoRA adapters merged into their weights, for the next job that asks for
// the same adapters.
//
// Merging once is faster than adding the low-rank products in every step, as soon as a job has a
// few steps (docs/benchmarks.md, "LoRA: merge or add"). It costs a copy of the changed weights for
// every combination in use.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/mutex.h"
#include "stages/wan/transformer_3d.h"

namespace onepiece::wan {

/// Thread-safe.
class MergedTransformers {
 public:
  static constexpr std::int64_t kDefaultBudget = std::int64_t{4} << 30;
  static constexpr char kBudgetVariable[] = "ONEPIECE_LORA_CACHE_BYTES";
  struct Stats {
    std::int64_t hits = 0, misses = 0, evictions = 0;  ///< Since the process began.
    std::int64_t entries = 0, bytes = 0;
  };
  using Merge = std::function<absl::StatusOr<WanTransformer>()>;

  /// Returns the cache of this plug-in, which is never destroyed. Its budget in bytes is
  /// kBudgetVariable or kDefaultBudget.
  ///
  /// Errors: INVALID_ARGUMENT BAD_SETTING.
  static absl::StatusOr<MergedTransformers*> OfProcess();

  explicit MergedTransformers(std::int64_t budget) : budget_(budget) {}

  /// Returns the transformer of that key and merges it if it is not kept. `key` covers all that it
  /// depends on: base weights, adapters, scales, device, precision, threads. `bytes` is its
  /// approximate size: the cache evicts the least recently used ones before the merge, until it
  /// fits into the budget. The cache keeps the newest one whatever its size. One merge runs at a
  /// time, so that no two callers hold copies of the same weights.
  ///
  /// Ownership: a caller that computes with a transformer keeps it alive.
  ///
  /// Blocking: waits for the merge.
  ///
  /// Errors: those of `merge`.
  absl::StatusOr<std::shared_ptr<const WanTransformer>> Get(const std::string& key,
                                                            std::int64_t bytes, const Merge& merge);
  [[nodiscard]] Stats stats() const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const WanTransformer> transformer;
  };
  // Returns the entry, moved to the front.
  std::shared_ptr<const WanTransformer> Find(const std::string& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Evicts the least recently used entries until so many bytes fit.
  void MakeRoom(std::int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::int64_t budget_;
  base::Mutex merging_;  // Held while a caller merges.
  mutable base::Mutex mutex_ ABSL_ACQUIRED_AFTER(merging_);
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // The most recently used first.
  Stats stats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::wan
