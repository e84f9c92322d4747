// Checkpoints of a training run: a folder for each, complete or not there.
//
//   DIR/step-00000200/transformer/   a component folder (docs/wan.md): serve it in the model's
//   place DIR/step-00000200/optimizer.safetensors   AdamW's moments; metadata: step and seed
//
// A step's random numbers come from seed and step alone, so there is no generator to save.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace onepiece::finetune {

using Tensors = std::map<std::string, at::Tensor>;  ///< By name; F32 on the CPU.

struct Checkpoint {
  std::int64_t step = 0;  ///< Steps done.
  std::int64_t seed = 0;
  Tensors mean, square;  ///< AdamW's moments, by weight.
};

/// The folder that checkpoints of one run live in, held by one process at a time. Thread-confined.
class CheckpointFolder {
 public:
  /// Makes `dir` and takes its lock; what a killed run left half-written goes. Errors:
  /// FAILED_PRECONDITION CHECKPOINTS_IN_USE, CANNOT_WRITE.
  static absl::StatusOr<CheckpointFolder> Open(const std::string& dir);
  ~CheckpointFolder();
  CheckpointFolder(CheckpointFolder&& other) noexcept;
  CheckpointFolder& operator=(CheckpointFolder&&) = delete;

  /// Folder of the newest checkpoint; empty when there is none.
  [[nodiscard]] std::string Latest() const;
  /// Writes a checkpoint beside those that are there, makes it visible at once and drops older
  /// ones. `config` is the transformer's config.json. Errors: FAILED_PRECONDITION CANNOT_WRITE.
  absl::Status Write(const Checkpoint& checkpoint, const Tensors& weights,
                     const std::string& config) const;

 private:
  CheckpointFolder(std::string dir, int lock) : dir_(std::move(dir)), lock_(lock) {}
  std::string dir_;
  int lock_ = -1;
};

/// Of a checkpoint's folder. Errors: NOT_FOUND; INVALID_ARGUMENT BAD_SAFETENSORS, BAD_CHECKPOINT.
absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& folder);
/// Its component folder.
std::string TransformerFolder(const std::string& folder);

}  // namespace onepiece::finetune
