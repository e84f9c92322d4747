// Fine-tunes a text-to-video transformer on clips made in code (clips.h): flow matching as Wan does
// it (arXiv:2503.20314, diffusers' flow-match training), AdamW (arXiv:1711.05101).
//
//   x_t = (1 - σ) x0 + σ noise,   the model predicts noise - x0 at timestep 1000 σ,   loss: MSE
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stages/finetune/checkpoint.h"
#include "stages/model/tokenizer.h"
#include "stages/wan/autoencoder.h"
#include "stages/wan/transformer_3d.h"
#include "stages/wan/umt5_encoder.h"

namespace onepiece::finetune {

struct TrainerOptions {
  std::string model_dir;   ///< A text-to-video model in the diffusers folder layout.
  std::string checkpoint;  ///< Folder of a checkpoint to resume from. Empty: starts from the model.
  std::int64_t seed = 0;   ///< >= 0.
  int threads = 1;         ///< Sums differ with the count: equal losses need equal counts.
};

/// Computes on the CPU in F32, with the calling thread's LibTorch settings.
///
/// Threading: thread-confined.
class Trainer {
 public:
  /// Loads the model.
  ///
  /// Errors: those of the components' Load and of ReadCheckpoint; FAILED_PRECONDITION OTHER_RUN (a
  /// checkpoint of another seed or model); UNIMPLEMENTED (an image-to-video model).
  static absl::StatusOr<std::unique_ptr<Trainer>> Open(const TrainerOptions& options);

  /// Does one step of AdamW over kBatch clips and returns their mean loss. The same seed, model and
  /// threads give the same losses bit for bit, whether or not the run was interrupted. Asks `stop`
  /// between clips; if it returns true, the step has not happened.
  ///
  /// Errors: CANCELLED (`stop` returned true), RESOURCE_EXHAUSTED, INTERNAL.
  absl::StatusOr<double> Step(const std::function<bool()>& stop);

  /// Returns the steps done, including those of earlier runs.
  [[nodiscard]] std::int64_t steps() const { return state_.step; }
  absl::Status Save(const CheckpointFolder& folder) const;

  /// A step spreads its noise levels over this many clips.
  static constexpr int kBatch = 8;

 private:
  struct Example {
    at::Tensor latents;  // Normalised, F32 [1, channels, frames, height, width].
    at::Tensor text;     // Padded, F32 [1, tokens, text_dim].
  };

  explicit Trainer(const TrainerOptions& options) : options_(options) {}
  absl::Status Load();
  absl::StatusOr<Example> Encode(std::int64_t clip) const;
  absl::StatusOr<at::Tensor> EmbedText(const std::string& text) const;
  absl::StatusOr<const Example*> Find(std::int64_t clip);
  absl::StatusOr<double> StepUnguarded(const std::function<bool()>& stop);
  /// Returns the loss of one clip at `level` (0 to 1, before the shift) and adds its gradient up.
  absl::StatusOr<double> Learn(const at::Generator& generator, double level);
  void Update();
  void DropGradients();

  const TrainerOptions options_;
  double shift_ = 1;    // The scheduler's: σ = shift u / (1 + (shift - 1) u).
  std::string config_;  // The transformer's config.json.
  Tensors weights_;     // The weights of transformer_, changed in place.
  Checkpoint state_;
  std::unique_ptr<wan::WanTransformer> transformer_;
  std::unique_ptr<wan::WanVae> vae_;
  std::unique_ptr<model::Tokenizer> tokenizer_;
  std::unique_ptr<wan::UMT5Encoder> encoder_;
  std::map<std::int64_t, Example> examples_;  // By clip; at most kClips.
  at::Tensor no_text_;
};

}  // namespace onepiece::finetune
