#include "stages/worker/stage_link.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "cluster/base/status.h"
#include "stages/runtime/stage_runner.h"
#include "stages/worker/wire.h"

namespace onepiece::worker {
namespace {

// Scaled limits. Large models load for minutes from slow disks.
constexpr auto kSendLimit = std::chrono::seconds(10);
constexpr auto kLoadLimit = std::chrono::hours(1);
constexpr auto kUnloadLimit = std::chrono::seconds(30);

base::MonotonicTime In(base::Duration limit) {
  return base::SystemClock().Now() + base::Scaled(limit);
}

absl::StatusOr<std::vector<message::Artifact>> ArtifactsIn(const v1::StageRan& ran,
                                                           const FileDescriptor& memory) {
  ONEPIECE_ASSIGN_OR_RETURN(message::Message result,
                            Map(memory, ran.bytes(), base::SystemClock().Now()));
  return std::move(result.artifacts);
}

}  // namespace

absl::Status StageLink::Open(const sdk::LoadOptions& options) {
  Unload();
  device_ = options.device;
  ONEPIECE_ASSIGN_OR_RETURN(process_, workers_.Get(device_));
  absl::StatusOr<PacketSocket> socket = process_->OpenStage();
  if (!socket.ok()) return Lose(socket.status());
  socket_ = *std::move(socket);
  v1::ToWorker request;
  v1::LoadStage& load = *request.mutable_load();
  load.set_plugin_dir(name_.plugin_dir);
  load.set_plugin(name_.plugin);
  load.set_stage(name_.stage);
  load.set_device(process_->device().stage_name);
  load.set_model_dir(options.model_dir);
  load.set_threads(options.threads);
  load.set_precision(options.precision);
  if (options.plan.has_value()) *load.mutable_plan() = ToWire(*options.plan);
  v1::FromWorker answer;
  absl::Status told = Send(request);
  if (told.ok()) told = Receive(answer, In(kLoadLimit)).status();
  if (!told.ok()) return Lose(told);
  const absl::Status loaded = FromWire(answer.loaded().status());
  if (loaded.ok()) {
    info_ = InfoFromWire(answer.loaded());
  } else {
    Unload();
  }
  return loaded;
}

void StageLink::Unload() {
  if (process_ == nullptr) return;
  v1::ToWorker request;
  request.mutable_unload();
  v1::FromWorker answer;
  // The next model may need the memory, so this waits until it is free.
  if (Send(request).ok()) (void)socket_.Receive(answer, In(kUnloadLimit));
  socket_ = PacketSocket();
  process_.reset();
}

absl::Status StageLink::Send(const v1::ToWorker& request, int fd) {
  return socket_.Send(request, fd, In(kSendLimit));
}

absl::StatusOr<FileDescriptor> StageLink::Receive(v1::FromWorker& packet,
                                                  base::MonotonicTime deadline) {
  ONEPIECE_ASSIGN_OR_RETURN(FileDescriptor memory, socket_.Receive(packet, deadline));
  const base::MutexLock lock(mutex_);
  metrics_ = MetricsFromWire(packet);
  return memory;
}

absl::Status StageLink::Lose(const absl::Status& why) {
  const std::string ending = process_->Ending();
  socket_ = PacketSocket();
  process_.reset();
  spdlog::error("stage={} device={} lost its worker process: {} ({})", name_.stage, device_, ending,
                base::Message(why));
  return base::MakeError(absl::StatusCode::kUnavailable, runtime::kWorkerLost,
                         "the worker process of " + device_ + " ended while it computed: " + ending,
                         {{"device", device_}});
}

std::vector<sdk::StageMetric> StageLink::metrics() const {
  const base::MutexLock lock(mutex_);
  return metrics_;
}

absl::Status TakeStep(StageLink& link, sdk::StageContext& context, const v1::StageStep& step,
                      const ReceiveRan& receive) {
  bool saved = false;
  const auto save = [&]() -> absl::StatusOr<std::vector<message::Artifact>> {
    saved = true;
    v1::ToWorker answer;
    answer.mutable_step()->set_next(v1::StepAnswer::SAVE);
    *answer.mutable_step()->mutable_status() =
        ToWire(absl::AbortedError("the work goes on elsewhere"));
    if (const absl::Status sent = link.Send(answer); !sent.ok()) return link.Lose(sent);
    v1::FromWorker packet;
    ONEPIECE_ASSIGN_OR_RETURN(const FileDescriptor memory, receive(packet));
    if (!packet.ran().saved()) return FromWire(packet.ran().status());
    return ArtifactsIn(packet.ran(), memory);
  };
  const absl::Status next = step.can_save() ? context.Checkpoint(step.step(), step.steps(), save)
                                            : context.Progress(step.step(), step.steps());
  if (saved) return next;
  v1::ToWorker answer;
  answer.mutable_step()->set_next(next.ok() ? v1::StepAnswer::GO_ON : v1::StepAnswer::STOP);
  *answer.mutable_step()->mutable_status() = ToWire(next);
  const absl::Status sent = link.Send(answer);
  return sent.ok() ? sent : link.Lose(sent);
}

absl::StatusOr<std::vector<message::Artifact>> TakeOutputs(const v1::StageRan& ran,
                                                           const FileDescriptor& memory) {
  ONEPIECE_RETURN_IF_ERROR(FromWire(ran.status()));
  return ArtifactsIn(ran, memory);
}

absl::StatusOr<SharedMessage> ShareWork(const sdk::StageContext& context, const std::string& stage,
                                        const std::vector<message::Artifact>& inputs) {
  message::Message work{.parameters = context.parameters(), .artifacts = inputs};
  work.header.uid = context.uid();
  work.header.stage = stage;
  return Share(work, base::SystemClock().Now());
}

}  // namespace onepiece::worker
