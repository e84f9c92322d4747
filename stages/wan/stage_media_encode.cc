#include "cluster/base/status.h"
#include "cluster/media/media.h"
#include "stages/model/frames_output.h"
#include "stages/model/stage_inputs.h"
#include "stages/sdk/parameters.h"
#include "stages/wan/stages.h"

namespace onepiece::wan {
namespace {

class MediaEncodeStage final : public sdk::Stage {
 public:
  sdk::StageInfo Info() const override {
    return {.name = "media_encode",
            .description = "frames to video (mp4), or to frame_0000, frame_0001, ... (png)",
            .inputs = {"frames"},
            .outputs = {"frames_sha256"},  // And the files that `media` asks for.
            .parameters = {"media", "fps", "seed", "provenance"}};
  }

  absl::Status Load(const sdk::LoadOptions&) override { return absl::OkStatus(); }

  absl::StatusOr<std::vector<sdk::Artifact>> Run(
      sdk::StageContext& context, const std::vector<sdk::Artifact>& inputs) override {
    ONEPIECE_ASSIGN_OR_RETURN(const std::string format,
                              sdk::StringParameter(context.parameters(), "media", "mp4"));
    ONEPIECE_ASSIGN_OR_RETURN(
        const std::int64_t fps,
        sdk::IntParameter(context.parameters(), "fps", 1, media::kMaxFps, media::kDefaultFps));
    const sdk::Artifact& frames = *message::FindArtifact(inputs, "frames");
    if (frames.dtype != message::DType::kU8 || frames.shape.size() != 4 || frames.shape[3] != 3) {
      return model::BadArtifact("frames", "not a U8 tensor [frames, height, width, 3]");
    }
    const media::FramesView view{frames.data.bytes(), frames.shape[0], frames.shape[1],
                                 frames.shape[2]};
    ONEPIECE_ASSIGN_OR_RETURN(const std::string provenance, model::Provenance(context, ""));
    ONEPIECE_ASSIGN_OR_RETURN(auto outputs, model::EncodeFrames(view, "media", format,
                                                                static_cast<int>(fps), provenance));
    ONEPIECE_RETURN_IF_ERROR(context.Progress(1, 1));
    return outputs;
  }

  void Unload() override {}
};

}  // namespace

std::unique_ptr<sdk::Stage> MakeMediaEncodeStage() { return std::make_unique<MediaEncodeStage>(); }

}  // namespace onepiece::wan
