#include "stages/runtime/model_store.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <functional>
#include <iterator>
#include <system_error>
#include <tuple>
#include <utility>

#include "cluster/base/mutex.h"
#include "cluster/base/status.h"

namespace onepiece::runtime {
namespace {

auto Fields(const ModelKey& key) {
  return std::tie(key.plugin, key.stage, key.load.device, key.load.model_dir, key.load.threads,
                  key.load.precision, key.load.plan);
}

struct Files {
  std::int64_t bytes = 0;
  std::size_t stamp = 0;  // It changes when a file is replaced, added or removed.
};

Files FilesOf(const std::string& folder) {
  Files all;
  std::error_code error;
  std::filesystem::recursive_directory_iterator files(folder, error), end;
  for (; !error && files != end; files.increment(error)) {
    std::error_code unreadable;
    if (!files->is_regular_file(unreadable)) continue;
    const auto size = static_cast<std::int64_t>(files->file_size(unreadable));
    const auto written = files->last_write_time(unreadable).time_since_epoch().count();
    if (unreadable) continue;
    all.bytes += size;
    // A sum, because files are found in no fixed order.
    all.stamp += std::hash<std::string>()(files->path().string() + "|" + std::to_string(size) +
                                          "|" + std::to_string(written));
  }
  return all;
}

// A deleter that unloads the stage. It also carries the stamp of the files that were loaded.
struct Unload {
  std::size_t stamp = 0;
  void operator()(sdk::Stage* loaded) const {
    loaded->Unload();
    delete loaded;
  }
};

// Returns what the stage adds to the bytes that stages of its plug-in have `parked`.
std::int64_t WeightBytes(const Files& files, const sdk::Stage& stage, std::int64_t parked) {
  for (const sdk::StageMetric& metric : stage.Metrics()) {
    if (metric.name != "weight_bytes" || !(metric.value >= 0 && metric.value < 1e18)) continue;
    const auto bytes = static_cast<std::int64_t>(metric.value);
    // The stages of a plug-in share weights, so weights that are parked already are not counted
    // again.
    return metric.of_process ? std::min(files.bytes, std::max<std::int64_t>(0, bytes - parked))
                             : bytes;
  }
  return files.bytes;
}

}  // namespace

ModelStore::ModelStore(StageSource source, std::int64_t parked_bytes, base::Clock& clock)
    : source_(std::move(source)), budget_(parked_bytes), clock_(clock) {}

absl::StatusOr<LoadedModel> ModelStore::Get(const ModelKey& key) {
  if (auto stage = TakeParked(key)) return LoadedModel{std::move(stage), std::nullopt};
  const auto start = clock_.Now();
  auto stage = Load(key);
  // Parked stages count against a budget, not against the memory that is free. What is wanted now
  // goes before what may be wanted later.
  if (absl::IsResourceExhausted(stage.status()) && stats().parked > 0) {
    DropParked();
    stage = Load(key);
  }
  ONEPIECE_RETURN_IF_ERROR(stage.status());
  return LoadedModel{*std::move(stage), clock_.Now() - start};
}

std::shared_ptr<sdk::Stage> ModelStore::TakeParked(const ModelKey& key) {
  // An instance without parked stages does not walk the model folder, which may be on a slow disk.
  if (stats().parked == 0) return nullptr;
  const std::size_t stamp = FilesOf(key.load.model_dir).stamp;
  std::list<Parked> replaced;  // Unloaded outside of the lock.
  const base::MutexLock lock(mutex_);
  for (auto parked = parked_.begin(); parked != parked_.end();) {
    const auto here = parked++;
    if (Fields(here->key) != Fields(key)) continue;
    parked_bytes_ -= here->bytes;
    if (here->stamp != stamp) {
      replaced.splice(replaced.end(), parked_, here);
      continue;
    }
    std::shared_ptr<sdk::Stage> stage = std::move(here->stage);
    parked_.erase(here);
    ++hits_;
    return stage;
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<sdk::Stage>> ModelStore::Load(const ModelKey& key) const {
  std::unique_ptr<sdk::Stage> stage;
  // Taken before the files are read: if a file is replaced meanwhile, the stage counts as outdated.
  const std::size_t stamp = FilesOf(key.load.model_dir).stamp;
  try {
    ONEPIECE_ASSIGN_OR_RETURN(stage, source_(key.plugin, key.stage));
    ONEPIECE_RETURN_IF_ERROR(stage->Load(key.load));
  } catch (const std::exception& error) {
    return base::MakeError(absl::StatusCode::kInternal, "STAGE_FAILED", error.what());
  }
  return std::shared_ptr<sdk::Stage>(stage.release(), Unload{stamp});
}

std::int64_t ModelStore::ParkedBytesOf(const std::string& plugin) const {
  const base::MutexLock lock(mutex_);
  std::int64_t bytes = 0;
  for (const Parked& parked : parked_) {
    if (parked.key.plugin == plugin) bytes += parked.bytes;
  }
  return bytes;
}

void ModelStore::Release(const ModelKey& key, std::shared_ptr<sdk::Stage> stage) {
  if (budget_ <= 0) return;
  const auto* loaded = std::get_deleter<Unload>(stage);
  const Files files = FilesOf(key.load.model_dir);
  // Get would never return a stage whose files have changed.
  if (loaded == nullptr || loaded->stamp != files.stamp) return;
  const std::int64_t bytes = WeightBytes(files, *stage, ParkedBytesOf(key.plugin));
  if (bytes > budget_) return;
  std::list<Parked> gone;  // Unloaded outside of the lock.
  const base::MutexLock lock(mutex_);
  while (!parked_.empty() && (bytes > budget_ - parked_bytes_ || parked_.size() >= kMaxParked)) {
    parked_bytes_ -= parked_.back().bytes;
    gone.splice(gone.end(), parked_, std::prev(parked_.end()));
  }
  parked_.push_front({key, std::move(stage), bytes, files.stamp});
  parked_bytes_ += bytes;
}

void ModelStore::DropParked() {
  std::list<Parked> gone;
  const base::MutexLock lock(mutex_);
  gone.swap(parked_);
  parked_bytes_ = 0;
}

ModelStore::Stats ModelStore::stats() const {
  const base::MutexLock lock(mutex_);
  return {parked_.size(), parked_bytes_, hits_};
}

}  // namespace onepiece::runtime
