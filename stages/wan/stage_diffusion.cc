#include <algorithm>
#include <optional>

#include "absl/strings/str_format.h"
#include "cluster/base/check.h"
#include "cluster/base/status.h"
#include "stages/model/component_store.h"
#include "stages/model/content_hash.h"
#include "stages/model/diffusion_state.h"
#include "stages/model/generation_settings.h"
#include "stages/model/lora.h"
#include "stages/model/noise.h"
#include "stages/model/parallel_plan.h"
#include "stages/model/prepare_load.h"
#include "stages/model/stage_inputs.h"
#include "stages/sdk/parameters.h"
#include "stages/tensor/compute.h"
#include "stages/tensor/device_copy.h"
#include "stages/tensor/torch_convert.h"
#include "stages/wan/family.h"
#include "stages/wan/generation.h"
#include "stages/wan/merged_transformers.h"
#include "stages/wan/model_folder.h"
#include "stages/wan/stage_common.h"
#include "stages/wan/stages.h"

namespace onepiece::wan {
namespace {

class DiffusionStage final : public sdk::Stage {
 public:
  sdk::StageInfo Info() const override {
    return {.name = "diffusion",
            .description = "embeddings to latents, step by step",
            .inputs = {"prompt_embeds", "negative_prompt_embeds"},
            .optional_inputs = {"condition", "image_embeds", "state", "state.latents", "state.rng",
                                "state.newest", "state.older", "state.last_sample"},
            .outputs = {"latents"},
            .parameters = {"seed", "steps", "guidance_scale", "width", "height", "num_frames",
                           "loras"}};
  }

