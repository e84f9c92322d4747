#include "stages/wan/generation.h"

#include <ATen/CPUGeneratorImpl.h>

#include "cluster/base/check.h"
#include "cluster/base/status.h"

namespace onepiece::wan {
namespace {

absl::StatusOr<WanTransformer::Context> PreparePadded(const WanTransformer& transformer,
                                                      const at::Tensor& embeds,
                                                      std::int64_t padded_tokens) {
  ONEPIECE_CHECK(embeds.dim() == 3 && embeds.size(1) <= padded_tokens);
  return transformer.Prepare(
      at::constant_pad_nd(embeds, {0, 0, 0, padded_tokens - embeds.size(1)}));
}

}  // namespace

absl::StatusOr<at::Tensor> EncodeIds(const UMT5Encoder& encoder,
                                     const std::vector<std::int64_t>& ids, at::Device device) {
  const at::Tensor tokens = at::tensor(ids, at::kLong).unsqueeze(0).to(device);
  return encoder.Forward(tokens, at::ones_like(tokens));
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
  ONEPIECE_ASSIGN_OR_RETURN(prompt,
                            PreparePadded(transformer, inputs.prompt_embeds, inputs.padded_tokens));
  if (guided) {
    ONEPIECE_ASSIGN_OR_RETURN(
        negative, PreparePadded(transformer, inputs.negative_prompt_embeds, inputs.padded_tokens));
  }
  DenoiseStep step{.index = inputs.first_step,
                   .steps = static_cast<int>(scheduler.timesteps().size()),
                   .latents = inputs.latents};
  for (; step.index < step.steps; ++step.index) {
    const double timestep = scheduler.timesteps()[static_cast<std::size_t>(step.index)];
    ONEPIECE_ASSIGN_OR_RETURN(step.conditional,
                              transformer.Forward(step.latents, timestep, prompt));
    at::Tensor prediction = step.conditional;
    if (guided) {
      ONEPIECE_ASSIGN_OR_RETURN(step.unconditional,
                                transformer.Forward(step.latents, timestep, negative));
      prediction =
          step.unconditional + inputs.guidance_scale * (step.conditional - step.unconditional);
    }
    step.latents = scheduler.Step(prediction, step.index, step.latents);
    ONEPIECE_RETURN_IF_ERROR(observer(step));
  }
  return step.latents;
}

absl::StatusOr<at::Tensor> DecodeFrames(const WanVae& vae, const at::Tensor& latents,
                                        const ChunkProgress& progress) {
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor video, vae.Decode(vae.Denormalise(latents), progress));
  const at::Tensor pixels = (video[0] / 2 + 0.5).clamp(0, 1).mul(255).round();
  return pixels.permute({1, 2, 3, 0}).to(at::kCPU, at::kByte).contiguous();
}

}  // namespace onepiece::wan
