// The stage of docs/stage-authors.md: turns every frame of a video into its negative.
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "cluster/base/status.h"
#include "stages/sdk/parameters.h"
#include "stages/sdk/stage.h"

namespace {

namespace sdk = onepiece::sdk;
using onepiece::message::Buffer;
using onepiece::message::DType;

class InvertStage final : public sdk::Stage {
 public:
  sdk::StageInfo Info() const override {
    return {.name = "invert",
            .description = "negative of every frame",
            .inputs = {"frames"},
            .outputs = {"inverted"},
            .parameters = {"strength"}};
  }

  absl::Status Load(const sdk::LoadOptions&) override { return absl::OkStatus(); }

  absl::StatusOr<std::vector<sdk::Artifact>> Run(
      sdk::StageContext& context, const std::vector<sdk::Artifact>& inputs) override {
    ONEPIECE_ASSIGN_OR_RETURN(
        const double strength,
        sdk::NumberParameter(context.parameters(), "strength", 0, 1, /*fallback=*/1));
    const sdk::Artifact& frames = *onepiece::message::FindArtifact(inputs, "frames");
    if (frames.dtype != DType::kU8 || frames.shape.size() != 4) {
      return onepiece::base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_INPUT",
                                       "frames is not a U8 tensor [frames, height, width, 3]");
    }
    std::string pixels(frames.data.text());
    const auto count = static_cast<std::size_t>(frames.shape[0]);
    const std::size_t frame_bytes = count == 0 ? 0 : pixels.size() / count;
    for (std::size_t frame = 0; frame < count; ++frame) {
      for (std::size_t i = frame * frame_bytes; i < (frame + 1) * frame_bytes; ++i) {
        const double value = static_cast<unsigned char>(pixels[i]);
        pixels[i] = static_cast<char>(
            static_cast<unsigned char>(value + strength * (255 - 2 * value) + 0.5));
      }
      // Reports progress, and notices that the job was cancelled.
      ONEPIECE_RETURN_IF_ERROR(
          context.Progress(static_cast<int>(frame) + 1, static_cast<int>(count)));
    }
    return std::vector<sdk::Artifact>{{.name = "inverted",
                                       .dtype = DType::kU8,
                                       .shape = frames.shape,
                                       .data = Buffer::FromString(std::move(pixels))}};
  }

  void Unload() override {}
};

class InvertPlugin final : public sdk::Plugin {
 public:
  std::vector<sdk::StageInfo> Stages() const override { return {InvertStage().Info()}; }
  std::unique_ptr<sdk::Stage> Create(std::string_view stage) const override {
    return stage == "invert" ? std::make_unique<InvertStage>() : nullptr;
  }
};

}  // namespace

ONEPIECE_STAGE_PLUGIN(InvertPlugin)
