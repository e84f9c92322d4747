#include "stages/worker/worker_stage.h"

#include <spdlog/spdlog.h>

#include <utility>
#include <vector>

#include "cluster/base/status.h"
#include "onepiece/v1/worker.pb.h"
#include "stages/runtime/stage_runner.h"
#include "stages/worker/packet_socket.h"
#include "stages/worker/shared_message.h"
#include "stages/worker/wire.h"

namespace onepiece::worker {
namespace {

// Scaled limits. Large models load for minutes from slow disks.
constexpr auto kSendLimit = std::chrono::seconds(10);
constexpr auto kLoadLimit = std::chrono::hours(1);
constexpr auto kUnloadLimit = std::chrono::seconds(30);
/// How often a run looks whether the job is still wanted.
constexpr auto kLook = std::chrono::milliseconds(200);

base::MonotonicTime In(base::Duration limit) {
  return base::SystemClock().Now() + base::Scaled(limit);
}

class WorkerStage final : public sdk::Stage {
 public:
  WorkerStage(Workers& workers, std::string plugin_dir, std::string plugin, std::string stage)
      : workers_(workers),
        plugin_dir_(std::move(plugin_dir)),
        plugin_(std::move(plugin)),
        stage_(std::move(stage)) {}
  ~WorkerStage() override { WorkerStage::Unload(); }

  sdk::StageInfo Info() const override { return info_; }
  absl::Status Load(const sdk::LoadOptions& options) override;
  absl::StatusOr<std::vector<message::Artifact>> Run(
      sdk::StageContext& context, const std::vector<message::Artifact>& inputs) override;
  void Unload() override;
  std::vector<sdk::StageMetric> Metrics() const override {
    const base::MutexLock lock(mutex_);
    return metrics_;
  }

 private:
  using Artifacts = std::vector<message::Artifact>;

  /// Starts the process if need be, and loads the stage in it.
  absl::Status Open();
  absl::Status Send(const v1::ToWorker& request, int fd = -1) {
    return socket_.Send(request, fd, In(kSendLimit));
  }
  absl::StatusOr<FileDescriptor> Receive(v1::FromWorker& packet, base::MonotonicTime deadline);
  /// Waits for the next packet while the job is wanted, and a while longer.
  absl::StatusOr<FileDescriptor> Await(sdk::StageContext& context, v1::FromWorker& packet);
  absl::StatusOr<Artifacts> Compute(sdk::StageContext& context, const SharedMessage& work);
  /// Tells the context of a step, and the worker whether to go on. Returns an error when the run
  /// has ended with it.
  absl::Status TakeStep(sdk::StageContext& context, const v1::StageStep& step);
  absl::StatusOr<Artifacts> Save(sdk::StageContext& context);
  absl::Status Lost(const absl::Status& why);

