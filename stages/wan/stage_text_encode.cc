#include <filesystem>
#include <optional>

#include "cluster/base/check.h"
#include "cluster/base/status.h"
#include "spdlog/spdlog.h"
#include "stages/sdk/parameters.h"
#include "stages/tensor/compute.h"
#include "stages/tensor/torch_convert.h"
#include "stages/wan/clip_vision.h"
#include "stages/wan/generation.h"
#include "stages/wan/image_processor.h"
#include "stages/wan/stage_common.h"
#include "stages/wan/stages.h"
#include "stages/wan/tokenizer.h"

namespace onepiece::wan {
namespace {

class TextEncodeStage final : public sdk::Stage {
 public:
  sdk::StageInfo Info() const override {
    return {
        .name = "text_encode",
        .description = "prompts to UMT5 embeddings, images to CLIP embeddings",
        .inputs = {},
        .optional_inputs = {"image", "last_image"},
        .outputs = {"prompt_embeds", "negative_prompt_embeds"},  // And image_embeds of an image.
        .parameters = {"prompt", "negative_prompt"}};
  }

  absl::Status Load(const sdk::LoadOptions& options) override {
    return tensor::Guarded([&]() -> absl::Status {
      ONEPIECE_ASSIGN_OR_RETURN(const at::Device device, PrepareLoad(options));
      ONEPIECE_ASSIGN_OR_RETURN(const at::ScalarType products,
                                ParsePrecision(options.precision, device));
      ONEPIECE_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::Load(options.model_dir + "/tokenizer"));
      ONEPIECE_ASSIGN_OR_RETURN(
          auto encoder, UMT5Encoder::Load(options.model_dir + "/text_encoder", device, products));
      if (tokenizer.size() > encoder.config().vocab_size) {
        return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_TOKENIZER",
                               "the tokenizer has more ids than the text encoder");
      }
      loaded_.emplace(
          Loaded{std::move(tokenizer), std::move(encoder), {}, device, options.threads});
      return LoadImageEncoder(options.model_dir, device);
    });
  }

  absl::StatusOr<std::vector<sdk::Artifact>> Run(
      sdk::StageContext& context, const std::vector<sdk::Artifact>& inputs) override {
    ONEPIECE_CHECK(loaded_.has_value());
    return tensor::Guarded([&]() -> absl::StatusOr<std::vector<sdk::Artifact>> {
      tensor::SetComputeThreads(loaded_->threads);
      ONEPIECE_ASSIGN_OR_RETURN(const std::string prompt,
                                sdk::StringParameter(context.parameters(), "prompt"));
      ONEPIECE_ASSIGN_OR_RETURN(const std::string negative,
                                sdk::StringParameter(context.parameters(), "negative_prompt", ""));
      std::vector<media::Image> images;  // A model without an image encoder has no use for them.
      if (loaded_->images) {
        ONEPIECE_ASSIGN_OR_RETURN(images, InputImages(inputs));
      }
      const int steps = images.empty() ? 2 : 3;
      std::vector<sdk::Artifact> outputs(2);
      ONEPIECE_ASSIGN_OR_RETURN(outputs[0], Embed(context, "prompt", prompt));
      ONEPIECE_RETURN_IF_ERROR(context.Progress(1, steps));
      ONEPIECE_ASSIGN_OR_RETURN(outputs[1], Embed(context, "negative_prompt", negative));
      ONEPIECE_RETURN_IF_ERROR(context.Progress(2, steps));
      if (images.empty()) return outputs;
      ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor pixels,
                                PixelValues(loaded_->images->processor, images));
      ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor seen, loaded_->images->encoder.Forward(pixels));
      ONEPIECE_ASSIGN_OR_RETURN(outputs.emplace_back(), tensor::ToArtifact("image_embeds", seen));
      ONEPIECE_RETURN_IF_ERROR(context.Progress(3, steps));
      return outputs;
    });
  }

  void Unload() override { loaded_.reset(); }

 private:
  struct ImageParts {
    ImageProcessor processor;
    ClipVision encoder;
  };
  struct Loaded {
    Tokenizer tokenizer;
    UMT5Encoder encoder;
    std::optional<ImageParts> images;  // Where the model folder has an image_encoder.
    at::Device device;
    int threads;
  };

  absl::Status LoadImageEncoder(const std::string& model_dir, at::Device device) {
    if (!std::filesystem::exists(model_dir + "/image_encoder")) return absl::OkStatus();
    ONEPIECE_ASSIGN_OR_RETURN(auto processor, ImageProcessor::Load(model_dir + "/image_processor"));
    ONEPIECE_ASSIGN_OR_RETURN(auto encoder, ClipVision::Load(model_dir + "/image_encoder", device));
    loaded_->images.emplace(ImageParts{processor, std::move(encoder)});
    return absl::OkStatus();
  }

  absl::StatusOr<sdk::Artifact> Embed(const sdk::StageContext& context,
                                      const std::string& parameter, const std::string& text) const {
    // One token more than the model takes, to see whether there are more.
    auto ids = loaded_->tokenizer.Encode(text, kMaxSequenceLength + 1);
    if (!ids.ok()) return base::Annotate(ids.status(), parameter);
    if (ids->size() > kMaxSequenceLength) {
      spdlog::warn("uid={} stage=text_encode {}: cut to the model's {} tokens",
                   context.uid().ToString(), parameter, kMaxSequenceLength);
      ONEPIECE_ASSIGN_OR_RETURN(*ids, loaded_->tokenizer.Encode(text));
    }
    ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor embeds,
                              EncodeIds(loaded_->encoder, *ids, loaded_->device));
    return tensor::ToArtifact(parameter + "_embeds", embeds);
  }

  std::optional<Loaded> loaded_;
};

}  // namespace

std::unique_ptr<sdk::Stage> MakeTextEncodeStage() { return std::make_unique<TextEncodeStage>(); }

}  // namespace onepiece::wan
