#include "stages/wan/merged_transformers.h"

#include <utility>

#include "cluster/base/mutex.h"
#include "stages/model/byte_budget.h"

namespace onepiece::wan {

absl::StatusOr<MergedTransformers*> MergedTransformers::OfProcess() {
  static const absl::StatusOr<std::int64_t> budget =
      model::ByteBudget(kBudgetVariable, kDefaultBudget);
  if (!budget.ok()) return budget.status();
  static MergedTransformers* const cache = new MergedTransformers(*budget);
  return cache;
}

std::shared_ptr<const WanTransformer> MergedTransformers::Find(const std::string& key) {
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->key != key) continue;
    entries_.splice(entries_.begin(), entries_, entry);
    ++stats_.hits;
    return entry->transformer;
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<const WanTransformer>> MergedTransformers::Get(
    const std::string& key, std::int64_t bytes, const Merge& merge) {
  {
    const base::MutexLock lock(mutex_);
    if (auto found = Find(key)) return found;
  }
  // The first look comes before this lock, so that hits do not wait for somebody else's merge.
  const base::MutexLock merging(merging_);
  {
    const base::MutexLock lock(mutex_);
    if (auto found = Find(key)) return found;  // Another worker has merged it meanwhile.
    ++stats_.misses;
    // Room is made before the merge, so that evicted weights are not in memory beside the new ones.
    MakeRoom(bytes);
  }
  auto merged = merge();
  if (!merged.ok()) return merged.status();
  auto transformer = std::make_shared<const WanTransformer>(*std::move(merged));
  const base::MutexLock lock(mutex_);
  // The size before the merge was an estimate.
  MakeRoom(transformer->weight_bytes());
  stats_.bytes += transformer->weight_bytes();
  entries_.push_front({key, transformer});
  return transformer;
}

void MergedTransformers::MakeRoom(std::int64_t bytes) {
  while (!entries_.empty() && stats_.bytes + bytes > budget_) {
    stats_.bytes -= entries_.back().transformer->weight_bytes();
    ++stats_.evictions;
    entries_.pop_back();
  }
}

MergedTransformers::Stats MergedTransformers::stats() const {
  const base::MutexLock lock(mutex_);
  Stats stats = stats_;
  stats.entries = static_cast<std::int64_t>(entries_.size());
  return stats;
}

}  // namespace onepiece::wan