  Workers& workers_;
  const std::string plugin_dir_, plugin_, stage_;
  sdk::LoadOptions options_;
  sdk::StageInfo info_;
  std::shared_ptr<WorkerProcess> process_;  // Null: not loaded, or lost.
  PacketSocket socket_;
  mutable base::Mutex mutex_;
  std::vector<sdk::StageMetric> metrics_ ABSL_GUARDED_BY(mutex_);
};

absl::Status WorkerStage::Load(const sdk::LoadOptions& options) {
  options_ = options;
  return Open();
}

absl::Status WorkerStage::Open() {
  ONEPIECE_ASSIGN_OR_RETURN(process_, workers_.Get(options_.device));
  ONEPIECE_ASSIGN_OR_RETURN(socket_, process_->OpenStage());
  v1::ToWorker request;
  v1::LoadStage& load = *request.mutable_load();
  load.set_plugin_dir(plugin_dir_);
  load.set_plugin(plugin_);
  load.set_stage(stage_);
  load.set_device(process_->device().stage_name);
  load.set_model_dir(options_.model_dir);
  load.set_threads(options_.threads);
  load.set_precision(options_.precision);
  v1::FromWorker answer;
  absl::Status told = Send(request);
  if (told.ok()) told = Receive(answer, In(kLoadLimit)).status();
  if (!told.ok()) return Lost(told);
  const absl::Status loaded = FromWire(answer.loaded().status());
  if (loaded.ok()) {
    info_ = InfoFromWire(answer.loaded());
  } else {
    Unload();
  }
  return loaded;
}

absl::StatusOr<FileDescriptor> WorkerStage::Receive(v1::FromWorker& packet,
                                                    base::MonotonicTime deadline) {
  ONEPIECE_ASSIGN_OR_RETURN(FileDescriptor memory, socket_.Receive(packet, deadline));
  const base::MutexLock lock(mutex_);
  metrics_ = MetricsFromWire(packet);
  return memory;
}

absl::StatusOr<FileDescriptor> WorkerStage::Await(sdk::StageContext& context,
                                                  v1::FromWorker& packet) {
  absl::Status unwanted;
  base::MonotonicTime until = base::MonotonicTime::max();
  for (;;) {
    absl::StatusOr<FileDescriptor> memory = Receive(packet, base::SystemClock().Now() + kLook);
    if (!absl::IsDeadlineExceeded(memory.status())) return memory;
    if (unwanted.ok()) {
      unwanted = context.Check();
      if (!unwanted.ok()) until = In(workers_.options().stop_limit);
    }
    if (base::SystemClock().Now() >= until) return unwanted;
  }
}

absl::StatusOr<WorkerStage::Artifacts> WorkerStage::Run(sdk::StageContext& context,
                                                        const Artifacts& inputs) {
  if (process_ == nullptr) ONEPIECE_RETURN_IF_ERROR(Open());
  message::Message work{.parameters = context.parameters(), .artifacts = inputs};
  work.header.uid = context.uid();
  work.header.stage = stage_;
  ONEPIECE_ASSIGN_OR_RETURN(const SharedMessage shared, Share(work, base::SystemClock().Now()));
  return Compute(context, shared);
}

absl::StatusOr<WorkerStage::Artifacts> WorkerStage::Compute(sdk::StageContext& context,
                                                            const SharedMessage& work) {
  v1::ToWorker request;
  request.mutable_run()->set_bytes(work.bytes);
  if (const absl::Status sent = Send(request, work.memory.get()); !sent.ok()) return Lost(sent);
  for (;;) {
    v1::FromWorker packet;
    absl::StatusOr<FileDescriptor> memory = Await(context, packet);
    if (!memory.ok()) return Lost(memory.status());
    if (packet.has_step()) {
      ONEPIECE_RETURN_IF_ERROR(TakeStep(context, packet.step()));
      continue;
    }
    ONEPIECE_RETURN_IF_ERROR(FromWire(packet.ran().status()));
    ONEPIECE_ASSIGN_OR_RETURN(message::Message result,
                              Map(*memory, packet.ran().bytes(), base::SystemClock().Now()));
    return std::move(result.artifacts);
  }
}

absl::Status WorkerStage::TakeStep(sdk::StageContext& context, const v1::StageStep& step) {
  bool saved = false;
  const auto save = [&] {
    saved = true;
    return Save(context);
  };
  const absl::Status next = step.can_save() ? context.Checkpoint(step.step(), step.steps(), save)
                                            : context.Progress(step.step(), step.steps());
  if (saved) return next;
  v1::ToWorker answer;
  answer.mutable_step()->set_next(next.ok() ? v1::StepAnswer::GO_ON : v1::StepAnswer::STOP);
  *answer.mutable_step()->mutable_status() = ToWire(next);
  const absl::Status sent = Send(answer);
  return sent.ok() ? sent : Lost(sent);
}

absl::StatusOr<WorkerStage::Artifacts> WorkerStage::Save(sdk::StageContext& context) {
  v1::ToWorker answer;
  answer.mutable_step()->set_next(v1::StepAnswer::SAVE);
  *answer.mutable_step()->mutable_status() =
      ToWire(absl::AbortedError("the work goes on elsewhere"));
  v1::FromWorker packet;
  if (const absl::Status sent = Send(answer); !sent.ok()) return Lost(sent);
  absl::StatusOr<FileDescriptor> memory = Await(context, packet);
  if (!memory.ok()) return Lost(memory.status());
  if (!packet.ran().saved()) return FromWire(packet.ran().status());
  ONEPIECE_ASSIGN_OR_RETURN(message::Message result,
                            Map(*memory, packet.ran().bytes(), base::SystemClock().Now()));
  return std::move(result.artifacts);
}

/// Gives the process up, because its socket failed with `why` or it goes on with a job that nobody
/// wants.
absl::Status WorkerStage::Lost(const absl::Status& why) {
  const std::string device = process_->device().name;
  const std::string ending = process_->Ending();
  socket_ = PacketSocket();
  process_.reset();
  spdlog::error("stage={} device={} lost its worker process: {} ({})", stage_, device, ending,
                base::Message(why));
  if (absl::IsCancelled(why) || base::GetReason(why).reason == "DEADLINE_EXCEEDED") return why;
  return base::MakeError(absl::StatusCode::kUnavailable, runtime::kWorkerLost,
                         "the worker process of " + device + " ended while it computed: " + ending,
                         {{"device", device}});
}

void WorkerStage::Unload() {
  if (process_ == nullptr) return;
  v1::ToWorker request;
  request.mutable_unload();
  v1::FromWorker answer;
  // The next model may need the memory, so this waits until it is free.
  if (Send(request).ok()) (void)socket_.Receive(answer, In(kUnloadLimit));
  socket_ = PacketSocket();
  process_.reset();
}

}  // namespace

absl::StatusOr<std::shared_ptr<WorkerProcess>> Workers::Get(const std::string& device) {
  const base::MutexLock lock(mutex_);
  std::weak_ptr<WorkerProcess>& known = running_[device];
  std::shared_ptr<WorkerProcess> process = known.lock();
  if (process != nullptr && process->alive()) return process;
  ONEPIECE_ASSIGN_OR_RETURN(const WorkerDevice parsed, WorkerDevice::Parse(device));
  ONEPIECE_ASSIGN_OR_RETURN(process, WorkerProcess::Start(options_.program, parsed));
  known = process;
  return process;
}

std::unique_ptr<sdk::Stage> StageInWorker(Workers& workers, std::string plugin_dir,
                                          std::string plugin, std::string stage) {
  return std::make_unique<WorkerStage>(workers, std::move(plugin_dir), std::move(plugin),
                                       std::move(stage));
}

}  // namespace onepiece::worker
