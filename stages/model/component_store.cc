#include "stages/model/component_store.h"

#include <utility>

#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "stages/model/content_hash.h"

namespace onepiece::model {

ComponentStore& ComponentStore::OfProcess() {
  static auto* const store = new ComponentStore;
  return *store;
}

std::shared_ptr<ComponentStore::Entry> ComponentStore::EntryOf(const Key& key) {
  const base::MutexLock lock(mutex_);
  // If another caller holds the entry, it is being loaded.
  std::erase_if(entries_, [&](const auto& item) {
    return item.second.use_count() == 1 && item.second->value.expired() && item.first != key;
  });
  auto& entry = entries_[key];
  if (entry == nullptr) entry = std::make_shared<Entry>();
  return entry;
}

absl::StatusOr<Component<void>> ComponentStore::Find(
    Key key, const std::string& dir, const std::function<absl::StatusOr<Loaded>()>& load) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::string hash, ComponentHash(dir));
  std::get<1>(key) = hash;
  const std::shared_ptr<Entry> entry = EntryOf(key);
  const base::MutexLock loading(entry->loading);
  {
    const base::MutexLock lock(mutex_);
    if (auto value = entry->value.lock())
      return Component<void>{std::move(value), hash, entry->dir};
  }
  ONEPIECE_ASSIGN_OR_RETURN(Loaded loaded, load());
  // Reads nothing if the files are still those that were hashed.
  ONEPIECE_ASSIGN_OR_RETURN(const std::string hash_after, ComponentHash(dir));
  if (hash_after != hash) {
    return base::MakeError(absl::StatusCode::kAborted, "MODEL_CHANGED",
                           dir + " was changed while it was loaded; load it again",
                           {{"file", dir}});
  }
  const base::MutexLock lock(mutex_);
  entry->value = loaded.value;
  entry->bytes = loaded.bytes;
  entry->dir = dir;
  return Component<void>{std::move(loaded.value), hash, dir};
}

ComponentStore::Stats ComponentStore::stats() const {
  Stats stats;
  const base::MutexLock lock(mutex_);
  for (const auto& [key, entry] : entries_) {
    const std::int64_t users = entry->value.use_count();
    if (users == 0) continue;
    stats.components += 1;
    stats.weight_bytes += entry->bytes;
    stats.shared_bytes += (users - 1) * entry->bytes;
  }
  return stats;
}

}  // namespace onepiece::model
