// Cheap stages for workflows with branches. Each makes one artifact, which has the stage's name and
// holds the names of its inputs, and takes as long as the parameter seconds_{stage} says. With
// kills_{stage} above 0 it ends its process after so many seconds.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "stages/sdk/parameters.h"
#include "stages/sdk/stage.h"

namespace {

namespace sdk = onepiece::sdk;

constexpr std::string_view kStages[] = {"read", "left", "right", "meet"};
constexpr std::chrono::milliseconds kStep(20);

class BranchStage final : public sdk::Stage {
 public:
  explicit BranchStage(std::string name) : name_(std::move(name)) {}
  sdk::StageInfo Info() const override {
    return {.name = name_, .description = "a part of a diamond", .outputs = {name_}};
  }
  absl::Status Load(const sdk::LoadOptions&) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<sdk::Artifact>> Run(
      sdk::StageContext& context, const std::vector<sdk::Artifact>& inputs) override {
    ONEPIECE_ASSIGN_OR_RETURN(
        const double seconds,
        sdk::NumberParameter(context.parameters(), "seconds_" + name_, 0, 600, /*fallback=*/0));
    ONEPIECE_ASSIGN_OR_RETURN(
        const double kills,
        sdk::NumberParameter(context.parameters(), "kills_" + name_, 0, 600, /*fallback=*/0));
    const int steps = 1 + static_cast<int>(seconds / std::chrono::duration<double>(kStep).count());
    onepiece::base::Mutex mutex;
    onepiece::base::MutexLock lock(mutex);
    onepiece::base::CondVar nobody;
    for (int step = 1; step <= steps; ++step) {
      // A real stage would compute during this time.
      if (step > 1) nobody.WaitFor(lock, kStep, [] { return false; });
      ONEPIECE_RETURN_IF_ERROR(context.Progress(step, steps));
      if (kills > 0 && step * std::chrono::duration<double>(kStep).count() >= kills) raise(SIGKILL);
    }
    std::vector<std::string> names;
    for (const sdk::Artifact& input : inputs) names.emplace_back(input.data.text());
    std::ranges::sort(names);
    std::string text = name_ + "(";
    for (const std::string& name : names) text += (text.back() == '(' ? "" : " ") + name;
    return std::vector{onepiece::message::BytesArtifact(name_, "text/plain", text + ")")};
  }
  void Unload() override {}

 private:
  const std::string name_;
};

class BranchPlugin final : public sdk::Plugin {
 public:
  std::vector<sdk::StageInfo> Stages() const override {
    std::vector<sdk::StageInfo> infos;
    for (const std::string_view name : kStages)
      infos.push_back(BranchStage(std::string(name)).Info());
    return infos;
  }
  std::unique_ptr<sdk::Stage> Create(std::string_view stage) const override {
    if (std::ranges::find(kStages, stage) == std::end(kStages)) return nullptr;
    return std::make_unique<BranchStage>(std::string(stage));
  }
};

}  // namespace

ONEPIECE_STAGE_PLUGIN(BranchPlugin)
