#include "stages/wan/generation.h"

#include <array>

#include "cluster/base/check.h"
#include "cluster/base/status.h"
#include "stages/model/diffusion_state.h"
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

/// Makes the predictions of a run.
class Predictor {
 public:
  Predictor(const WanTransformer& transformer, const DenoiseInputs& inputs)
      : transformer_(transformer), inputs_(inputs) {}

  [[nodiscard]] bool guided() const { return inputs_.guidance_scale > 1; }

  /// Fills in the predictions for step.latents.
  absl::Status Predict(double timestep, const model::Parallel& parallel, DenoiseStep& step) {
    const at::Tensor hidden =
        inputs_.condition.defined() ? at::cat({step.latents, inputs_.condition}, 1) : step.latents;
    const auto predict = [&](int branch) -> absl::StatusOr<at::Tensor> {
      ONEPIECE_ASSIGN_OR_RETURN(const WanTransformer::Context* const context, ContextOf(branch));
      return transformer_.Forward(hidden, timestep, *context, parallel);
    };
    if (parallel.group != nullptr) {
      ONEPIECE_RETURN_IF_ERROR(model::CheckPlan(parallel.plan, parallel.group->size(),
                                                transformer_.WorkOf(hidden.sizes(), guided())));
    }
    if (parallel.group != nullptr && parallel.plan.cfg == 2) {
      ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor both, predict(parallel.branch()));
      step.conditional = both.narrow(0, 0, 1);
      step.unconditional = both.narrow(0, 1, 1);
      return absl::OkStatus();
    }
    ONEPIECE_ASSIGN_OR_RETURN(step.conditional, predict(0));
    if (guided()) {
      ONEPIECE_ASSIGN_OR_RETURN(step.unconditional, predict(1));
    }
    return absl::OkStatus();
  }

 private:
  /// Returns the prompt's (0) or the negative prompt's (1). A rank may need only one, or need the
  /// other when its group has changed.
  absl::StatusOr<const WanTransformer::Context*> ContextOf(int branch) {
    auto& context = contexts_[static_cast<std::size_t>(branch)];
    if (!context) {
      const at::Tensor& embeds =
          branch == 0 ? inputs_.prompt_embeds : inputs_.negative_prompt_embeds;
      ONEPIECE_ASSIGN_OR_RETURN(context, PreparePadded(transformer_, embeds, inputs_));
    }
    return &*context;
  }

  const WanTransformer& transformer_;
  const DenoiseInputs& inputs_;
  std::array<std::optional<WanTransformer::Context>, 2> contexts_;
};

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
                                   const DenoiseInputs& inputs, const StepObserver& observer,
                                   const GroupOfStep& group_of_step) {
  Predictor predictor(transformer, inputs);
  DenoiseStep step{.index = inputs.first_step,
                   .steps = static_cast<int>(scheduler.timesteps().size()),
                   .latents = inputs.latents};
  for (; step.index < step.steps; ++step.index) {
    StepGroup with;
    if (group_of_step) {
      ONEPIECE_ASSIGN_OR_RETURN(with, group_of_step(step.index));
    }
    if (!with.newcomers.empty()) {
      ONEPIECE_RETURN_IF_ERROR(
          model::ShareState(with.parallel, with.newcomers, step.index, step.latents, scheduler));
    }
    if (step.index == inputs.first_step && scheduler.Save().steps_done != step.index) {
      return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_STATE",
                             "no state of step " + std::to_string(step.index) + " to go on from");
    }
    ONEPIECE_RETURN_IF_ERROR(predictor.Predict(
        scheduler.timesteps()[static_cast<std::size_t>(step.index)], with.parallel, step));
    at::Tensor prediction = step.conditional;
    if (predictor.guided()) {
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
                                        const std::optional<WanVae::Tiling>& tiling,
                                        const model::Parallel& parallel) {
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor video,
                            vae.Decode(vae.Denormalise(latents), progress, tiling, parallel));
  return model::FramesOfVideo(video);
}

}  // namespace onepiece::wan
