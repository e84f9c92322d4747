// Runs the stages of a whole workflow as one stage. Each part gets the outputs of the parts before
// it, in this process.
#include <algorithm>
#include <string>
#include <utility>

#include "cluster/base/status.h"
#include "stages/model/generation_settings.h"
#include "stages/wan/family.h"
#include "stages/wan/stages.h"

namespace onepiece::wan {
namespace {

using Artifacts = std::vector<sdk::Artifact>;

/// Reports the progress of one part as progress of the whole: one step for each step of the
/// diffusion, and one for each other part.
class PartContext final : public sdk::StageContext {
 public:
  PartContext(sdk::StageContext& whole, int done_before, int own, int total)
      : whole_(whole), done_before_(done_before), own_(own), total_(total) {}
  const base::Uid& uid() const override { return whole_.uid(); }
  const sdk::Parameters& parameters() const override { return whole_.parameters(); }
  absl::Status Progress(int step, int steps) override {
    return whole_.Progress(Place(step, steps), total_);
  }
  absl::Status Checkpoint(int step, int steps, const SaveState& save) override {
    return whole_.Checkpoint(Place(step, steps), total_, save);
  }

  sdk::Collaboration collaboration() override {
    sdk::Collaboration part = whole_.collaboration();
    part.steps_done = std::max(0, part.steps_done - done_before_);
    // Whoever comes while another part is computed has the state of this part's beginning.
    if (part.steps_done == 0) part.newcomers.clear();
    return part;
  }

 private:
  int Place(int step, int steps) const {
    // Steps count from 1 (StageContext::Progress), and a part with steps of its own may have done
    // none of the whole yet.
    return std::max(1, done_before_ + (steps == own_ ? step : step == steps ? own_ : 0));
  }

  sdk::StageContext& whole_;
  const int done_before_, own_, total_;
};

class FusedStage final : public sdk::Stage {
 public:
  FusedStage(std::string name, std::string description,
             std::vector<std::unique_ptr<sdk::Stage>> parts)
      : name_(std::move(name)), description_(std::move(description)), parts_(std::move(parts)) {}

  sdk::StageInfo Info() const override {
    sdk::StageInfo whole{.name = name_, .description = description_};
    std::vector<std::string> made;
    const auto add = [&](std::vector<std::string>& to, const std::vector<std::string>& names) {
      for (const std::string& name : names) {
        if (std::ranges::count(made, name) == 0 && std::ranges::count(to, name) == 0)
          to.push_back(name);
      }
    };
    for (const auto& part : parts_) {
      const sdk::StageInfo info = part->Info();
      add(whole.inputs, info.inputs);
      add(whole.optional_inputs, info.optional_inputs);
      add(whole.parameters, info.parameters);
      made.insert(made.end(), info.outputs.begin(), info.outputs.end());
      whole.outputs = info.outputs;
    }
    std::erase_if(whole.optional_inputs, [&](const std::string& name) {
      return std::ranges::count(whole.inputs, name) > 0;
    });
    return whole;
  }

  absl::Status Load(const sdk::LoadOptions& options) override {
    for (const auto& part : parts_) ONEPIECE_RETURN_IF_ERROR(part->Load(options));
    return absl::OkStatus();
  }

  absl::StatusOr<Artifacts> Run(sdk::StageContext& context, const Artifacts& inputs) override {
    ONEPIECE_ASSIGN_OR_RETURN(const model::GenerationSettings settings,
                              model::ReadSettings(context.parameters(), kGeometry));
    const int total = settings.steps + static_cast<int>(parts_.size()) - 1;
    int done = 0;
    Artifacts known = inputs, outputs;
    for (const auto& part : parts_) {
      const int own = part->Info().name == "diffusion" ? settings.steps : 1;
      PartContext part_context(context, done, own, total);
      ONEPIECE_ASSIGN_OR_RETURN(outputs, part->Run(part_context, known));
      known.insert(known.end(), outputs.begin(), outputs.end());
      done += own;
    }
    return outputs;
  }

  void Unload() override {
    for (const auto& part : parts_) part->Unload();
  }
  std::vector<sdk::StageMetric> Metrics() const override {
    return parts_.front()->Metrics();  // The metrics are the process's, so all parts have the same.
  }

 private:
  const std::string name_, description_;
  const std::vector<std::unique_ptr<sdk::Stage>> parts_;
};

}  // namespace

std::unique_ptr<sdk::Stage> MakeTextToVideoStage() {
  std::vector<std::unique_ptr<sdk::Stage>> parts;
  parts.push_back(MakeTextEncodeStage());
  parts.push_back(MakeDiffusionStage());
  parts.push_back(MakeVaeDecodeStage());
  return std::make_unique<FusedStage>(
      "text_to_video", "text_encode, diffusion and vae_decode in one instance", std::move(parts));
}

std::unique_ptr<sdk::Stage> MakeImageToVideoStage() {
  std::vector<std::unique_ptr<sdk::Stage>> parts;
  parts.push_back(MakeTextEncodeStage());
  parts.push_back(MakeVaeEncodeStage());
  parts.push_back(MakeDiffusionStage());
  parts.push_back(MakeVaeDecodeStage());
  return std::make_unique<FusedStage>(
      "image_to_video", "text_encode, vae_encode, diffusion and vae_decode in one instance",
      std::move(parts));
}

}  // namespace onepiece::wan
