#include <optional>

#include "cluster/base/check.h"
#include "cluster/base/status.h"
#include "stages/sdk/parameters.h"
#include "stages/tensor/compute.h"
#include "stages/tensor/torch_convert.h"
#include "stages/wan/generation.h"
#include "stages/wan/stage_common.h"
#include "stages/wan/stages.h"
#include "stages/wan/tokenizer.h"

namespace onepiece::wan {
namespace {

class TextEncodeStage final : public sdk::Stage {
 public:
  sdk::StageInfo Info() const override {
    return {.name = "text_encode",
            .description = "prompts to UMT5 embeddings",
            .inputs = {},
            .outputs = {"prompt_embeds", "negative_prompt_embeds"},
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
      loaded_.emplace(Loaded{std::move(tokenizer), std::move(encoder), device, options.threads});
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::vector<sdk::Artifact>> Run(sdk::StageContext& context,
                                                 const std::vector<sdk::Artifact>&) override {
    ONEPIECE_CHECK(loaded_.has_value());
    return tensor::Guarded([&]() -> absl::StatusOr<std::vector<sdk::Artifact>> {
      tensor::SetComputeThreads(loaded_->threads);
      ONEPIECE_ASSIGN_OR_RETURN(const std::string prompt,
                                sdk::StringParameter(context.parameters(), "prompt"));
      ONEPIECE_ASSIGN_OR_RETURN(const std::string negative,
                                sdk::StringParameter(context.parameters(), "negative_prompt", ""));
      std::vector<sdk::Artifact> outputs(2);
      ONEPIECE_ASSIGN_OR_RETURN(outputs[0], Embed("prompt", prompt));
      ONEPIECE_RETURN_IF_ERROR(context.Progress(1, 2));
      ONEPIECE_ASSIGN_OR_RETURN(outputs[1], Embed("negative_prompt", negative));
      ONEPIECE_RETURN_IF_ERROR(context.Progress(2, 2));
      return outputs;
    });
  }

  void Unload() override { loaded_.reset(); }

 private:
  struct Loaded {
    Tokenizer tokenizer;
    UMT5Encoder encoder;
    at::Device device;
    int threads;
  };

  absl::StatusOr<sdk::Artifact> Embed(const std::string& parameter, const std::string& text) const {
    const auto ids = loaded_->tokenizer.Encode(text);
    if (!ids.ok()) return base::Annotate(ids.status(), parameter);
    ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor embeds,
                              EncodeIds(loaded_->encoder, *ids, loaded_->device));
    return tensor::ToArtifact(parameter + "_embeds", embeds);
  }

  std::optional<Loaded> loaded_;
};

}  // namespace

std::unique_ptr<sdk::Stage> MakeTextEncodeStage() { return std::make_unique<TextEncodeStage>(); }

}  // namespace onepiece::wan
