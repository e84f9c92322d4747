// The stages of the ledger's load: "draw" hands the seed on, "fill" makes the bytes that the seed
// stands for, so that the client knows them beforehand. Each takes as long as the parameter
// `seconds` says.
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "stages/sdk/parameters.h"
#include "stages/sdk/stage.h"
#include "tests/chaos/ledger_bytes.h"

namespace {

namespace ledger = onepiece::ledger;
namespace sdk = onepiece::sdk;

constexpr std::chrono::milliseconds kStep(20);

/// A real stage would compute during this time.
absl::Status Work(sdk::StageContext& context) {
  ONEPIECE_ASSIGN_OR_RETURN(
      const double seconds,
      sdk::NumberParameter(context.parameters(), ledger::kSeconds, 0, 600, /*fallback=*/0));
  const int steps = 1 + static_cast<int>(seconds / std::chrono::duration<double>(kStep).count());
  onepiece::base::Mutex mutex;
  onepiece::base::MutexLock lock(mutex);
  onepiece::base::CondVar nobody;
  for (int step = 1; step <= steps; ++step) {
    if (step > 1) nobody.WaitFor(lock, kStep, [] { return false; });
    ONEPIECE_RETURN_IF_ERROR(context.Progress(step, steps));
  }
  return absl::OkStatus();
}

class DrawStage final : public sdk::Stage {
 public:
  sdk::StageInfo Info() const override {
    return {.name = "draw",
            .description = "hands the seed on",
            .outputs = {"drawn"},
            .parameters = {ledger::kSeed, ledger::kSeconds}};
  }
  absl::Status Load(const sdk::LoadOptions&) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<sdk::Artifact>> Run(sdk::StageContext& context,
                                                 const std::vector<sdk::Artifact>&) override {
    ONEPIECE_ASSIGN_OR_RETURN(
        const std::int64_t seed,
        sdk::IntParameter(context.parameters(), ledger::kSeed, 0, std::int64_t{1} << 53));
    ONEPIECE_RETURN_IF_ERROR(Work(context));
    return std::vector{
        onepiece::message::BytesArtifact("drawn", "text/plain", std::to_string(seed))};
  }
  void Unload() override {}
};

class FillStage final : public sdk::Stage {
 public:
  sdk::StageInfo Info() const override {
    return {.name = "fill",
            .description = "makes the bytes that the seed stands for",
            .inputs = {"drawn"},
            .outputs = {"filled"},
            .parameters = {ledger::kSize, ledger::kSeconds}};
  }
  absl::Status Load(const sdk::LoadOptions&) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<sdk::Artifact>> Run(
      sdk::StageContext& context, const std::vector<sdk::Artifact>& inputs) override {
    ONEPIECE_ASSIGN_OR_RETURN(
        const std::int64_t size,
        sdk::IntParameter(context.parameters(), ledger::kSize, 0, ledger::kLargestBytes));
    ONEPIECE_RETURN_IF_ERROR(Work(context));
    const std::string seed(onepiece::message::FindArtifact(inputs, "drawn")->data.text());
    std::string filled(static_cast<std::size_t>(size), '\0');
    ledger::Bytes(std::stoull(seed)).Next(filled);
    return std::vector{
        onepiece::message::BytesArtifact("filled", "application/octet-stream", std::move(filled))};
  }
  void Unload() override {}
};

class LedgerPlugin final : public sdk::Plugin {
 public:
  std::vector<sdk::StageInfo> Stages() const override {
    return {DrawStage().Info(), FillStage().Info()};
  }
  std::unique_ptr<sdk::Stage> Create(std::string_view stage) const override {
    if (stage == "draw") return std::make_unique<DrawStage>();
    if (stage == "fill") return std::make_unique<FillStage>();
    return nullptr;
  }
};

}  // namespace

ONEPIECE_STAGE_PLUGIN(LedgerPlugin)
