#include "stages/runtime/model_store.h"

#include <exception>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <tuple>
#include <utility>

#include "cluster/base/status.h"

namespace onepiece::runtime {
namespace {

auto Fields(const ModelKey& key) {
  return std::tie(key.plugin, key.stage, key.load.device, key.load.model_dir, key.load.threads,
                  key.load.precision);
}

std::int64_t FileBytes(const std::string& folder) {
  std::int64_t bytes = 0;
  std::error_code error;
  std::filesystem::recursive_directory_iterator files(folder, error), end;
  for (; !error && files != end; files.increment(error)) {
    std::error_code unreadable;
    const auto size = files->is_regular_file(unreadable) ? files->file_size(unreadable) : 0;
    if (!unreadable) bytes += static_cast<std::int64_t>(size);
  }
  return bytes;
}

std::int64_t WeightBytes(const ModelKey& key, const sdk::Stage& stage) {
  for (const sdk::StageMetric& metric : stage.Metrics()) {
    if (metric.name == "weight_bytes" && !metric.of_process && metric.value >= 0 &&
        metric.value < 1e18)
      return static_cast<std::int64_t>(metric.value);
  }
  return key.load.model_dir.empty() ? 0 : FileBytes(key.load.model_dir);
}

}  // namespace

ModelStore::ModelStore(StageSource source, std::int64_t parked_bytes, base::Clock& clock)
    : source_(std::move(source)), budget_(parked_bytes), clock_(clock) {}

absl::StatusOr<LoadedModel> ModelStore::Get(const ModelKey& key) {
  if (auto stage = TakeParked(key)) return LoadedModel{std::move(stage), std::nullopt};
  const auto start = clock_.Now();
  auto stage = Load(key);
  if (absl::IsResourceExhausted(stage.status()) && stats().parked > 0) {
    DropParked();
    stage = Load(key);
  }
  ONEPIECE_RETURN_IF_ERROR(stage.status());
  return LoadedModel{*std::move(stage), clock_.Now() - start};
}

std::shared_ptr<sdk::Stage> ModelStore::TakeParked(const ModelKey& key) {
  const std::lock_guard lock(mutex_);
  for (auto parked = parked_.begin(); parked != parked_.end(); ++parked) {
    if (Fields(parked->key) != Fields(key)) continue;
    std::shared_ptr<sdk::Stage> stage = std::move(parked->stage);
    parked_bytes_ -= parked->bytes;
    parked_.erase(parked);
    ++hits_;
    return stage;
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<sdk::Stage>> ModelStore::Load(const ModelKey& key) const {
  std::unique_ptr<sdk::Stage> stage;
  try {
    ONEPIECE_ASSIGN_OR_RETURN(stage, source_(key.plugin, key.stage));
    ONEPIECE_RETURN_IF_ERROR(stage->Load(key.load));
  } catch (const std::exception& error) {
    return base::MakeError(absl::StatusCode::kInternal, "STAGE_FAILED", error.what());
  }
  return std::shared_ptr<sdk::Stage>(stage.release(), [](sdk::Stage* loaded) {
    loaded->Unload();
    delete loaded;
  });
}

void ModelStore::Release(const ModelKey& key, std::shared_ptr<sdk::Stage> stage) {
  if (budget_ <= 0) return;
  const std::int64_t bytes = WeightBytes(key, *stage);
  if (bytes > budget_) return;
  std::list<Parked> gone;  // Unloaded outside of the lock.
  const std::lock_guard lock(mutex_);
  while (!parked_.empty() && (bytes > budget_ - parked_bytes_ || parked_.size() >= kMaxParked)) {
    parked_bytes_ -= parked_.back().bytes;
    gone.splice(gone.end(), parked_, std::prev(parked_.end()));
  }
  parked_.push_front({key, std::move(stage), bytes});
  parked_bytes_ += bytes;
}

void ModelStore::DropParked() {
  std::list<Parked> gone;
  const std::lock_guard lock(mutex_);
  gone.swap(parked_);
  parked_bytes_ = 0;
}

ModelStore::Stats ModelStore::stats() const {
  const std::lock_guard lock(mutex_);
  return {parked_.size(), parked_bytes_, hits_};
}

}  // namespace onepiece::runtime
