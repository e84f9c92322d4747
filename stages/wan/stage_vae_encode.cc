#include <optional>

#include "absl/strings/str_format.h"
#include "cluster/base/check.h"
#include "cluster/base/status.h"
#include "stages/model/component_store.h"
#include "stages/model/conditioning_cache.h"
#include "stages/model/content_hash.h"
#include "stages/model/generation_settings.h"
#include "stages/model/image_processor.h"
#include "stages/model/prepare_load.h"
#include "stages/model/stage_inputs.h"
#include "stages/sdk/parameters.h"
#include "stages/tensor/compute.h"
#include "stages/tensor/torch_convert.h"
#include "stages/wan/family.h"
#include "stages/wan/generation.h"
#include "stages/wan/stage_common.h"
#include "stages/wan/stages.h"

namespace onepiece::wan {
namespace {

class VaeEncodeStage final : public sdk::Stage {
 public:
  sdk::StageInfo Info() const override {
    return {.name = "vae_encode",
            .description = "images to the latents that image-to-video starts from",
            .inputs = {"image"},
            .optional_inputs = {"last_image"},
            .outputs = {"condition"},
            .parameters = {"width", "height", "num_frames", "vae_tiling"}};
  }

  absl::Status Load(const sdk::LoadOptions& options) override {
    return tensor::Guarded([&]() -> absl::Status {
      ONEPIECE_ASSIGN_OR_RETURN(const at::Device device, model::PrepareLoad(options));
      ONEPIECE_ASSIGN_OR_RETURN(auto vae, model::ComponentStore::OfProcess().Get<WanVae>(
                                              options.model_dir + "/vae", device));
      ONEPIECE_ASSIGN_OR_RETURN(model::ConditioningCache* const cache,
                                model::ConditioningCache::OfProcess());
      loaded_.emplace(Loaded{std::move(vae), cache, options});
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::vector<sdk::Artifact>> Run(
      sdk::StageContext& context, const std::vector<sdk::Artifact>& inputs) override {
    ONEPIECE_CHECK(loaded_.has_value());
    return tensor::Guarded([&]() -> absl::StatusOr<std::vector<sdk::Artifact>> {
      tensor::SetComputeThreads(loaded_->options.threads);
      ONEPIECE_ASSIGN_OR_RETURN(const model::VideoSize size,
                                model::ReadVideoSize(context.parameters(), kGeometry));
      ONEPIECE_ASSIGN_OR_RETURN(const auto tiling, ReadTiling(context.parameters()));
      const std::string key = model::HashOfParts(
          {tiling ? "tiled condition" : "condition", loaded_->vae.hash, loaded_->options.device,
           std::to_string(loaded_->options.threads), model::HashOfImages(inputs),
           absl::StrFormat("%dx%dx%d", size.width, size.height, size.frames)});
      return loaded_->cache->GetOr(key, [&] { return Encode(context, inputs, size, tiling); });
    });
  }

  void Unload() override { loaded_.reset(); }
  std::vector<sdk::StageMetric> Metrics() const override { return WanMetrics(); }

 private:
  struct Loaded {
    model::Component<WanVae> vae;
    model::ConditioningCache* cache;
    sdk::LoadOptions options;
  };

  absl::StatusOr<std::vector<sdk::Artifact>> Encode(
      sdk::StageContext& context, const std::vector<sdk::Artifact>& inputs,
      const model::VideoSize& size, const std::optional<WanVae::Tiling>& tiling) const {
    ONEPIECE_ASSIGN_OR_RETURN(const std::vector<media::Image> images, model::InputImages(inputs));
    if (images.empty()) return model::BadArtifact("image", "missing");
    if (images.size() > 1 && size.frames == 1)
      return sdk::BadParameter("num_frames", "a first and a last image need more than one frame");
    std::vector<at::Tensor> frames(2);
    for (std::size_t i = 0; i < images.size(); ++i) {
      ONEPIECE_ASSIGN_OR_RETURN(frames[i], model::FrameOfImage(images[i], size.width, size.height));
    }
    ONEPIECE_ASSIGN_OR_RETURN(
        const at::Tensor condition,
        EncodeCondition(
            *loaded_->vae.value, frames[0], frames[1], size.frames,
            [&](int done, int total) { return context.Progress(done, total); }, tiling));
    ONEPIECE_RETURN_IF_ERROR(loaded_->vae.CheckUnchanged());
    std::vector<sdk::Artifact> outputs(1);
    ONEPIECE_ASSIGN_OR_RETURN(outputs[0], tensor::ToArtifact("condition", condition));
    return outputs;
  }

  std::optional<Loaded> loaded_;
};

}  // namespace

std::unique_ptr<sdk::Stage> MakeVaeEncodeStage() { return std::make_unique<VaeEncodeStage>(); }

}  // namespace onepiece::wan
