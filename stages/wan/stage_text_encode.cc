#include <filesystem>
#include <optional>
#include <span>

#include "cluster/base/check.h"
#include "cluster/base/logging.h"
#include "cluster/base/status.h"
#include "stages/model/component_store.h"
#include "stages/model/conditioning_cache.h"
#include "stages/model/content_hash.h"
#include "stages/model/image_processor.h"
#include "stages/model/prepare_load.h"
#include "stages/model/stage_inputs.h"
#include "stages/model/tokenizer.h"
#include "stages/sdk/parameters.h"
#include "stages/tensor/compute.h"
#include "stages/tensor/torch_convert.h"
#include "stages/wan/clip_vision.h"
#include "stages/wan/family.h"
#include "stages/wan/generation.h"
#include "stages/wan/stage_common.h"
#include "stages/wan/stages.h"

namespace onepiece::wan {
namespace {

using Artifacts = std::vector<sdk::Artifact>;

class TextEncodeStage final : public sdk::Stage {
 public:
  sdk::StageInfo Info() const override {
    return {.name = "text_encode",
            .description = "prompts to UMT5 embeddings, images to CLIP embeddings",
            .inputs = {},
            .optional_inputs = {"image", "last_image"},
            .outputs = {"prompt_embeds",
                        "negative_prompt_embeds"},  // And image_embeds, if there is an image.
            .parameters = {"prompt", "negative_prompt"}};
  }

  absl::Status Load(const sdk::LoadOptions& options) override {
    return tensor::Guarded([&]() -> absl::Status {
      ONEPIECE_ASSIGN_OR_RETURN(const at::Device device, model::PrepareLoad(options));
      ONEPIECE_ASSIGN_OR_RETURN(const at::ScalarType products,
                                model::ParsePrecision(options.precision, device));
      ONEPIECE_ASSIGN_OR_RETURN(auto tokenizer,
                                model::Tokenizer::Load(options.model_dir + "/tokenizer"));
      ONEPIECE_ASSIGN_OR_RETURN(auto encoder,
                                model::ComponentStore::OfProcess().Get<UMT5Encoder>(
                                    options.model_dir + "/text_encoder", device, products));
      ONEPIECE_ASSIGN_OR_RETURN(model::ConditioningCache* const cache,
                                model::ConditioningCache::OfProcess());
      if (tokenizer.size() > encoder.value->config().vocab_size) {
        return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_TOKENIZER",
                               "the tokenizer has more ids than the text encoder");
      }
      loaded_.emplace(Loaded{std::move(tokenizer), std::move(encoder), {}, cache, device, options});
      return LoadImageEncoder(options.model_dir, device);
    });
  }

  absl::StatusOr<std::vector<sdk::Artifact>> Run(
      sdk::StageContext& context, const std::vector<sdk::Artifact>& inputs) override {
    ONEPIECE_CHECK(loaded_.has_value());
    return tensor::Guarded([&]() -> absl::StatusOr<std::vector<sdk::Artifact>> {
      tensor::SetComputeThreads(loaded_->options.threads);
      ONEPIECE_ASSIGN_OR_RETURN(const std::string prompt,
                                sdk::StringParameter(context.parameters(), "prompt"));
      ONEPIECE_ASSIGN_OR_RETURN(const std::string negative,
                                sdk::StringParameter(context.parameters(), "negative_prompt", ""));
      // A model without an image encoder does not use images.
      const bool sees = loaded_->images && (message::FindArtifact(inputs, "image") != nullptr ||
                                            message::FindArtifact(inputs, "last_image") != nullptr);
      const int steps = sees ? 3 : 2;
      std::vector<sdk::Artifact> outputs(2);
      ONEPIECE_ASSIGN_OR_RETURN(outputs[0], Embed(context, "prompt", prompt));
      ONEPIECE_RETURN_IF_ERROR(context.Progress(1, steps));
      ONEPIECE_ASSIGN_OR_RETURN(outputs[1], Embed(context, "negative_prompt", negative));
      ONEPIECE_RETURN_IF_ERROR(context.Progress(2, steps));
      if (!sees) return outputs;
      ONEPIECE_ASSIGN_OR_RETURN(outputs.emplace_back(), Look(inputs));
      ONEPIECE_RETURN_IF_ERROR(context.Progress(3, steps));
      return outputs;
    });
  }

  void Unload() override { loaded_.reset(); }
  std::vector<sdk::StageMetric> Metrics() const override { return WanMetrics(); }

