#include "stages/model/conditioning_cache.h"

#include <cstring>
#include <memory>
#include <utility>

#include "cluster/base/mutex.h"
#include "stages/model/byte_budget.h"

namespace onepiece::model {
namespace {

// The approximate overhead of an entry, besides its tensors' bytes.
constexpr std::int64_t kEntryBytes = 512;

// Copies into memory of its own, because the given bytes may be a small part of a large buffer.
message::Artifact CopyOf(const message::Artifact& artifact) {
  message::Artifact copy = artifact;
  const std::size_t size = artifact.data.size();
  const auto memory = message::AllocateAligned(size);
  if (size > 0) std::memcpy(memory.get(), artifact.data.bytes().data(), size);
  copy.data = message::Buffer(memory, {memory.get(), size});
  return copy;
}

}  // namespace

absl::StatusOr<ConditioningCache*> ConditioningCache::OfProcess() {
  static const absl::StatusOr<std::int64_t> budget = ByteBudget(kBudgetVariable, kDefaultBudget);
  if (!budget.ok()) return budget.status();
  static auto* const cache = new ConditioningCache(*budget);
  return cache;
}

std::optional<std::vector<message::Artifact>> ConditioningCache::Find(std::string_view key) {
  const base::MutexLock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    ++misses_;
    return std::nullopt;
  }
  ++hits_;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->artifacts;
}

void ConditioningCache::Put(std::string_view key, const std::vector<message::Artifact>& artifacts) {
  Entry entry{.key = std::string(key), .artifacts = {}, .bytes = kEntryBytes};
  for (const auto& artifact : artifacts)
    entry.bytes += static_cast<std::int64_t>(artifact.data.size());
  if (entry.bytes > budget_) return;
  for (const auto& artifact : artifacts) entry.artifacts.push_back(CopyOf(artifact));
  const base::MutexLock lock(mutex_);
  if (by_key_.contains(key)) return;  // Another worker has computed the same entry.
  // There is an entry to evict as long as this holds: without entries bytes_ is 0, and the new
  // entry fits the budget.
  while (bytes_ + entry.bytes > budget_) {
    bytes_ -= entries_.back().bytes;
    // This comes before pop_back: the keys of the map are views of the entries' own strings.
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
    ++evictions_;
  }
  bytes_ += entry.bytes;
  entries_.push_front(std::move(entry));
  // For the same reason the key is that of the entry, not the caller's.
  by_key_.emplace(entries_.front().key, entries_.begin());
}

absl::StatusOr<std::vector<message::Artifact>> ConditioningCache::GetOr(
    std::string_view key,
    const std::function<absl::StatusOr<std::vector<message::Artifact>>()>& compute) {
  if (auto known = Find(key)) return *std::move(known);
  auto computed = compute();
  if (computed.ok()) Put(key, *computed);
  return computed;
}

ConditioningCache::Stats ConditioningCache::stats() const {
  const base::MutexLock lock(mutex_);
  return {.hits = hits_,
          .misses = misses_,
          .evictions = evictions_,
          .entries = static_cast<std::int64_t>(entries_.size()),
          .bytes = bytes_,
          .budget = budget_};
}

}  // namespace onepiece::model
