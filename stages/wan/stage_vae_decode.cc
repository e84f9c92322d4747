#include <optional>

#include "cluster/base/check.h"
#include "cluster/base/status.h"
#include "cluster/media/media.h"
#include "stages/model/component_store.h"
#include "stages/model/frames_output.h"
#include "stages/model/parallel_plan.h"
#include "stages/model/prepare_load.h"
#include "stages/model/stage_inputs.h"
#include "stages/sdk/parameters.h"
#include "stages/tensor/compute.h"
#include "stages/tensor/device_copy.h"
#include "stages/tensor/torch_convert.h"
#include "stages/wan/family.h"
#include "stages/wan/generation.h"
#include "stages/wan/stage_common.h"
#include "stages/wan/stages.h"

namespace onepiece::wan {
namespace {

class VaeDecodeStage final : public sdk::Stage {
 public:
  sdk::StageInfo Info() const override {
    return {.name = "vae_decode",
            .description =
                "latents to video (mp4), to frame_0000, frame_0001, ... (png), or to frames (raw)",
            .inputs = {"latents"},
            .outputs = {"frames_sha256"},  // And the files that `format` asks for.
            .parameters = {"format", "fps", "vae_tiling", "seed", "provenance"}};
  }

  absl::Status Load(const sdk::LoadOptions& options) override {
    return tensor::Guarded([&]() -> absl::Status {
      ONEPIECE_ASSIGN_OR_RETURN(const at::Device device, model::PrepareLoad(options));
      ONEPIECE_ASSIGN_OR_RETURN(auto vae, model::ComponentStore::OfProcess().Get<WanVae>(
                                              options.model_dir + "/vae", device));
      loaded_.emplace(Loaded{std::move(vae), device, options.threads, options.model_dir});
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::vector<sdk::Artifact>> Run(
      sdk::StageContext& context, const std::vector<sdk::Artifact>& inputs) override {
    ONEPIECE_CHECK(loaded_.has_value());
    return tensor::Guarded([&]() -> absl::StatusOr<std::vector<sdk::Artifact>> {
      tensor::SetComputeThreads(loaded_->threads);
      ONEPIECE_ASSIGN_OR_RETURN(const std::string format,
                                sdk::StringParameter(context.parameters(), "format", "mp4"));
      if (format != "mp4" && format != "png" && format != "raw") {
        return sdk::BadParameter("format", "not mp4, png or raw");
      }
      ONEPIECE_ASSIGN_OR_RETURN(
          const std::int64_t fps,
          sdk::IntParameter(context.parameters(), "fps", 1, media::kMaxFps, media::kDefaultFps));
      ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor latents, Latents(inputs));
      ONEPIECE_ASSIGN_OR_RETURN(const auto tiling, ReadTiling(context.parameters()));
      int steps = 0;
      const auto progress = [&](int done, int total) {
        steps = total + 1;  // The last step is the encoder's.
        return context.Progress(done, steps);
      };
      const model::Parallel parallel = model::ParallelOf(context.collaboration(), {});
      ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor frames, DecodeFrames(*loaded_->vae.value, latents,
                                                                      progress, tiling, parallel));
      ONEPIECE_RETURN_IF_ERROR(loaded_->vae.CheckUnchanged());
      if (parallel.group != nullptr && parallel.group->rank() != 0) {
        // The first rank encodes the video for all.
        ONEPIECE_RETURN_IF_ERROR(context.Progress(steps, steps));
        return std::vector<sdk::Artifact>{model::FramesChecksum(ViewOf(frames))};
      }
      ONEPIECE_ASSIGN_OR_RETURN(const std::string provenance,
                                model::Provenance(context, loaded_->model_dir));
      ONEPIECE_ASSIGN_OR_RETURN(auto outputs,
                                Outputs(frames, format, static_cast<int>(fps), provenance));
      ONEPIECE_RETURN_IF_ERROR(context.Progress(steps, steps));
      return outputs;
    });
  }

  void Unload() override { loaded_.reset(); }
  std::vector<sdk::StageMetric> Metrics() const override { return WanMetrics(); }

 private:
  struct Loaded {
    model::Component<WanVae> vae;
    at::Device device;
    int threads;
    std::string model_dir;
  };

  absl::StatusOr<at::Tensor> Latents(const std::vector<sdk::Artifact>& inputs) const {
    ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor latents, model::InputTensor(inputs, "latents", 5));
    const at::IntArrayRef shape = latents.sizes();
    constexpr std::int64_t kMaxFrames =
        (kGeometry.max_frames - 1) / kGeometry.temporal_compression + 1;
    constexpr std::int64_t kMaxSide = kGeometry.max_side / kGeometry.spatial_compression;
    if (shape[0] != 1 || shape[1] != loaded_->vae.value->config().z_dim || shape[2] > kMaxFrames ||
        shape[3] > kMaxSide || shape[4] > kMaxSide) {
      return model::BadArtifact("latents", "its shape does not fit the decoder");
    }
    return tensor::ToDevice(latents, loaded_->device);
  }

  static media::FramesView ViewOf(const at::Tensor& frames) {
    const std::span<const std::byte> rgb(static_cast<const std::byte*>(frames.data_ptr()),
                                         static_cast<std::size_t>(frames.numel()));
    return {rgb, frames.size(0), frames.size(1), frames.size(2)};
  }

  static absl::StatusOr<std::vector<sdk::Artifact>> Outputs(const at::Tensor& frames,
                                                            const std::string& format, int fps,
                                                            const std::string& provenance) {
    const media::FramesView view = ViewOf(frames);
    if (format != "raw") return model::EncodeFrames(view, "format", format, fps, provenance);
    ONEPIECE_ASSIGN_OR_RETURN(sdk::Artifact raw, tensor::ToArtifact("frames", frames));
    return std::vector<sdk::Artifact>{std::move(raw), model::FramesChecksum(view)};
  }

  std::optional<Loaded> loaded_;
};

}  // namespace

std::unique_ptr<sdk::Stage> MakeVaeDecodeStage() { return std::make_unique<VaeDecodeStage>(); }

}  // namespace onepiece::wan