 private:
  struct ImageParts {
    model::ImageProcessor processor;
    model::Component<ClipVision> encoder;
    std::string hash;  // The hash of both.
  };
  struct Loaded {
    model::Tokenizer tokenizer;
    model::Component<UMT5Encoder> encoder;
    std::optional<ImageParts> images;  // Only if the model folder has an image_encoder.
    model::ConditioningCache* cache;
    at::Device device;
    sdk::LoadOptions options;
  };

  absl::Status LoadImageEncoder(const std::string& model_dir, at::Device device) {
    if (!std::filesystem::exists(model_dir + "/image_encoder")) return absl::OkStatus();
    ONEPIECE_ASSIGN_OR_RETURN(auto processor,
                              model::ImageProcessor::Load(model_dir + "/image_processor"));
    ONEPIECE_ASSIGN_OR_RETURN(auto encoder, model::ComponentStore::OfProcess().Get<ClipVision>(
                                                model_dir + "/image_encoder", device));
    ONEPIECE_ASSIGN_OR_RETURN(
        const std::string processing,
        model::HashOfFiles({model_dir + "/image_processor/preprocessor_config.json"}));
    const std::string hash = model::HashOfParts({encoder.hash, processing});
    loaded_->images.emplace(ImageParts{processor, std::move(encoder), hash});
    return absl::OkStatus();
  }

  [[nodiscard]] std::string KeyOf(std::string_view kind, std::string_view component,
                                  std::string_view input) const {
    const sdk::LoadOptions& options = loaded_->options;
    return model::HashOfParts({kind, component, options.device, options.precision,
                               std::to_string(options.threads), input});
  }

  /// Returns image_embeds of the job's images.
  absl::StatusOr<sdk::Artifact> Look(const std::vector<sdk::Artifact>& inputs) const {
    const ImageParts& parts = *loaded_->images;
    ONEPIECE_ASSIGN_OR_RETURN(
        auto embeds, loaded_->cache->GetOr(
                         KeyOf("clip", parts.hash, model::HashOfImages(inputs)),
                         [&]() -> absl::StatusOr<Artifacts> {
                           ONEPIECE_ASSIGN_OR_RETURN(const auto images, model::InputImages(inputs));
                           ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor pixels,
                                                     model::PixelValues(parts.processor, images));
                           ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor seen,
                                                     parts.encoder.value->Forward(pixels));
                           ONEPIECE_RETURN_IF_ERROR(parts.encoder.CheckUnchanged());
                           ONEPIECE_ASSIGN_OR_RETURN(auto artifact,
                                                     tensor::ToArtifact("image_embeds", seen));
                           return Artifacts{std::move(artifact)};
                         }));
    return std::move(embeds[0]);
  }

  absl::StatusOr<sdk::Artifact> Embed(const sdk::StageContext& context,
                                      const std::string& parameter, const std::string& text) const {
    // Asks for one token more than the model takes, to see whether the prompt was cut.
    auto ids = PromptIds(loaded_->tokenizer, text, kMaxSequenceLength + 1);
    if (!ids.ok()) return base::Annotate(ids.status(), parameter);
    if (ids->size() > kMaxSequenceLength) {
      base::LogWarning("uid=" + context.uid().ToString() + " stage=text_encode " + parameter +
                       ": cut to the model's " + std::to_string(kMaxSequenceLength) + " tokens");
      ONEPIECE_ASSIGN_OR_RETURN(*ids, PromptIds(loaded_->tokenizer, text));
    }
    // The key is made of tokens, so that texts which clean to the same ones share an entry.
    const auto bytes = std::as_bytes(std::span(*ids));
    const std::string key = KeyOf("text", loaded_->encoder.hash,
                                  {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    ONEPIECE_ASSIGN_OR_RETURN(
        auto embeds, loaded_->cache->GetOr(key, [&]() -> absl::StatusOr<Artifacts> {
          ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor computed,
                                    EncodeIds(*loaded_->encoder.value, *ids, loaded_->device));
          // Before it is kept for other jobs.
          ONEPIECE_RETURN_IF_ERROR(loaded_->encoder.CheckUnchanged());
          ONEPIECE_ASSIGN_OR_RETURN(auto artifact, tensor::ToArtifact("embeds", computed));
          return Artifacts{std::move(artifact)};
        }));
    // The entry has a neutral name: equal prompts and negative prompts share it.
    embeds[0].name = parameter + "_embeds";
    return std::move(embeds[0]);
  }

  std::optional<Loaded> loaded_;
};

}  // namespace

std::unique_ptr<sdk::Stage> MakeTextEncodeStage() { return std::make_unique<TextEncodeStage>(); }

}  // namespace onepiece::wan
