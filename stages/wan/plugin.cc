// The Wan2.1 family as a stage plug-in: wan.so.
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "stages/model/content_hash.h"
#include "stages/model/model_claim.h"
#include "stages/sdk/model_tools.h"
#include "stages/sdk/stage.h"
#include "stages/wan/family.h"
#include "stages/wan/inspect.h"
#include "stages/wan/stages.h"
#include "stages/wan/verify_component.h"
#include "stages/wan/verify_reference.h"

namespace {

namespace fs = std::filesystem;
namespace sdk = onepiece::sdk;
namespace wan = onepiece::wan;

class WanModelTools final : public sdk::ModelTools {
 public:
  sdk::ModelClaim Claim(const std::string& dir, const std::string& expect) const override {
    // Verify takes a folder with io.safetensors alone for a scheduler's recording.
    const auto has = [&](const char* name) {
      std::error_code error;
      return fs::exists(fs::path(dir) / name, error);
    };
    if (!dir.empty() && has("io.safetensors") && !has("config.json") && !has("model_index.json"))
      return sdk::ModelClaim::kMine;
    return onepiece::model::ClaimByClasses(
        dir, expect, {.own = wan::kOwnClasses, .shared = wan::kSharedClasses});
  }
  absl::StatusOr<sdk::VerifyReport> Verify(const std::string& dir, double tolerance, int threads,
                                           const std::string& device) const override {
    return wan::VerifyComponent(dir, tolerance, threads, device);
  }
  absl::StatusOr<sdk::VerifyReport> VerifyReference(const std::string& model_dir,
                                                    const std::string& reference, int threads,
                                                    const std::string& device) const override {
    return wan::VerifyReference(model_dir, reference, threads, device);
  }
  absl::StatusOr<sdk::InspectReport> Inspect(const std::string& dir,
                                             const std::string& expect) const override {
    return wan::InspectModel(dir, expect);
  }
  absl::StatusOr<std::string> ContentHash(const std::string& dir) const override {
    return onepiece::model::ComponentHash(dir);
  }
};

class WanPlugin final : public sdk::Plugin {
 public:
  std::vector<sdk::StageInfo> Stages() const override {
    return {wan::MakeTextEncodeStage()->Info(),  wan::MakeVaeEncodeStage()->Info(),
            wan::MakeDiffusionStage()->Info(),   wan::MakeVaeDecodeStage()->Info(),
            wan::MakeMediaEncodeStage()->Info(), wan::MakeTextToVideoStage()->Info(),
            wan::MakeImageToVideoStage()->Info()};
  }
  std::unique_ptr<sdk::Stage> Create(std::string_view stage) const override {
    if (stage == "text_encode") return wan::MakeTextEncodeStage();
    if (stage == "vae_encode") return wan::MakeVaeEncodeStage();
    if (stage == "diffusion") return wan::MakeDiffusionStage();
    if (stage == "vae_decode") return wan::MakeVaeDecodeStage();
    if (stage == "media_encode") return wan::MakeMediaEncodeStage();
    if (stage == "text_to_video") return wan::MakeTextToVideoStage();
    if (stage == "image_to_video") return wan::MakeImageToVideoStage();
    return nullptr;
  }
  const sdk::ModelTools* model_tools() const override { return &tools_; }

 private:
  WanModelTools tools_;
};

}  // namespace

ONEPIECE_STAGE_PLUGIN(WanPlugin)
