// Stages with large artifacts. "large_fill" makes the bytes that a seed stands for. "large_pass"
// hands them on as they are. While it takes its time it can go on elsewhere, from a saved state of
// any size, which it compares with what it saved.
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
constexpr std::uint64_t kStateSeed = 7;
constexpr char kState[] = "state";

absl::StatusOr<std::string> Make(sdk::StageContext& context, const char* size_mib,
                                 std::uint64_t seed) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t mib,
                            sdk::IntParameter(context.parameters(), size_mib, 0, 2047));
  std::string bytes(static_cast<std::size_t>(mib) << 20, '\0');
  ledger::Bytes(seed).Next(bytes);
  return bytes;
}

class LargeFillStage final : public sdk::Stage {
 public:
  sdk::StageInfo Info() const override {
    return {.name = "large_fill", .outputs = {"filled"}, .parameters = {"seed", "mib"}};
  }
  absl::Status Load(const sdk::LoadOptions&) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<sdk::Artifact>> Run(sdk::StageContext& context,
                                                 const std::vector<sdk::Artifact>&) override {
    ONEPIECE_ASSIGN_OR_RETURN(
        const std::int64_t seed,
        sdk::IntParameter(context.parameters(), "seed", 0, std::int64_t{1} << 53));
    ONEPIECE_ASSIGN_OR_RETURN(std::string filled,
                              Make(context, "mib", static_cast<std::uint64_t>(seed)));
    return std::vector{
        onepiece::message::BytesArtifact("filled", "application/octet-stream", std::move(filled))};
  }
  void Unload() override {}
};

class LargePassStage final : public sdk::Stage {
 public:
  sdk::StageInfo Info() const override {
    return {.name = "large_pass",
            .inputs = {"filled"},
            .outputs = {"passed"},
            .parameters = {"seconds", "state_mib"}};
  }
  absl::Status Load(const sdk::LoadOptions&) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<sdk::Artifact>> Run(
      sdk::StageContext& context, const std::vector<sdk::Artifact>& inputs) override {
    if (const sdk::Artifact* state = onepiece::message::FindArtifact(inputs, kState)) {
      ONEPIECE_ASSIGN_OR_RETURN(const std::string saved, Make(context, "state_mib", kStateSeed));
      if (state->data.text() != saved)
        return onepiece::base::MakeError(absl::StatusCode::kInternal, "STATE_CHANGED",
                                         "the saved state is not what was saved");
    } else {
      ONEPIECE_RETURN_IF_ERROR(TakeTime(context));
    }
    sdk::Artifact passed = *onepiece::message::FindArtifact(inputs, "filled");
    passed.name = "passed";
    return std::vector{passed};
  }
  void Unload() override {}

 private:
  static absl::Status TakeTime(sdk::StageContext& context) {
    ONEPIECE_ASSIGN_OR_RETURN(const double seconds,
                              sdk::NumberParameter(context.parameters(), "seconds", 0, 600));
    const int steps = 1 + static_cast<int>(seconds / std::chrono::duration<double>(kStep).count());
    onepiece::base::Mutex mutex;
    onepiece::base::MutexLock lock(mutex);
    onepiece::base::CondVar nobody;
    const auto save = [&]() -> absl::StatusOr<std::vector<sdk::Artifact>> {
      ONEPIECE_ASSIGN_OR_RETURN(std::string state, Make(context, "state_mib", kStateSeed));
      return std::vector{
          onepiece::message::BytesArtifact(kState, "application/octet-stream", std::move(state))};
    };
    for (int step = 1; step <= steps; ++step) {
      // A real stage would compute during this time.
      if (step > 1) nobody.WaitFor(lock, kStep, [] { return false; });
      ONEPIECE_RETURN_IF_ERROR(context.Checkpoint(step, steps, save));
    }
    return absl::OkStatus();
  }
};

class LargePlugin final : public sdk::Plugin {
 public:
  std::vector<sdk::StageInfo> Stages() const override {
    return {LargeFillStage().Info(), LargePassStage().Info()};
  }
  std::unique_ptr<sdk::Stage> Create(std::string_view stage) const override {
    if (stage == "large_fill") return std::make_unique<LargeFillStage>();
    if (stage == "large_pass") return std::make_unique<LargePassStage>();
    return nullptr;
  }
};

}  // namespace

ONEPIECE_STAGE_PLUGIN(LargePlugin)
