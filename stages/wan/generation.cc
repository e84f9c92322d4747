#include "stages/wan/generation.h"

#include "cluster/base/check.h"
#include "cluster/base/status.h"
#include "stages/model/image_processor.h"
#include "stages/model/prompt_cleaning.h"

namespace onepiece::wan {
namespace {

absl::StatusOr<WanTransformer::Context> PreparePadded(const WanTransformer& transformer,
                                                      const at::Tensor& embeds,
                                                      const DenoiseInputs& inputs) {
  ONEPIECE_CHECK(embeds.dim() == 3 && embeds.size(1) <= inputs.padded_tokens);
  return transformer.Prepare(
      at::constant_pad_nd(embeds, {0, 0, 0, inputs.padded_tokens - embeds.size(1)}),
      inputs.image_embeds);
}

}  // namespace

absl::StatusOr<std::vector<std::int64_t>> PromptIds(const model::Tokenizer& tokenizer,
                                                    std::string_view prompt, int max_length) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::string text, model::CleanPrompt(prompt));
  return tokenizer.Encode(text, max_length);
}

absl::StatusOr<at::Tensor> EncodeIds(const UMT5Encoder& encoder,
                                     const std::vector<std::int64_t>& ids, at::Device device) {
  const at::Tensor tokens = at::tensor(ids, at::kLong).unsqueeze(0).to(device);
  return encoder.Forward(tokens, at::ones_like(tokens));
}

absl::StatusOr<at::Tensor> EncodeCondition(const WanVae& vae, const at::Tensor& first,
                                           const at::Tensor& last, std::int64_t frames,
                                           const ChunkProgress& progress,
                                           const std::optional<WanVae::Tiling>& tiling) {
  const std::int64_t group = vae.config().temporal_scale();
  ONEPIECE_CHECK(first.dim() == 4 &&
                 (!last.defined() || (frames > 1 && last.sizes() == first.sizes())));
  if ((frames - 1) % group != 0) {
    return base::MakeError(
        absl::StatusCode::kInvalidArgument, "BAD_SHAPE",
        std::to_string(frames) + " frames are not 1 + n * " + std::to_string(group));
  }
  at::Tensor video = at::zeros({1, 3, frames, first.size(2), first.size(3)}, first.options());
  video.select(2, 0).copy_(first);
  if (last.defined()) video.select(2, frames - 1).copy_(last);
  ONEPIECE_ASSIGN_OR_RETURN(const WanVae::Posterior posterior, vae.Encode(video, progress, tiling));
  const at::Tensor latents = vae.Normalise(posterior.mean);
  at::Tensor given = at::zeros({frames + group - 1}, latents.options());
  given.narrow(0, 0, group).fill_(1);  // The first frame is a group of its own.
  if (last.defined()) given.narrow(0, frames + group - 2, 1).fill_(1);
  const at::Tensor mask =
      given.view({1, -1, group, 1, 1})
          .transpose(1, 2)
          .expand({1, group, latents.size(2), latents.size(3), latents.size(4)});
  return at::cat({mask, latents}, 1);
}

absl::StatusOr<at::Tensor> Denoise(const WanTransformer& transformer, model::Scheduler& scheduler,
                                   const DenoiseInputs& inputs, const StepObserver& observer) {
  const bool guided = inputs.guidance_scale > 1;
  WanTransformer::Context prompt, negative;
  ONEPIECE_ASSIGN_OR_RETURN(prompt, PreparePadded(transformer, inputs.prompt_embeds, inputs));
  if (guided) {
    ONEPIECE_ASSIGN_OR_RETURN(negative,
                              PreparePadded(transformer, inputs.negative_prompt_embeds, inputs));
  }
  DenoiseStep step{.index = inputs.first_step,
                   .steps = static_cast<int>(scheduler.timesteps().size()),
                   .latents = inputs.latents};
  for (; step.index < step.steps; ++step.index) {
    const double timestep = scheduler.timesteps()[static_cast<std::size_t>(step.index)];
    const at::Tensor hidden =
        inputs.condition.defined() ? at::cat({step.latents, inputs.condition}, 1) : step.latents;
    ONEPIECE_ASSIGN_OR_RETURN(step.conditional, transformer.Forward(hidden, timestep, prompt));
    at::Tensor prediction = step.conditional;
    if (guided) {
      ONEPIECE_ASSIGN_OR_RETURN(step.unconditional,
                                transformer.Forward(hidden, timestep, negative));
      prediction =
          step.unconditional + inputs.guidance_scale * (step.conditional - step.unconditional);
    }
    step.latents = scheduler.Step(prediction, step.index, step.latents);
    ONEPIECE_RETURN_IF_ERROR(observer(step));
  }
  return step.latents;
}

absl::StatusOr<at::Tensor> DecodeFrames(const WanVae& vae, const at::Tensor& latents,
                                        const ChunkProgress& progress,
                                        const std::optional<WanVae::Tiling>& tiling) {
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor video,
                            vae.Decode(vae.Denormalise(latents), progress, tiling));
  return model::FramesOfVideo(video);
}

}  // namespace onepiece::wan
