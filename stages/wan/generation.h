// Text and image to video, one function for each part of the work: what stages and VerifyReference
// share.
//
// They compute on the calling thread's LibTorch settings (tensor::SetComputeThreads) and may throw
// what LibTorch throws: call them inside tensor::Guarded.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stages/model/schedulers.h"
#include "stages/model/tokenizer.h"
#include "stages/wan/autoencoder.h"
#include "stages/wan/family.h"
#include "stages/wan/transformer_3d.h"
#include "stages/wan/umt5_encoder.h"

namespace onepiece::wan {

/// Token ids of a prompt, cleaned (CleanPrompt) and cut to `max_length`. Errors: those of
/// CleanPrompt.
absl::StatusOr<std::vector<std::int64_t>> PromptIds(const model::Tokenizer& tokenizer,
                                                    std::string_view prompt,
                                                    int max_length = kMaxSequenceLength);

/// Embeddings of these tokens only, F32 [1, tokens, d_model]. Errors: those of
/// UMT5Encoder::Forward.
absl::StatusOr<at::Tensor> EncodeIds(const UMT5Encoder& encoder,
                                     const std::vector<std::int64_t>& ids, at::Device device);

/// What the diffusion is given of its images, F32 [1, 4 + z_dim, frames, height, width] of latents:
/// a mask that is 1 where a frame is given (one channel for each frame of a group), and the
/// normalised latents of a video that is grey (0) everywhere else. `first`, and `last` unless it is
/// undefined, are of FrameOfImage; `frames` are those of the video, 5 or more with `last`. Errors:
/// those of WanVae::Encode.
absl::StatusOr<at::Tensor> EncodeCondition(const WanVae& vae, const at::Tensor& first,
                                           const at::Tensor& last, std::int64_t frames,
                                           const ChunkProgress& progress = {},
                                           const std::optional<WanVae::Tiling>& tiling = {});

struct DenoiseInputs {
  at::Tensor latents;  ///< Noise, F32 [1, channels, frames, height, width]; or what first_step
                       ///< steps made of it.
  int first_step = 0;  ///< The scheduler is at this step.
  at::Tensor prompt_embeds,
      negative_prompt_embeds;  ///< F32 [1, tokens, text_dim], tokens <= padded_tokens.
  at::Tensor condition;        ///< Of EncodeCondition; undefined for text to video.
  at::Tensor image_embeds;     ///< Of ClipVision::Forward; undefined where the model takes none.
  std::int64_t padded_tokens = 0;  ///< Zeros are appended up to this many tokens.
  double guidance_scale = 0;       ///< The negative prompt counts only above 1.
};

/// What one step of Denoise made.
struct DenoiseStep {
  int index = 0, steps = 0;  ///< index counts from 0.
  at::Tensor conditional;    ///< The transformer's prediction for the prompt ...
  at::Tensor unconditional;  ///< ... and for the negative prompt; undefined without guidance.
  at::Tensor latents;        ///< After the step.
};

/// Called after each step; an error stops the work and is returned.
using StepObserver = std::function<absl::Status(const DenoiseStep&)>;

/// Latents in the normalised space, as DecodeFrames takes them. `scheduler` is used up.
/// Errors: those of the transformer and of `observer`.
absl::StatusOr<at::Tensor> Denoise(const WanTransformer& transformer, model::Scheduler& scheduler,
                                   const DenoiseInputs& inputs, const StepObserver& observer);

/// Frames of normalised latents, U8 [frames, height, width, 3] on the CPU. Errors: those of
/// WanVae::Decode.
absl::StatusOr<at::Tensor> DecodeFrames(const WanVae& vae, const at::Tensor& latents,
                                        const ChunkProgress& progress = {},
                                        const std::optional<WanVae::Tiling>& tiling = {});

}  // namespace onepiece::wan
