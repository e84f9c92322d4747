// A plug-in with the tools of a model family, named FAMILY, and no stages. A folder whose name
// begins with FAMILY is its model; one whose name begins with "unclear" may be.
#include <filesystem>

#include "stages/sdk/model_tools.h"
#include "stages/sdk/stage.h"

namespace {

namespace sdk = onepiece::sdk;

class FamilyTools final : public sdk::ModelTools {
 public:
  sdk::ModelClaim Claim(const std::string& dir, const std::string& expect) const override {
    const std::string name = std::filesystem::path(dir.empty() ? expect : dir).filename().string();
    if (name.starts_with(FAMILY)) return sdk::ModelClaim::kMine;
    return name.starts_with("unclear") ? sdk::ModelClaim::kUnclear : sdk::ModelClaim::kNotMine;
  }
  absl::StatusOr<sdk::VerifyReport> Verify(const std::string&, double, int,
                                           const std::string&) const override {
    return sdk::VerifyReport{.component = FAMILY};
  }
  absl::StatusOr<sdk::VerifyReport> VerifyReference(const std::string&, const std::string&, int,
                                                    const std::string&) const override {
    return sdk::VerifyReport{.component = FAMILY};
  }
  absl::StatusOr<sdk::InspectReport> Inspect(const std::string&,
                                             const std::string&) const override {
    return sdk::InspectReport{.model = FAMILY};
  }
  absl::StatusOr<std::string> ContentHash(const std::string&) const override { return FAMILY; }
};

class FamilyPlugin final : public sdk::Plugin {
 public:
  std::vector<sdk::StageInfo> Stages() const override { return {}; }
  std::unique_ptr<sdk::Stage> Create(std::string_view) const override { return nullptr; }
  const sdk::ModelTools* model_tools() const override { return &tools_; }

 private:
  FamilyTools tools_;
};

}  // namespace

ONEPIECE_STAGE_PLUGIN(FamilyPlugin)
