// Text and image to video, with one function for each part of the work. Stages and VerifyReference
// share them.
//
// The functions use the calling thread's LibTorch settings (tensor::SetComputeThreads) and may
// throw LibTorch's exceptions. Call them inside tensor::Guarded.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stages/model/parallel_plan.h"
#include "stages/model/schedulers.h"
#include "stages/model/tokenizer.h"
#include "stages/wan/autoencoder.h"
#include "stages/wan/family.h"
#include "stages/wan/transformer_3d.h"
#include "stages/wan/umt5_encoder.h"

namespace onepiece::wan {

/// Returns the token ids of a prompt, cleaned (CleanPrompt) and cut to `max_length`.
///
/// Errors: those of CleanPrompt.
absl::StatusOr<std::vector<std::int64_t>> PromptIds(const model::Tokenizer& tokenizer,
                                                    std::string_view prompt,
                                                    int max_length = kMaxSequenceLength);

/// Returns the embeddings of these tokens only, F32 [1, tokens, d_model].
///
/// Errors: those of UMT5Encoder::Forward.
absl::StatusOr<at::Tensor> EncodeIds(const UMT5Encoder& encoder,
                                     const std::vector<std::int64_t>& ids, at::Device device);

/// Returns the condition of the diffusion on its images, F32 [1, 4 + z_dim, frames, height, width]
/// of latents: a mask that is 1 where a frame is given (one channel for each frame of a group), and
/// the normalised latents of a video that is grey (0) everywhere else. FrameOfImage makes `first`
/// and `last`; `last` may be undefined. `frames` is the number of the video's frames, at least 5
/// with `last`.
///
/// Errors: those of WanVae::Encode.
absl::StatusOr<at::Tensor> EncodeCondition(const WanVae& vae, const at::Tensor& first,
                                           const at::Tensor& last, std::int64_t frames,
                                           const ChunkProgress& progress = {},
                                           const std::optional<WanVae::Tiling>& tiling = {});

struct DenoiseInputs {
  at::Tensor latents;  ///< Noise, F32 [1, channels, frames, height, width], or the result of
                       ///< first_step steps.
  int first_step = 0;  ///< The scheduler is at this step.
  at::Tensor prompt_embeds,
      negative_prompt_embeds;      ///< F32 [1, tokens, text_dim], tokens <= padded_tokens.
  at::Tensor condition;            ///< From EncodeCondition. Undefined for text to video.
  at::Tensor image_embeds;         ///< From ClipVision::Forward. Undefined if the model takes none.
  std::int64_t padded_tokens = 0;  ///< Zeros are appended up to this many tokens.
  double guidance_scale = 0;       ///< The negative prompt counts only above 1.
};

/// The results of one step of Denoise.
struct DenoiseStep {
  int index = 0, steps = 0;  ///< index counts from 0.
  at::Tensor conditional;    ///< The transformer's prediction for the prompt ...
  at::Tensor unconditional;  ///< ... and for the negative prompt; undefined without guidance.
  at::Tensor latents;        ///< After the step.
};

/// Called after each step. An error stops the work, and the caller gets it.
using StepObserver = std::function<absl::Status(const DenoiseStep&)>;

/// The workers that compute a step together.
struct StepGroup {
  model::Parallel parallel;    ///< No group: this worker alone.
  std::vector<int> newcomers;  ///< Ranks that did not compute the step before (ShareState).
};

/// Called before each step, with its index, on every worker that computes it. The members may
/// change from step to step. An error ends this worker's part; a worker that leaves the group
/// returns ABORTED. The group must live until the next call.
using GroupOfStep = std::function<absl::StatusOr<StepGroup>(int index)>;

/// Returns latents in the normalised space, as DecodeFrames takes them. `scheduler` cannot be used
/// again.
///
/// With a group, every member keeps the latents and the scheduler's state, and computes its part of
/// the predictions. A worker that comes to a group after its first step gives latents of the right
/// shape and the group's first_step, and is a newcomer in that step. `observer` must answer alike
/// on all members: one that stops alone leaves the others waiting.
///
/// Errors: those of the transformer, of `observer`, of `group_of_step` and of ShareState; BAD_STATE
/// (the scheduler is not at first_step).
absl::StatusOr<at::Tensor> Denoise(const WanTransformer& transformer, model::Scheduler& scheduler,
                                   const DenoiseInputs& inputs, const StepObserver& observer,
                                   const GroupOfStep& group_of_step = {});

/// Returns the frames of normalised latents, U8 [frames, height, width, 3] on the CPU.
///
/// Errors: those of WanVae::Decode.
absl::StatusOr<at::Tensor> DecodeFrames(const WanVae& vae, const at::Tensor& latents,
                                        const ChunkProgress& progress = {},
                                        const std::optional<WanVae::Tiling>& tiling = {},
                                        const model::Parallel& parallel = {});

}  // namespace onepiece::wan
