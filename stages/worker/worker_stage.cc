#include "stages/worker/worker_stage.h"

#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "cluster/base/status.h"
#include "onepiece/v1/worker.pb.h"
#include "stages/worker/collaboration.h"
#include "stages/worker/stage_link.h"

namespace onepiece::worker {
namespace {

/// A stage in one process.
class WorkerStage final : public sdk::Stage {
 public:
  WorkerStage(Workers& workers, StageName name)
      : stage_(name.stage), link_(workers, std::move(name)) {}

  sdk::StageInfo Info() const override { return link_.info(); }
  absl::Status Load(const sdk::LoadOptions& options) override {
    options_ = options;
    return link_.Open(options_);
  }
  absl::StatusOr<std::vector<message::Artifact>> Run(
      sdk::StageContext& context, const std::vector<message::Artifact>& inputs) override;
  void Unload() override { link_.Unload(); }
  std::vector<sdk::StageMetric> Metrics() const override { return link_.metrics(); }

 private:
  /// Waits for the next packet while the job is wanted, and a while longer.
  absl::StatusOr<FileDescriptor> Await(sdk::StageContext& context, v1::FromWorker& packet);

  const std::string stage_;
  sdk::LoadOptions options_;
  StageLink link_;
};

absl::StatusOr<FileDescriptor> WorkerStage::Await(sdk::StageContext& context,
                                                  v1::FromWorker& packet) {
  absl::Status unwanted;
  base::MonotonicTime until = base::MonotonicTime::max();
  for (;;) {
    const base::MonotonicTime now = base::SystemClock().Now();
    absl::StatusOr<FileDescriptor> memory = link_.Receive(packet, now + kLook);
    if (memory.ok()) return memory;
    if (!absl::IsDeadlineExceeded(memory.status())) return link_.Lose(memory.status());
    if (unwanted.ok()) {
      unwanted = context.Check();
      if (!unwanted.ok()) until = now + base::Scaled(link_.options().stop_limit);
    }
    if (now < until) continue;
    (void)link_.Lose(unwanted);
    return unwanted;
  }
}

absl::StatusOr<std::vector<message::Artifact>> WorkerStage::Run(
    sdk::StageContext& context, const std::vector<message::Artifact>& inputs) {
  if (!link_.is_open()) ONEPIECE_RETURN_IF_ERROR(link_.Open(options_));
  ONEPIECE_ASSIGN_OR_RETURN(const SharedMessage work, ShareWork(context, stage_, inputs));
  v1::ToWorker request;
  request.mutable_run()->set_bytes(work.bytes);
  if (const absl::Status sent = link_.Send(request, work.memory.get()); !sent.ok())
    return link_.Lose(sent);
  for (;;) {
    v1::FromWorker packet;
    ONEPIECE_ASSIGN_OR_RETURN(const FileDescriptor memory, Await(context, packet));
    if (!packet.has_step()) return TakeOutputs(packet.ran(), memory);
    ONEPIECE_RETURN_IF_ERROR(TakeStep(link_, context, packet.step(),
                                      [&](v1::FromWorker& ran) { return Await(context, ran); }));
  }
}

/// One stage or several, as its devices say.
class StageOfDevices final : public sdk::Stage {
 public:
  StageOfDevices(Workers& workers, StageName name) : workers_(workers), name_(std::move(name)) {}

  sdk::StageInfo Info() const override { return stage_ ? stage_->Info() : sdk::StageInfo(); }
  absl::Status Load(const sdk::LoadOptions& options) override {
    const std::vector<std::string> devices = absl::StrSplit(options.device, ',');
    if (devices.size() > 1) {
      stage_ = CollaborativeStage(workers_, name_);
    } else {
      stage_ = std::make_unique<WorkerStage>(workers_, name_);
    }
    return stage_->Load(options);
  }
  absl::StatusOr<std::vector<message::Artifact>> Run(
      sdk::StageContext& context, const std::vector<message::Artifact>& inputs) override {
    return stage_->Run(context, inputs);
  }
  void Unload() override {
    if (stage_) stage_->Unload();
  }
  std::vector<sdk::StageMetric> Metrics() const override {
    return stage_ ? stage_->Metrics() : std::vector<sdk::StageMetric>();
  }

 private:
  Workers& workers_;
  const StageName name_;
  std::unique_ptr<sdk::Stage> stage_;  // Set by Load.
};

}  // namespace

std::unique_ptr<sdk::Stage> StageInWorkers(Workers& workers, StageName name) {
  return std::make_unique<StageOfDevices>(workers, std::move(name));
}

}  // namespace onepiece::worker
