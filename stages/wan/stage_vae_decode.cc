#include <openssl/evp.h>

#include <array>
#include <cstdio>
#include <optional>

#include "cluster/base/check.h"
#include "cluster/base/status.h"
#include "stages/media/media.h"
#include "stages/sdk/parameters.h"
#include "stages/tensor/compute.h"
#include "stages/wan/generation.h"
#include "stages/wan/generation_settings.h"
#include "stages/wan/stage_common.h"
#include "stages/wan/stages.h"

namespace onepiece::wan {
namespace {

/// A bundle holds 256 artifacts; one is the checksum.
constexpr std::int64_t kMaxPngFrames = 255;

std::string Sha256Hex(std::span<const std::byte> bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  ONEPIECE_CHECK(
      EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr) == 1);
  std::string hex;
  for (unsigned int i = 0; i < length; ++i) {
    for (const int nibble : {digest[i] >> 4, digest[i] & 15}) hex += "0123456789abcdef"[nibble];
  }
  return hex;
}

class VaeDecodeStage final : public sdk::Stage {
 public:
  sdk::StageInfo Info() const override {
    return {.name = "vae_decode",
            .description = "latents to video (mp4), or to frame_0000, frame_0001, ... (png)",
            .inputs = {"latents"},
            .outputs = {"frames_sha256"},  // And what `format` asks for.
            .parameters = {"format", "fps"}};
  }

  absl::Status Load(const sdk::LoadOptions& options) override {
    return tensor::Guarded([&]() -> absl::Status {
      ONEPIECE_ASSIGN_OR_RETURN(const at::Device device, PrepareLoad(options));
      ONEPIECE_ASSIGN_OR_RETURN(auto vae, WanVae::Load(options.model_dir + "/vae", device));
      loaded_.emplace(Loaded{std::move(vae), device, options.threads});
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
      if (format != "mp4" && format != "png") return sdk::BadParameter("format", "not mp4 or png");
      ONEPIECE_ASSIGN_OR_RETURN(
          const std::int64_t fps,
          sdk::IntParameter(context.parameters(), "fps", 1, media::kMaxFps, media::kDefaultFps));
      ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor latents, Latents(inputs));
      int steps = 0;
      ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor frames,
                                DecodeFrames(loaded_->vae, latents, [&](int done, int total) {
                                  steps = total + 1;  // The last step is the encoder's.
                                  return context.Progress(done, steps);
                                }));
      ONEPIECE_ASSIGN_OR_RETURN(auto outputs, EncodeFrames(frames, format, static_cast<int>(fps)));
      ONEPIECE_RETURN_IF_ERROR(context.Progress(steps, steps));
      return outputs;
    });
  }

  void Unload() override { loaded_.reset(); }

 private:
  struct Loaded {
    WanVae vae;
    at::Device device;
    int threads;
  };

  absl::StatusOr<at::Tensor> Latents(const std::vector<sdk::Artifact>& inputs) const {
    ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor latents, InputTensor(inputs, "latents", 5));
    const at::IntArrayRef shape = latents.sizes();
    constexpr std::int64_t kMaxFrames = (kMaxVideoFrames - 1) / kTemporalCompression + 1;
    constexpr std::int64_t kMaxSide = kMaxSidePixels / kSpatialCompression;
    if (shape[0] != 1 || shape[1] != loaded_->vae.config().z_dim || shape[2] > kMaxFrames ||
        shape[3] > kMaxSide || shape[4] > kMaxSide) {
      return BadArtifact("latents", "its shape does not fit the decoder");
    }
    return latents.to(loaded_->device);
  }

  static absl::StatusOr<std::vector<sdk::Artifact>> EncodeFrames(const at::Tensor& frames,
                                                                 const std::string& format,
                                                                 int fps) {
    const std::span<const std::byte> rgb(static_cast<const std::byte*>(frames.data_ptr()),
                                         static_cast<std::size_t>(frames.numel()));
    const media::FramesView view{rgb, frames.size(0), frames.size(1), frames.size(2)};
    std::vector<sdk::Artifact> outputs;
    if (format == "mp4") {
      ONEPIECE_ASSIGN_OR_RETURN(std::string file, media::EncodeMp4(view, fps));
      outputs.push_back(message::BytesArtifact("video", "video/mp4", std::move(file)));
    } else {
      if (view.count > kMaxPngFrames) {
        return sdk::BadParameter("format",
                                 "png takes at most " + std::to_string(kMaxPngFrames) + " frames");
      }
      for (std::int64_t i = 0; i < view.count; ++i) {
        ONEPIECE_ASSIGN_OR_RETURN(std::string file, media::EncodePng(view, i));
        std::array<char, 16> name{};
        std::snprintf(name.data(), name.size(), "frame_%04d", static_cast<int>(i));
        outputs.push_back(message::BytesArtifact(name.data(), "image/png", std::move(file)));
      }
    }
    outputs.push_back(message::BytesArtifact("frames_sha256", "text/plain", Sha256Hex(rgb)));
    return outputs;
  }

  std::optional<Loaded> loaded_;
};

}  // namespace

std::unique_ptr<sdk::Stage> MakeVaeDecodeStage() { return std::make_unique<VaeDecodeStage>(); }

}  // namespace onepiece::wan
