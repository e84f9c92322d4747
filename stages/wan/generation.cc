#include "stages/wan/generation.h"

#include <ATen/CPUGeneratorImpl.h>

#include "cluster/base/check.h"
#include "cluster/base/status.h"

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

absl::StatusOr<at::Tensor> EncodeIds(const UMT5Encoder& encoder,
                                     const std::vector<std::int64_t>& ids, at::Device device) {
  const at::Tensor tokens = at::tensor(ids, at::kLong).unsqueeze(0).to(device);
  return encoder.Forward(tokens, at::ones_like(tokens));
}

absl::StatusOr<at::Tensor> PixelValues(const ImageProcessor& processor,
                                       const std::vector<media::Image>& images) {
  std::vector<at::Tensor> pixels;
  for (const media::Image& image : images) {
    ONEPIECE_ASSIGN_OR_RETURN(pixels.emplace_back(), processor.Process(image));
    if (pixels.back().sizes() != pixels.front().sizes()) {
      return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_SHAPE",
                             "the images have different sizes after preprocessing");
    }
  }
  return at::cat(pixels);
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

at::Generator MakeGenerator(std::int64_t seed) {
  return at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed));
}

at::Tensor InitialLatents(const at::Generator& generator, at::IntArrayRef shape) {
  return at::randn(shape, generator, at::TensorOptions().dtype(at::kFloat));
}

absl::StatusOr<at::Tensor> Denoise(const WanTransformer& transformer, Scheduler& scheduler,
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
  const at::Tensor pixels = (video[0] / 2 + 0.5).clamp(0, 1).mul(255).round();
  return pixels.permute({1, 2, 3, 0}).to(at::kCPU, at::kByte).contiguous();
}

}  // namespace onepiece::wan
