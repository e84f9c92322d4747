// A plug-in with one stage, "moody": the job's parameter "mood" says how its run goes.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "cluster/base/status.h"
#include "stages/sdk/parameters.h"
#include "stages/sdk/stage.h"

namespace {

namespace sdk = onepiece::sdk;
using onepiece::message::Artifact;
using onepiece::message::BytesArtifact;

constexpr int kSteps = 3;

class MoodyStage final : public sdk::Stage {
 public:
  sdk::StageInfo Info() const override {
    return {.name = "moody",
            .description = "goes as it is told",
            .inputs = {"in"},
            .optional_inputs = {"saved"},
            .outputs = {"out"},
            .parameters = {"mood"}};
  }
  absl::Status Load(const sdk::LoadOptions& options) override {
    if (options.model_dir == "missing")
      return onepiece::base::MakeError(absl::StatusCode::kNotFound, "NO_MODEL", "no such model",
                                       {{"model", options.model_dir}});
    if (options.model_dir == "killer") std::raise(SIGKILL);
    device_ = options.device;
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<Artifact>> Run(sdk::StageContext& context,
                                            const std::vector<Artifact>& inputs) override {
    const std::string mood = *sdk::StringParameter(context.parameters(), "mood", "calm");
    if (mood == "throws") throw std::runtime_error("no mood for it");
    const Artifact* const saved = onepiece::message::FindArtifact(inputs, "saved");
    const int first = saved == nullptr ? 1 : std::stoi(std::string(saved->data.text())) + 1;
    for (int step = first; step <= kSteps; ++step) {
      // Kills and stops at a step only this process.
      if (mood == "dies" && step == 2) std::raise(SIGKILL);
      if (mood == "stops" && step == 2) std::raise(SIGSTOP);
      if (mood == "dies once" && step == 2 && Dies()) std::raise(SIGKILL);
      const auto save = [step] {
        return std::vector{BytesArtifact("saved", "", std::to_string(step))};
      };
      if (absl::Status status = context.Checkpoint(step, kSteps, save); !status.ok()) return status;
    }
    ++runs_;
    return std::vector{BytesArtifact("out", "text/plain",
                                     std::string(inputs.front().data.text()) + " on " + device_ +
                                         " by " + std::to_string(::getpid()))};
  }
  void Unload() override {}
  std::vector<sdk::StageMetric> Metrics() const override {
    return {{.name = "runs_total", .help = "Runs", .counter = true, .value = double(runs_)}};
  }

 private:
  // True once for all processes that share the folder.
  static bool Dies() {
    const char* const mark = std::getenv("MOODY_MARK");
    return mark != nullptr && ::unlink(mark) == 0;
  }

  std::string device_;
  int runs_ = 0;
};

class MoodyPlugin final : public sdk::Plugin {
 public:
  std::vector<sdk::StageInfo> Stages() const override { return {MoodyStage().Info()}; }
  std::unique_ptr<sdk::Stage> Create(std::string_view stage) const override {
    return stage == "moody" ? std::make_unique<MoodyStage>() : nullptr;
  }
};

}  // namespace

ONEPIECE_STAGE_PLUGIN(MoodyPlugin)
