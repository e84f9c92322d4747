// Checkpoints of a training run. Each has a folder, which is complete or absent.
//
//   DIR/step-00000200/transformer/            a component folder (docs/wan.md), to be served in
//                                             place of the model's
//   DIR/step-00000200/optimizer.safetensors   AdamW's moments; metadata: step and seed
//
// A step's random numbers follow from the seed and the step alone, so there is no generator to
// save.
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

/// The folder that checkpoints of one run live in. One process at a time holds it.
///
/// Threading: thread-confined.
class CheckpointFolder {
 public:
  /// Makes `dir`, takes its lock and removes what a killed run left half-written.
  ///
  /// Errors: FAILED_PRECONDITION CHECKPOINTS_IN_USE, CANNOT_WRITE.
  static absl::StatusOr<CheckpointFolder> Open(const std::string& dir);
  ~CheckpointFolder();
  CheckpointFolder(CheckpointFolder&& other) noexcept;
  CheckpointFolder& operator=(CheckpointFolder&&) = delete;

  /// Returns the folder of the newest checkpoint, or an empty string if there is none.
  [[nodiscard]] std::string Latest() const;
  /// Writes a checkpoint beside the others, makes it visible in one step and removes older ones.
  /// `config` is the transformer's config.json.
  ///
  /// Errors: FAILED_PRECONDITION CANNOT_WRITE.
  absl::Status Write(const Checkpoint& checkpoint, const Tensors& weights,
                     const std::string& config) const;

 private:
  CheckpointFolder(std::string dir, int lock) : dir_(std::move(dir)), lock_(lock) {}
  std::string dir_;
  int lock_ = -1;
};

/// Reads a checkpoint's folder.
///
/// Errors: NOT_FOUND; INVALID_ARGUMENT BAD_SAFETENSORS, BAD_CHECKPOINT.
absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& folder);
/// Returns the component folder of a checkpoint's folder.
std::string TransformerFolder(const std::string& folder);

}  // namespace onepiece::finetune
