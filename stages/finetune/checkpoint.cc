#include "stages/finetune/checkpoint.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "cluster/base/status.h"
#include "stages/tensor/safetensors_writer.h"
#include "stages/tensor/torch_convert.h"

namespace onepiece::finetune {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "step-";
constexpr char kUnfinished[] = "unfinished";
constexpr char kOptimizer[] = "/optimizer.safetensors";
constexpr std::string_view kMean = "mean.", kSquare = "square.";

absl::Status CannotWrite(const std::string& path, const std::string& why) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "CANNOT_WRITE",
                         "cannot write " + path + ": " + why, {{"file", path}});
}

absl::Status Sync(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool done = fd >= 0 && ::fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  return done ? absl::OkStatus() : CannotWrite(path, std::strerror(error));
}

/// Returns the folders of checkpoints, the oldest first.
std::vector<fs::path> Folders(const std::string& dir) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator entry(dir, error); entry != fs::directory_iterator();
       entry.increment(error)) {
    if (error) break;
    if (entry->path().filename().string().starts_with(kPrefix)) folders.push_back(entry->path());
  }
  std::ranges::sort(folders);  // Names have leading zeros.
  return folders;
}

bool ReadNumber(const std::map<std::string, std::string>& metadata, const char* key,
                std::int64_t& value) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return false;
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0;
}

}  // namespace

absl::StatusOr<CheckpointFolder> CheckpointFolder::Open(const std::string& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) return CannotWrite(dir, error.message());
  const std::string path = dir + "/lock";
  const int lock = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return CannotWrite(path, std::strerror(errno));
  CheckpointFolder folder(dir, lock);
  // The kernel drops this lock however the process ends, so a killed run leaves none behind.
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "CHECKPOINTS_IN_USE",
                           "another process trains in " + dir + ": give each its own folder");
  }
  // Only the holder of the lock may do this: another process could be writing there.
  fs::remove_all(fs::path(dir) / kUnfinished, error);
  return folder;
}

CheckpointFolder::CheckpointFolder(CheckpointFolder&& other) noexcept
    : dir_(std::move(other.dir_)), lock_(std::exchange(other.lock_, -1)) {}

CheckpointFolder::~CheckpointFolder() {
  if (lock_ >= 0) ::close(lock_);
}

std::string CheckpointFolder::Latest() const {
  const auto folders = Folders(dir_);
  return folders.empty() ? "" : folders.back().string();
}

absl::Status CheckpointFolder::Write(const Checkpoint& checkpoint, const Tensors& weights,
                                     const std::string& config) const {
  const fs::path target = fs::path(dir_) / absl::StrFormat("%s%08d", kPrefix, checkpoint.step);
  const std::vector<fs::path> older = Folders(dir_);
  // The same step gives the same checkpoint. A run that ends right after a periodic checkpoint asks
  // for it again.
  if (std::ranges::count(older, target) > 0) return absl::OkStatus();
  const std::string folder = dir_ + "/" + kUnfinished;
  const std::string transformer = TransformerFolder(folder);
  std::error_code error;
  fs::remove_all(folder, error);
  fs::create_directories(transformer, error);
  if (error) return CannotWrite(transformer, error.message());
  std::ofstream(transformer + "/config.json") << config;
  ONEPIECE_RETURN_IF_ERROR(Sync(transformer + "/config.json"));
  ONEPIECE_RETURN_IF_ERROR(
      tensor::WriteSafetensors(transformer + "/diffusion_pytorch_model.safetensors", weights));
  Tensors moments;
  for (const auto& [name, value] : checkpoint.mean) moments[std::string(kMean) + name] = value;
  for (const auto& [name, value] : checkpoint.square) moments[std::string(kSquare) + name] = value;
  ONEPIECE_RETURN_IF_ERROR(tensor::WriteSafetensors(
      folder + kOptimizer, moments,
      {{"step", std::to_string(checkpoint.step)}, {"seed", std::to_string(checkpoint.seed)}}));
  for (const std::string& written : {transformer, folder}) {
    ONEPIECE_RETURN_IF_ERROR(Sync(written));
  }
  // The rename makes the checkpoint visible. All files in it are durable before, so a crash leaves
  // either the whole checkpoint or none.
  fs::rename(folder, target, error);
  if (error) return CannotWrite(target.string(), error.message());
  ONEPIECE_RETURN_IF_ERROR(Sync(dir_));
  // The older ones go last. A crash before leaves two checkpoints, and Latest takes the new one.
  for (const fs::path& old : older) fs::remove_all(old, error);
  return absl::OkStatus();
}

std::string TransformerFolder(const std::string& folder) { return folder + "/transformer"; }

absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& folder) {
  ONEPIECE_ASSIGN_OR_RETURN(const auto file, tensor::SafetensorsFile::Open(folder + kOptimizer));
  Checkpoint checkpoint;
  if (!ReadNumber(file->index().metadata, "step", checkpoint.step) ||
      !ReadNumber(file->index().metadata, "seed", checkpoint.seed)) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_CHECKPOINT",
                           file->path() + ": its metadata has no step and seed");
  }
  for (const tensor::TensorEntry& entry : file->index().tensors) {
    ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor view,
                              tensor::LoadTensor(file, entry, at::kFloat, at::kCPU));
    const bool mean = entry.name.starts_with(kMean);
    Tensors& moments = mean ? checkpoint.mean : checkpoint.square;
    moments[entry.name.substr(mean ? kMean.size() : kSquare.size())] = view.clone();
  }
  return checkpoint;
}

}  // namespace onepiece::finetune
