// A second model family, as a stage author would write it: with the installed SDK's headers and
// nothing else of the tree. Its transformer is one self-attention over pixels, without queries and
// keys of its own.
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/base/status.h"
#include "stages/model/component_store.h"
#include "stages/model/config_reader.h"
#include "stages/model/content_hash.h"
#include "stages/model/generation_settings.h"
#include "stages/model/layers.h"
#include "stages/model/model_claim.h"
#include "stages/model/noise.h"
#include "stages/model/prepare_load.h"
#include "stages/model/process_metrics.h"
#include "stages/model/schedulers.h"
#include "stages/model/stage_inputs.h"
#include "stages/model/weights.h"
#include "stages/sdk/stage.h"
#include "stages/tensor/compute.h"
#include "stages/tensor/torch_convert.h"

namespace {

namespace model = onepiece::model;
namespace sdk = onepiece::sdk;
namespace tensor = onepiece::tensor;

constexpr std::string_view kClasses[] = {"ToyTransformer"};
constexpr model::LatentGeometry kGeometry = {.spatial_compression = 8,
                                             .temporal_compression = 1,
                                             .side_multiple = 8,
                                             .max_side = 64,
                                             .max_frames = 4,
                                             .max_tokens = 256};

class ToyTransformer {
 public:
  static absl::StatusOr<ToyTransformer> Load(const std::string& dir, at::Device device) {
    ONEPIECE_ASSIGN_OR_RETURN(const model::ComponentFiles files, model::ComponentFiles::Open(dir));
    model::ConfigReader reader(files.config());
    ToyTransformer loaded;
    loaded.channels_ = reader.Int("channels", 1, 64);
    ONEPIECE_RETURN_IF_ERROR(reader.status());
    model::WeightBinder wanted, weights(files, device);
    loaded.Bind(wanted);
    ONEPIECE_RETURN_IF_ERROR(model::CheckFit(files, wanted.specs()));
    loaded.Bind(weights);
    ONEPIECE_RETURN_IF_ERROR(weights.status());
    loaded.bytes_ = weights.bytes();
    return loaded;
  }
  [[nodiscard]] std::int64_t channels() const { return channels_; }
  [[nodiscard]] std::int64_t weight_bytes() const { return bytes_; }

  /// `x` is [1, channels, frames, height, width].
  [[nodiscard]] at::Tensor Predict(const at::Tensor& x) const {
    const at::Tensor tokens = x.flatten(2).transpose(1, 2).unsqueeze(1);
    const at::Tensor seen = model::Attention(tokens, tokens, at::matmul(tokens, values_.t()),
                                             1 / std::sqrt(static_cast<double>(channels_)));
    return seen.squeeze(1).transpose(1, 2).reshape(x.sizes());
  }

 private:
  void Bind(model::WeightBinder& weights) {
    values_ = weights.Get("to_v.weight", {channels_, channels_});
  }

  at::Tensor values_;
  std::int64_t channels_ = 0, bytes_ = 0;
};

class ToyDiffusion final : public sdk::Stage {
 public:
  sdk::StageInfo Info() const override {
    return {.name = "toy_diffusion",
            .description = "noise, or the latents given, to latents",
            .optional_inputs = {"latents"},
            .outputs = {"latents"},
            .parameters = {"seed", "steps", "guidance_scale", "width", "height", "num_frames"}};
  }

  absl::Status Load(const sdk::LoadOptions& options) override {
    return tensor::Guarded([&]() -> absl::Status {
      ONEPIECE_ASSIGN_OR_RETURN(const at::Device device, model::PrepareLoad(options));
      ONEPIECE_ASSIGN_OR_RETURN(auto transformer,
                                model::ComponentStore::OfProcess().Get<ToyTransformer>(
                                    options.model_dir + "/transformer", device));
      ONEPIECE_ASSIGN_OR_RETURN(const auto scheduler,
                                model::LoadSchedulerConfig(options.model_dir + "/scheduler"));
      loaded_.emplace(Loaded{std::move(transformer.value), scheduler, options.threads});
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::vector<sdk::Artifact>> Run(
      sdk::StageContext& context, const std::vector<sdk::Artifact>& inputs) override {
    return tensor::Guarded([&]() -> absl::StatusOr<std::vector<sdk::Artifact>> {
      tensor::SetComputeThreads(loaded_->threads);
      ONEPIECE_ASSIGN_OR_RETURN(const auto settings,
                                model::ReadSettings(context.parameters(), kGeometry));
      const auto shape = settings.LatentShape(kGeometry, loaded_->transformer->channels());
      at::Tensor latents = model::InitialLatents(model::MakeGenerator(settings.seed), shape);
      if (onepiece::message::FindArtifact(inputs, "latents") != nullptr) {
        ONEPIECE_ASSIGN_OR_RETURN(latents, model::InputTensor(inputs, "latents", 5));
        if (latents.sizes() != shape)
          return model::BadArtifact("latents", "its shape does not fit the job");
      }
      ONEPIECE_ASSIGN_OR_RETURN(const auto scheduler,
                                model::MakeScheduler(loaded_->scheduler, settings.steps));
      for (int i = 0; i < settings.steps; ++i) {
        latents = scheduler->Step(loaded_->transformer->Predict(latents), i, latents);
        ONEPIECE_RETURN_IF_ERROR(context.Progress(i + 1, settings.steps));
      }
      std::vector<sdk::Artifact> outputs(1);
      ONEPIECE_ASSIGN_OR_RETURN(outputs[0], tensor::ToArtifact("latents", latents));
      return outputs;
    });
  }

  void Unload() override { loaded_.reset(); }
  std::vector<sdk::StageMetric> Metrics() const override { return model::ProcessMetrics(); }

 private:
  struct Loaded {
    std::shared_ptr<const ToyTransformer> transformer;
    model::SchedulerConfig scheduler;
    int threads;
  };
  std::optional<Loaded> loaded_;
};

class ToyTools final : public sdk::ModelTools {
 public:
  sdk::ModelClaim Claim(const std::string& dir, const std::string& expect) const override {
    return model::ClaimByClasses(dir, expect, {.own = kClasses, .shared = {}});
  }
  absl::StatusOr<sdk::VerifyReport> Verify(const std::string&, double, int,
                                           const std::string&) const override {
    return absl::UnimplementedError("nothing is recorded of toys");
  }
  absl::StatusOr<sdk::VerifyReport> VerifyReference(const std::string&, const std::string&, int,
                                                    const std::string&) const override {
    return absl::UnimplementedError("nothing is recorded of toys");
  }
  absl::StatusOr<sdk::InspectReport> Inspect(const std::string& dir,
                                             const std::string&) const override {
    return sdk::InspectReport{.model = "a toy in " + dir};
  }
  absl::StatusOr<std::string> ContentHash(const std::string& dir) const override {
    return model::ComponentHash(dir);
  }
};

class ToyPlugin final : public sdk::Plugin {
 public:
  std::vector<sdk::StageInfo> Stages() const override { return {ToyDiffusion().Info()}; }
  std::unique_ptr<sdk::Stage> Create(std::string_view stage) const override {
    return stage == "toy_diffusion" ? std::make_unique<ToyDiffusion>() : nullptr;
  }
  const sdk::ModelTools* model_tools() const override { return &tools_; }

 private:
  ToyTools tools_;
};

}  // namespace

ONEPIECE_STAGE_PLUGIN(ToyPlugin)
