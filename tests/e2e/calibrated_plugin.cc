// Stages of known cost. Each computes, without sleeping, for as long as the parameter
// seconds_{stage} says, measured on a processor of its own. It saves its state at every step, so
// that the work can continue elsewhere.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/base/status.h"
#include "stages/sdk/parameters.h"
#include "stages/sdk/stage.h"

namespace {

namespace sdk = onepiece::sdk;

constexpr std::string_view kStages[] = {"x", "y", "z"};
constexpr double kStepSeconds = 0.01;

/// Returns the processor time of this thread, so that other work does not count.
double ProcessorSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Does the work: a chain of dependent multiplications (PCG's generator) that nothing can shorten.
std::uint64_t Compute(std::uint64_t value, std::int64_t rounds) {
  for (; rounds > 0; --rounds) value = value * 6364136223846793005ULL + 1442695040888963407ULL;
  return value;
}

/// Returns the rounds in a second, the best of a few bursts.
double RoundsPerSecond() {
  constexpr std::int64_t kBurst = 4'000'000;
  double best = 0;
  volatile std::uint64_t kept = 1;
  for (int i = 0; i < 10; ++i) {
    const double begun = ProcessorSeconds();
    kept = Compute(kept, kBurst);
    best = std::max(best, static_cast<double>(kBurst) / (ProcessorSeconds() - begun));
  }
  return best;
}

class CalibratedStage final : public sdk::Stage {
 public:
  explicit CalibratedStage(std::string name) : name_(std::move(name)) {}
  sdk::StageInfo Info() const override {
    return {.name = name_,
            .description = "computes for a known time",
            .optional_inputs = {name_ + "_state"},
            .outputs = {name_},
            .parameters = {"seconds_" + name_}};
  }
  absl::Status Load(const sdk::LoadOptions&) override {
    rounds_per_second_ = RoundsPerSecond();
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<sdk::Artifact>> Run(
      sdk::StageContext& context, const std::vector<sdk::Artifact>& inputs) override {
    ONEPIECE_ASSIGN_OR_RETURN(
        const double seconds,
        sdk::NumberParameter(context.parameters(), "seconds_" + name_, 0, 600, /*fallback=*/0));
    const int steps = std::max(1, static_cast<int>(std::lround(seconds / kStepSeconds)));
    const auto rounds = static_cast<std::int64_t>(seconds / steps * rounds_per_second_);
    int done = 0;
    std::uint64_t value = 1;
    if (const auto* state = onepiece::message::FindArtifact(inputs, name_ + "_state")) {
      done = std::stoi(std::string(state->data.text()));
    }
    for (int step = done + 1; step <= steps; ++step) {
      value = Compute(value, rounds);
      ONEPIECE_RETURN_IF_ERROR(context.Checkpoint(step, steps, [&] {
        return absl::StatusOr<std::vector<sdk::Artifact>>({onepiece::message::BytesArtifact(
            name_ + "_state", "text/plain", std::to_string(step))});
      }));
    }
    return std::vector{
        onepiece::message::BytesArtifact(name_, "text/plain", value == 0 ? "0" : name_)};
  }
  void Unload() override {}

 private:
  const std::string name_;
  double rounds_per_second_ = 0;
};

class CalibratedPlugin final : public sdk::Plugin {
 public:
  std::vector<sdk::StageInfo> Stages() const override {
    std::vector<sdk::StageInfo> infos;
    for (const std::string_view name : kStages)
      infos.push_back(CalibratedStage(std::string(name)).Info());
    return infos;
  }
  std::unique_ptr<sdk::Stage> Create(std::string_view stage) const override {
    if (std::ranges::find(kStages, stage) == std::end(kStages)) return nullptr;
    return std::make_unique<CalibratedStage>(std::string(stage));
  }
};

}  // namespace

ONEPIECE_STAGE_PLUGIN(CalibratedPlugin)
