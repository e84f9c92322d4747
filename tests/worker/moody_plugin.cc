// A plug-in with the stages "moody", whose runs go as the job's parameter "mood" says, and
// "together", which adds up over the workers of a group.
#include <unistd.h>

#include <csignal>
#include <span>
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
  std::string device_;
  int runs_ = 0;
};

/// Each step adds up the members' ranks. The mood "dies" happens to the rank that "rank" says.
class TogetherStage final : public sdk::Stage {
 public:
  sdk::StageInfo Info() const override {
    return {
        .name = "together", .inputs = {"in"}, .outputs = {"out"}, .parameters = {"mood", "rank"}};
  }
  absl::Status Load(const sdk::LoadOptions&) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<Artifact>> Run(sdk::StageContext& context,
                                            const std::vector<Artifact>& inputs) override {
    const std::string mood = *sdk::StringParameter(context.parameters(), "mood", "calm");
    const std::int64_t whose = *sdk::IntParameter(context.parameters(), "rank", 0, 64, 0);
    const sdk::Collaboration with = context.collaboration();
    if (with.group == nullptr) return absl::InternalError("alone");
    std::int64_t total = 0;
    for (int step = 1; step <= kSteps; ++step) {
      if (step == 2 && whose == with.group->rank()) {
        if (mood == "dies") std::raise(SIGKILL);
        if (mood == "stops") std::raise(SIGSTOP);
        if (mood == "fails")
          return onepiece::base::MakeError(absl::StatusCode::kResourceExhausted, "NO_MEMORY",
                                           "full");
        if (mood == "throws") throw std::runtime_error("no mood for it");
      }
      std::int64_t sum = with.group->rank() + 1;
      const std::span bytes(reinterpret_cast<std::byte*>(&sum), sizeof sum);
      if (absl::Status status = with.group->AllReduce(bytes, sdk::ElementType::kI64,
                                                      sdk::Reduction::kSum, with.deadline());
          !status.ok())
        return status;
      total += sum;
      const auto save = [&] {
        return std::vector{BytesArtifact("saved", "", std::to_string(total))};
      };
      if (absl::Status status = context.Checkpoint(step, kSteps, save); !status.ok()) return status;
    }
    const std::string plan = with.plan.has_value() ? std::to_string(with.plan->cfg) + "x" +
                                                         std::to_string(with.plan->sequence)
                                                   : "none";
    return std::vector{BytesArtifact("out", "",
                                     std::string(inputs.front().data.text()) + " " +
                                         std::to_string(total) + " of " +
                                         std::to_string(with.group->size()) + " plan " + plan)};
  }
  void Unload() override {}
};

class MoodyPlugin final : public sdk::Plugin {
 public:
  std::vector<sdk::StageInfo> Stages() const override {
    return {MoodyStage().Info(), TogetherStage().Info()};
  }
  std::unique_ptr<sdk::Stage> Create(std::string_view stage) const override {
    if (stage == "together") return std::make_unique<TogetherStage>();
    return stage == "moody" ? std::make_unique<MoodyStage>() : nullptr;
  }
};

}  // namespace

ONEPIECE_STAGE_PLUGIN(MoodyPlugin)