  absl::Status Load(const sdk::LoadOptions& options) override {
    return tensor::Guarded([&]() -> absl::Status {
      ONEPIECE_ASSIGN_OR_RETURN(const at::Device device, model::PrepareLoad(options));
      ONEPIECE_RETURN_IF_ERROR(CheckModelFolder(options.model_dir));
      ONEPIECE_ASSIGN_OR_RETURN(const at::ScalarType products,
                                model::ParsePrecision(options.precision, device));
      ONEPIECE_ASSIGN_OR_RETURN(const auto scheduler,
                                model::LoadSchedulerConfig(options.model_dir + "/scheduler"));
      ONEPIECE_ASSIGN_OR_RETURN(auto transformer,
                                model::ComponentStore::OfProcess().Get<WanTransformer>(
                                    options.model_dir + "/transformer", device, products));
      loaded_.emplace(Loaded{std::move(transformer), scheduler, device, products, options.model_dir,
                             options.threads});
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::vector<sdk::Artifact>> Run(
      sdk::StageContext& context, const std::vector<sdk::Artifact>& inputs) override {
    ONEPIECE_CHECK(loaded_.has_value());
    return tensor::Guarded([&]() -> absl::StatusOr<std::vector<sdk::Artifact>> {
      tensor::SetComputeThreads(loaded_->threads);
      ONEPIECE_ASSIGN_OR_RETURN(const model::GenerationSettings settings,
                                model::ReadSettings(context.parameters(), kGeometry));
      ONEPIECE_ASSIGN_OR_RETURN(const auto scheduler,
                                model::MakeScheduler(loaded_->scheduler, settings.steps));
      DenoiseInputs denoise{.padded_tokens = kMaxSequenceLength,
                            .guidance_scale = settings.guidance_scale};
      ONEPIECE_ASSIGN_OR_RETURN(denoise.prompt_embeds, Embeds(inputs, "prompt_embeds"));
      ONEPIECE_ASSIGN_OR_RETURN(denoise.negative_prompt_embeds,
                                Embeds(inputs, "negative_prompt_embeds"));
      ONEPIECE_ASSIGN_OR_RETURN(denoise.condition, Condition(inputs, settings));
      ONEPIECE_ASSIGN_OR_RETURN(denoise.image_embeds, ImageEmbeds(inputs));
      const auto shape = settings.LatentShape(kGeometry, config().out_channels);
      at::Generator generator = model::MakeGenerator(settings.seed);
      ONEPIECE_ASSIGN_OR_RETURN(const Weights weights, Weigh(context.parameters()));
      // Reads all of the conditioning, so it is called only if a state is saved or brought.
      const auto described = [&] { return Describe(settings, weights, inputs); };
      ONEPIECE_ASSIGN_OR_RETURN(auto saved,
                                model::LoadState(inputs, described, shape, loaded_->device));
      if (saved.has_value()) {
        ONEPIECE_RETURN_IF_ERROR(GoOn(*saved, *scheduler, generator, denoise));
      } else {
        // Every member of a group draws the same noise.
        denoise.latents = model::InitialLatents(generator, shape).to(loaded_->device);
      }
      const auto save = [&](const DenoiseStep& step) {
        return context.Checkpoint(step.index + 1, step.steps, [&]() -> SavedState {
          ONEPIECE_RETURN_IF_ERROR(weights.CheckUnchanged());
          return model::SaveState(
              {described(), step.latents, generator.get_state(), scheduler->Save()});
        });
      };
      if (const auto late = LateStart(context.collaboration())) denoise.first_step = *late;
      ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor latents,
                                Denoise(*weights.value, *scheduler, denoise, save, [&](int index) {
                                  return GroupOf(
                                      context, index,
                                      weights.value->WorkOf(shape, settings.guidance_scale > 1));
                                }));
      ONEPIECE_RETURN_IF_ERROR(weights.CheckUnchanged());
      std::vector<sdk::Artifact> outputs(1);
      ONEPIECE_ASSIGN_OR_RETURN(outputs[0], tensor::ToArtifact("latents", latents));
      return outputs;
    });
  }

  void Unload() override { loaded_.reset(); }
  std::vector<sdk::StageMetric> Metrics() const override { return WanMetrics(); }

 private:
  /// A transformer and what identifies its weights.
  using Weights = model::Component<WanTransformer>;
  using SavedState = absl::StatusOr<std::vector<sdk::Artifact>>;
  struct Loaded {
    Weights transformer;
    model::SchedulerConfig scheduler;
    at::Device device;
    at::ScalarType products;
    std::string model_dir;
    int threads;
  };

  /// Returns the step at which a newcomer begins, to which the other members bring the state.
  static std::optional<int> LateStart(const sdk::Collaboration& with) {
    if (with.group == nullptr || std::ranges::count(with.newcomers, with.group->rank()) == 0)
      return std::nullopt;
    return with.steps_done;
  }

  static absl::StatusOr<StepGroup> GroupOf(sdk::StageContext& context, int index,
                                           const model::ParallelWork& work) {
    const sdk::Collaboration with = context.collaboration();
    StepGroup group{.parallel = model::ParallelOf(with, work)};
    // After their first step newcomers are members like the others.
    if (with.steps_done == index) group.newcomers = with.newcomers;
    return group;
  }

  /// Returns the model's weights, changed by the adapters that the job names.
  absl::StatusOr<Weights> Weigh(const sdk::Parameters& parameters) const {
    ONEPIECE_ASSIGN_OR_RETURN(const std::string text,
                              sdk::StringParameter(parameters, "loras", ""));
    ONEPIECE_ASSIGN_OR_RETURN(const auto choices, model::ParseLoras("loras", text));
    if (choices.empty()) return loaded_->transformer;
    ONEPIECE_ASSIGN_OR_RETURN(const std::string hash,
                              MergedHash(loaded_->transformer.hash, choices));
    ONEPIECE_ASSIGN_OR_RETURN(MergedTransformers* const merged, MergedTransformers::OfProcess());
    // The threads belong to the key: the sums of a merge depend on their count.
    const std::string key =
        model::HashOfParts({hash, loaded_->device.str(), c10::toString(loaded_->products),
                            std::to_string(loaded_->threads)});
    ONEPIECE_ASSIGN_OR_RETURN(auto transformer,
                              merged->Get(key, loaded_->transformer.value->weight_bytes(),
                                          [&] { return Merge(choices, hash); }));
    return Weights{std::move(transformer), hash, loaded_->transformer.dir};
  }

  /// Returns a text that identifies weights with adapters merged into them.
  [[nodiscard]] absl::StatusOr<std::string> MergedHash(
      std::string hash, const std::vector<model::LoraChoice>& choices) const {
    for (const model::LoraChoice& choice : choices) {
      const auto content = model::HashOfFiles({AdapterPath(choice)});
      if (absl::IsNotFound(content.status()))
        return sdk::BadParameter("loras", "the model has no adapter \"" + choice.name + "\"");
      if (!content.ok()) return content.status();
      // %a writes every bit of the scale. Decimals could give two scales one hash.
      hash = model::HashOfParts({hash, *content, absl::StrFormat("%a", choice.scale)});
    }
    return hash;
  }

  [[nodiscard]] std::string AdapterPath(const model::LoraChoice& choice) const {
    return loaded_->model_dir + "/loras/" + choice.name + ".safetensors";
  }

  absl::StatusOr<WanTransformer> Merge(const std::vector<model::LoraChoice>& choices,
                                       const std::string& hash) const {
    std::vector<model::ScaledLora> loras;
    for (const model::LoraChoice& choice : choices) {
      ONEPIECE_ASSIGN_OR_RETURN(auto adapter, model::LoraAdapter::Open(AdapterPath(choice)));
      ONEPIECE_RETURN_IF_ERROR(adapter->CheckFit(WanTransformer::Tensors(config())));
      loras.push_back({std::move(adapter), choice.scale});
    }
    const std::string folder = loaded_->model_dir + "/transformer";
    auto merged = WanTransformer::Load(folder, loaded_->device, loaded_->products,
                                       model::MergeLoras(std::move(loras)));
    if (!merged.ok()) return merged.status();
    // The files may have been replaced since they were hashed.
    ONEPIECE_ASSIGN_OR_RETURN(const std::string content, model::ComponentHash(folder));
    ONEPIECE_ASSIGN_OR_RETURN(const std::string now, MergedHash(content, choices));
    if (now != hash) {
      return base::MakeError(absl::StatusCode::kAborted, "MODEL_CHANGED",
                             "the model's files were replaced while it was served");
    }
    return merged;
  }

  [[nodiscard]] const TransformerConfig& config() const {
    return loaded_->transformer.value->config();
  }

  /// Returns the settings in which a saved state must agree with the job, so that the job can
  /// resume from it.
  [[nodiscard]] std::string Describe(const model::GenerationSettings& settings,
                                     const Weights& weights,
                                     const std::vector<sdk::Artifact>& inputs) const {
    std::string conditioning;
    for (const char* name :
         {"prompt_embeds", "negative_prompt_embeds", "condition", "image_embeds"}) {
      const sdk::Artifact* artifact = message::FindArtifact(inputs, name);
      conditioning =
          model::HashOfParts({conditioning, artifact == nullptr ? "" : artifact->data.text()});
    }
    const model::SchedulerConfig& scheduler = loaded_->scheduler;
    return absl::StrFormat(
        "seed %d, %d steps, guidance %a, %dx%d, %d frames, scheduler %d order %d shift %a of %d, "
        "%s, "
        "conditioning %s, model %s",
        settings.seed, settings.steps, settings.guidance_scale, settings.width, settings.height,
        settings.frames, static_cast<int>(scheduler.kind), scheduler.solver_order, scheduler.shift,
        scheduler.num_train_timesteps, c10::toString(loaded_->products), conditioning,
        weights.hash);
  }

  static absl::Status GoOn(const model::DiffusionState& saved, model::Scheduler& scheduler,
                           at::Generator& generator, DenoiseInputs& denoise) {
    ONEPIECE_RETURN_IF_ERROR(scheduler.Restore(saved.scheduler));
    if (saved.rng.sizes() != generator.get_state().sizes()) {
      return model::BadArtifact("state.rng", "not a state of the random number generator");
    }
    generator.set_state(saved.rng);
    denoise.latents = saved.latents;
    denoise.first_step = saved.scheduler.steps_done;
    return absl::OkStatus();
  }

  absl::StatusOr<at::Tensor> Embeds(const std::vector<sdk::Artifact>& inputs,
                                    std::string_view name) const {
    ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor embeds, model::InputTensor(inputs, name, 3));
    if (embeds.size(0) != 1 || embeds.size(1) > kMaxSequenceLength ||
        embeds.size(2) != config().text_dim) {
      return model::BadArtifact(name, "its shape does not fit the transformer");
    }
    return tensor::ToDevice(embeds, loaded_->device);
  }

  /// Returns the output of vae_encode, undefined for a text-to-video model.
  absl::StatusOr<at::Tensor> Condition(const std::vector<sdk::Artifact>& inputs,
                                       const model::VideoSize& size) const {
    const bool given = message::FindArtifact(inputs, "condition") != nullptr;
    if (config().in_channels == config().out_channels) {
      if (given) return model::BadArtifact("condition", "this model makes videos of text alone");
      return at::Tensor();
    }
    if (!given)
      return model::BadArtifact("condition", "missing: this model makes videos of an image");
    ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor condition,
                              model::InputTensor(inputs, "condition", 5));
    if (condition.sizes() !=
        size.LatentShape(kGeometry, config().in_channels - config().out_channels)) {
      return model::BadArtifact(
          "condition", "its shape does not fit the transformer, or width, height and num_frames");
    }
    return tensor::ToDevice(condition, loaded_->device);
  }

  /// Returns the output of the image encoder, undefined if the model takes none.
  absl::StatusOr<at::Tensor> ImageEmbeds(const std::vector<sdk::Artifact>& inputs) const {
    if (config().image_dim == 0) return at::Tensor();
    if (message::FindArtifact(inputs, "image_embeds") == nullptr)
      return model::BadArtifact("image_embeds", "missing: this model makes videos of an image");
    ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor embeds,
                              model::InputTensor(inputs, "image_embeds", 3));
    if (embeds.size(0) != config().images()) {
      return model::BadArtifact(
          "image_embeds", config().images() == 2 ? "this model takes an image and a last_image"
                                                 : "this model takes an image and no last_image");
    }
    if (embeds.size(2) != config().image_dim)
      return model::BadArtifact("image_embeds", "its shape does not fit the transformer");
    return tensor::ToDevice(embeds, loaded_->device);
  }

  std::optional<Loaded> loaded_;
};

}  // namespace

std::unique_ptr<sdk::Stage> MakeDiffusionStage() { return std::make_unique<DiffusionStage>(); }

}  // namespace onepiece::wan
