// A plug-in with one stage, "gate": a job goes on step by step until the test opens the gate.
#include <atomic>
#include <chrono>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "stages/sdk/stage.h"

namespace {

namespace sdk = onepiece::sdk;

namespace base = onepiece::base;

base::Mutex mutex;
base::CondVar changed;
bool is_open ABSL_GUARDED_BY(mutex) = false;
std::atomic<int> loads = 0;

class GateStage final : public sdk::Stage {
 public:
  sdk::StageInfo Info() const override { return {.name = "gate"}; }
  absl::Status Load(const sdk::LoadOptions&) override {
    ++loads;
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<sdk::Artifact>> Run(sdk::StageContext& context,
                                                 const std::vector<sdk::Artifact>&) override {
    base::MutexLock lock(mutex);
    // A step takes a millisecond. The job's deadline ends the steps at the latest.
    const auto opened = []() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return is_open; };
    for (int step = 1; !changed.WaitFor(lock, std::chrono::milliseconds(1), opened); ++step) {
      const auto save = [step] {
        return std::vector{onepiece::message::BytesArtifact("saved", "", std::to_string(step))};
      };
      if (absl::Status status = context.Checkpoint(step, 1 << 20, save); !status.ok())
        return status;
    }
    return std::vector{onepiece::message::BytesArtifact("out", "", "done")};
  }
  void Unload() override {}
};

class GatePlugin final : public sdk::Plugin {
 public:
  std::vector<sdk::StageInfo> Stages() const override { return {GateStage().Info()}; }
  std::unique_ptr<sdk::Stage> Create(std::string_view stage) const override {
    return stage == "gate" ? std::make_unique<GateStage>() : nullptr;
  }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void gate_open(bool open) {
  const base::MutexLock lock(mutex);
  is_open = open;
  changed.NotifyAll();
}
extern "C" __attribute__((visibility("default"))) int gate_loads() { return loads; }

ONEPIECE_STAGE_PLUGIN(GatePlugin)
