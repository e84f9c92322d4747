// A third-party stage: enlarges the frames of a video with libswscale.
#include <memory>
#include <string>
#include <vector>

#include "cluster/base/status.h"
#include "stages/sdk/parameters.h"
#include "stages/sdk/stage.h"

extern "C" {
#include <libswscale/swscale.h>
}

namespace {

namespace sdk = onepiece::sdk;
using onepiece::message::AllocateAligned;
using onepiece::message::Buffer;
using onepiece::message::DType;

constexpr std::int64_t kChannels = 3, kMaxSide = 8192, kMaxScale = 8;

absl::Status Error(absl::StatusCode code, std::string_view reason, const std::string& message) {
  return onepiece::base::MakeError(code, reason, message);
}

struct ScalerDeleter {
  void operator()(SwsContext* scaler) const { sws_freeContext(scaler); }
};
using Scaler = std::unique_ptr<SwsContext, ScalerDeleter>;

class UpscaleStage final : public sdk::Stage {
 public:
  sdk::StageInfo Info() const override {
    return {.name = "upscale",
            .description = "larger frames, by Lanczos interpolation",
            .inputs = {"frames"},
            .outputs = {"frames"},
            .parameters = {"scale"}};
  }

  absl::Status Load(const sdk::LoadOptions&) override { return absl::OkStatus(); }

  absl::StatusOr<std::vector<sdk::Artifact>> Run(
      sdk::StageContext& context, const std::vector<sdk::Artifact>& inputs) override {
    ONEPIECE_ASSIGN_OR_RETURN(
        const std::int64_t scale,
        sdk::IntParameter(context.parameters(), "scale", 1, kMaxScale, /*fallback=*/2));
    const sdk::Artifact& frames = *onepiece::message::FindArtifact(inputs, "frames");
    // Shape and type come from somebody else's stage.
    if (frames.dtype != DType::kU8 || frames.shape.size() != 4 || frames.shape[3] != kChannels) {
      return Error(absl::StatusCode::kInvalidArgument, "BAD_ARTIFACT",
                   "frames is not a U8 tensor [frames, height, width, 3]");
    }
    const std::int64_t count = frames.shape[0];
    const Size from{frames.shape[1], frames.shape[2]}, to{from.height * scale, from.width * scale};
    if (count < 1 || from.height < 1 || from.width < 1 || to.height > kMaxSide ||
        to.width > kMaxSide) {
      return Error(
          absl::StatusCode::kInvalidArgument, "BAD_ARTIFACT",
          "frames must be of 1 to " + std::to_string(kMaxSide) + " pixels a side after scaling");
    }
    return Scale(context, frames.data, count, from, to);
  }

  void Unload() override {}

 private:
  struct Size {
    std::int64_t height, width;
    std::int64_t bytes() const { return height * width * kChannels; }
  };

  static absl::StatusOr<std::vector<sdk::Artifact>> Scale(sdk::StageContext& context,
                                                          const Buffer& frames, std::int64_t count,
                                                          Size from, Size to) {
    const Scaler scaler(sws_getContext(static_cast<int>(from.width), static_cast<int>(from.height),
                                       AV_PIX_FMT_RGB24, static_cast<int>(to.width),
                                       static_cast<int>(to.height), AV_PIX_FMT_RGB24, SWS_LANCZOS,
                                       nullptr, nullptr, nullptr));
    const auto bytes = static_cast<std::size_t>(count * to.bytes());
    const std::shared_ptr<std::byte[]> scaled = AllocateAligned(bytes);
    if (scaler == nullptr || scaled == nullptr) {
      return Error(absl::StatusCode::kResourceExhausted, "OUT_OF_MEMORY", "no memory to scale in");
    }
    const int from_stride = static_cast<int>(from.width * kChannels),
              to_stride = static_cast<int>(to.width * kChannels);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto* source =
          reinterpret_cast<const std::uint8_t*>(frames.bytes().data()) + i * from.bytes();
      auto* target = reinterpret_cast<std::uint8_t*>(scaled.get()) + i * to.bytes();
      sws_scale(scaler.get(), &source, &from_stride, 0, static_cast<int>(from.height), &target,
                &to_stride);
      // Somebody may watch, and somebody may have cancelled the job.
      ONEPIECE_RETURN_IF_ERROR(context.Progress(static_cast<int>(i) + 1, static_cast<int>(count)));
    }
    return std::vector<sdk::Artifact>{{.name = "frames",
                                       .dtype = DType::kU8,
                                       .shape = {count, to.height, to.width, kChannels},
                                       .media_type = {},
                                       .data = Buffer(scaled, {scaled.get(), bytes})}};
  }
};

class UpscalePlugin final : public sdk::Plugin {
 public:
  std::vector<sdk::StageInfo> Stages() const override { return {UpscaleStage().Info()}; }
  std::unique_ptr<sdk::Stage> Create(std::string_view stage) const override {
    return stage == "upscale" ? std::make_unique<UpscaleStage>() : nullptr;
  }
};

}  // namespace

ONEPIECE_STAGE_PLUGIN(UpscalePlugin)
