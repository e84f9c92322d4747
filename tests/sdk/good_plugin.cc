// A plug-in with one stage, "nothing", that makes no artifacts.
#include "stages/sdk/stage.h"

namespace {

namespace sdk = onepiece::sdk;

class NothingStage final : public sdk::Stage {
 public:
  sdk::StageInfo Info() const override {
    return {.name = "nothing", .description = "makes no artifacts"};
  }
  absl::Status Load(const sdk::LoadOptions&) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<sdk::Artifact>> Run(sdk::StageContext&,
                                                 const std::vector<sdk::Artifact>&) override {
    return std::vector<sdk::Artifact>();
  }
  void Unload() override {}
};

class NothingPlugin final : public sdk::Plugin {
 public:
  std::vector<sdk::StageInfo> Stages() const override { return {NothingStage().Info()}; }
  std::unique_ptr<sdk::Stage> Create(std::string_view stage) const override {
    return stage == "nothing" ? std::make_unique<NothingStage>() : nullptr;
  }
};

}  // namespace

ONEPIECE_STAGE_PLUGIN(NothingPlugin)
