#include "stages/worker/worker_server.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/fabric/fabric.h"
#include "onepiece/v1/worker.pb.h"
#include "stages/collectives/fabric_world.h"
#include "stages/collectives/socket_rendezvous.h"
#include "stages/runtime/plugin_stages.h"
#include "stages/worker/shared_message.h"
#include "stages/worker/wire.h"

namespace onepiece::worker {
namespace {

/// How long an instance that lives may take for an answer. Scaled.
constexpr auto kAnswerLimit = std::chrono::minutes(1);

base::MonotonicTime Never() { return base::MonotonicTime::max(); }
base::MonotonicTime Soon() { return base::SystemClock().Now() + base::Scaled(kAnswerLimit); }

/// The plug-ins of this process, by their folder.
class Plugins {
 public:
  absl::StatusOr<std::unique_ptr<sdk::Stage>> Create(const v1::LoadStage& load) {
    runtime::TaskManager::StageSource source;
    {
      const base::MutexLock lock(mutex_);
      auto& known = sources_[load.plugin_dir()];
      if (!known) known = runtime::StagesFromPlugins(load.plugin_dir());
      source = known;
    }
    return source(load.plugin(), load.stage());
  }

 private:
  base::Mutex mutex_;
  std::map<std::string, runtime::TaskManager::StageSource> sources_ ABSL_GUARDED_BY(mutex_);
};

/// The other workers of a job, as this one is told.
struct Together {
  std::unique_ptr<sdk::Group> group;  ///< Null: this worker computes the job alone.
  std::optional<sdk::ParallelPlan> plan;
  base::Duration rank_timeout{};

  [[nodiscard]] sdk::Group::Deadline Deadline() const {
    return base::SystemClock().Now() + rank_timeout;
  }
  [[nodiscard]] bool follows() const { return group != nullptr && group->rank() != 0; }
};

/// What the instance says after a step, as the first worker of a group tells it to the others.
struct Verdict {
  std::int32_t next = v1::StepAnswer::GO_ON;
  std::int32_t code = 0;
  std::array<char, 64> reason{};
  std::array<char, 184> message{};
};

/// The runtime as a stage sees it here: the instance's, at the other end of the socket.
class RemoteContext final : public sdk::StageContext {
 public:
  RemoteContext(PacketSocket& socket, const sdk::Stage& stage, const message::Message& work,
                const Together& together)
      : socket_(socket), stage_(stage), work_(work), together_(together) {}

  const base::Uid& uid() const override { return work_.header.uid; }
  const sdk::Parameters& parameters() const override { return work_.parameters; }
  sdk::Collaboration collaboration() override {
    if (together_.group == nullptr) return {};
    return {.group = together_.group.get(), .plan = together_.plan, .deadline = [this] {
              return together_.Deadline();
            }};
  }

  absl::Status Progress(int step, int steps) override {
    ONEPIECE_ASSIGN_OR_RETURN(const v1::StepAnswer answer, Agree(step, steps, false));
    return FromWire(answer.status());
  }
  absl::Status Checkpoint(int step, int steps, const SaveState& save) override {
    ONEPIECE_ASSIGN_OR_RETURN(const v1::StepAnswer answer, Agree(step, steps, true));
    if (answer.next() == v1::StepAnswer::SAVE && !together_.follows()) {
      ONEPIECE_ASSIGN_OR_RETURN(saved_, save());
      has_saved_ = true;
    }
    return FromWire(answer.status());
  }

  [[nodiscard]] bool has_saved() const { return has_saved_; }
  [[nodiscard]] const std::vector<message::Artifact>& saved() const { return saved_; }

 private:
  /// The same answer for all members of the group.
  absl::StatusOr<v1::StepAnswer> Agree(int step, int steps, bool can_save) {
    if (together_.group == nullptr) return Ask(step, steps, can_save);
    v1::StepAnswer answer;
    if (!together_.follows()) {
      ONEPIECE_ASSIGN_OR_RETURN(answer, Ask(step, steps, can_save));
    }
    Verdict verdict = VerdictOf(answer);
    const std::span bytes(reinterpret_cast<std::byte*>(&verdict), sizeof verdict);
    ONEPIECE_RETURN_IF_ERROR(together_.group->Broadcast(bytes, 0, together_.Deadline()));
    return together_.follows() ? AnswerOf(verdict) : answer;
  }

  static Verdict VerdictOf(const v1::StepAnswer& answer) {
    Verdict verdict{.next = answer.next(), .code = answer.status().code()};
    answer.status().reason().copy(verdict.reason.data(), verdict.reason.size() - 1);
    answer.status().message().copy(verdict.message.data(), verdict.message.size() - 1);
    return verdict;
  }
  static v1::StepAnswer AnswerOf(const Verdict& verdict) {
    v1::StepAnswer answer;
    answer.set_next(static_cast<v1::StepAnswer::Next>(verdict.next));
    answer.mutable_status()->set_code(verdict.code);
    answer.mutable_status()->set_reason(verdict.reason.data());
    answer.mutable_status()->set_message(verdict.message.data());
    return answer;
  }

  absl::StatusOr<v1::StepAnswer> Ask(int step, int steps, bool can_save) {
    v1::FromWorker packet;
    packet.mutable_step()->set_step(step);
    packet.mutable_step()->set_steps(steps);
    packet.mutable_step()->set_can_save(can_save);
    ToWire(stage_.Metrics(), packet);
    ONEPIECE_RETURN_IF_ERROR(socket_.Send(packet, -1, Soon()));
    v1::ToWorker answer;
    ONEPIECE_RETURN_IF_ERROR(socket_.Receive(answer, Soon()).status());
    if (!answer.has_step()) return absl::InternalError("no answer to a step");
    return std::move(*answer.mutable_step());
  }

  PacketSocket& socket_;
  const sdk::Stage& stage_;
  const message::Message& work_;
  const Together& together_;
  std::vector<message::Artifact> saved_;
  bool has_saved_ = false;
};

/// This worker's place among those of the other devices.
struct WorldSeat {
  std::unique_ptr<fabric::Fabric> fabric;
  std::unique_ptr<collectives::FabricWorld> world;

  static absl::StatusOr<std::unique_ptr<WorldSeat>> Open(const v1::OpenWorld& wanted) {
    auto seat = std::make_unique<WorldSeat>();
    ONEPIECE_ASSIGN_OR_RETURN(seat->fabric, fabric::Fabric::Open(wanted.fabric()));
    ONEPIECE_ASSIGN_OR_RETURN(
        const auto meeting,
        collectives::JoinRendezvous(wanted.rendezvous(), wanted.index(), wanted.workers()));
    ONEPIECE_ASSIGN_OR_RETURN(seat->world,
                              collectives::FabricWorld::Open(
                                  *seat->fabric, *meeting,
                                  {.index = wanted.index(), .workers = wanted.workers()}, Soon()));
    return seat;
  }
};

/// One stage of the instance, from its socket's opening to its end.
///
/// Threading: runs on a thread of its own.
class Session {
 public:
  Session(PacketSocket socket, Plugins& plugins) : socket_(std::move(socket)), plugins_(plugins) {}
  ~Session() {
    if (stage_ != nullptr) stage_->Unload();
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Returns why it ended.
  absl::Status Run() {
    for (;;) {
      v1::ToWorker request;
      ONEPIECE_ASSIGN_OR_RETURN(const FileDescriptor memory, socket_.Receive(request, Never()));
      v1::FromWorker answer;
      FileDescriptor outputs;
      if (request.has_load()) {
        *answer.mutable_loaded()->mutable_status() =
            ToWire(Guarded([&] { return Load(request.load(), *answer.mutable_loaded()); }));
      } else if (request.has_run()) {
        *answer.mutable_ran()->mutable_status() = ToWire(Guarded(
            [&] { return Compute(memory, request.run(), *answer.mutable_ran(), outputs); }));
      } else if (request.has_world()) {
        *answer.mutable_opened()->mutable_status() = ToWire(TakeSeat(request.world()));
      } else if (request.has_unload()) {
        seat_.reset();
        if (stage_ != nullptr) std::exchange(stage_, nullptr)->Unload();
        answer.mutable_unloaded();
      } else {
        return absl::InternalError("an instance asks for what this worker does not know");
      }
      if (stage_ != nullptr) ToWire(stage_->Metrics(), answer);
      ONEPIECE_RETURN_IF_ERROR(socket_.Send(answer, outputs.get(), Soon()));
    }
  }

 private:
  template <typename Work>
  static absl::Status Guarded(const Work& work) {
    try {
      return work();
    } catch (const std::exception& error) {
      return base::MakeError(absl::StatusCode::kInternal, "STAGE_FAILED", error.what());
    }
  }

  absl::Status Load(const v1::LoadStage& load, v1::StageLoaded& loaded) {
    if (stage_ != nullptr) std::exchange(stage_, nullptr)->Unload();
    ONEPIECE_ASSIGN_OR_RETURN(auto stage, plugins_.Create(load));
    std::optional<sdk::ParallelPlan> plan;
    if (load.has_plan()) plan = FromWire(load.plan());
    ONEPIECE_RETURN_IF_ERROR(stage->Load({.device = load.device(),
                                          .model_dir = load.model_dir(),
                                          .threads = load.threads(),
                                          .precision = load.precision(),
                                          .plan = plan}));
    stage_ = std::move(stage);
    plan_ = plan;
    ToWire(stage_->Info(), loaded);
    return absl::OkStatus();
  }

  absl::Status TakeSeat(const v1::OpenWorld& wanted) {
    seat_.reset();
    ONEPIECE_ASSIGN_OR_RETURN(seat_, WorldSeat::Open(wanted));
    return absl::OkStatus();
  }

  absl::StatusOr<Together> Join(const v1::RunStage& run, const base::Uid& job) {
    Together together{.plan = plan_,
                      .rank_timeout = std::chrono::milliseconds(run.group().rank_timeout_ms())};
    if (!run.has_group()) return together;
    if (seat_ == nullptr) return absl::FailedPreconditionError("no world is open");
    sdk::GroupDescriptor all{.job = job.ToString(), .epoch = run.group().epoch()};
    for (std::uint32_t worker = 0; worker < seat_->world->workers(); ++worker)
      all.members.push_back(worker);
    ONEPIECE_ASSIGN_OR_RETURN(together.group, seat_->world->MakeGroup(all));
    return together;
  }

  absl::Status Compute(const FileDescriptor& memory, const v1::RunStage& run, v1::StageRan& ran,
                       FileDescriptor& outputs) {
    if (stage_ == nullptr) return absl::FailedPreconditionError("no stage is loaded");
    const base::MonotonicTime now = base::SystemClock().Now();
    ONEPIECE_ASSIGN_OR_RETURN(message::Message work, Map(memory, run.bytes(), now));
    ONEPIECE_ASSIGN_OR_RETURN(const Together together, Join(run, work.header.uid));
    RemoteContext context(socket_, *stage_, work, together);
    absl::StatusOr<std::vector<message::Artifact>> made = stage_->Run(context, work.artifacts);
    if (!made.ok() && !context.has_saved()) return made.status();
    if (together.follows()) return made.status();
    ran.set_saved(context.has_saved());
    const message::Message result{.header = work.header,
                                  .artifacts = made.ok() ? *std::move(made) : context.saved()};
    ONEPIECE_ASSIGN_OR_RETURN(SharedMessage shared, Share(result, now));
    ran.set_bytes(shared.bytes);
    outputs = std::move(shared.memory);
    return made.status();
  }

  PacketSocket socket_;
  Plugins& plugins_;
  std::unique_ptr<sdk::Stage> stage_;
  std::optional<sdk::ParallelPlan> plan_;
  std::unique_ptr<WorldSeat> seat_;
};

}  // namespace

void Serve(PacketSocket control) {
  // Lives as long as the process, because threads of stages use it.
  static Plugins* const plugins = new Plugins;
  for (;;) {
    v1::ToWorker request;
    absl::StatusOr<FileDescriptor> socket = control.Receive(request, Never());
    if (!socket.ok() || !socket->valid()) ::_exit(0);
    std::thread([socket = PacketSocket(*std::move(socket))]() mutable {
      const absl::Status ended = Session(std::move(socket), *plugins).Run();
      if (!absl::IsUnavailable(ended))
        spdlog::error("a stage's session ends: {}", base::Message(ended));
    }).detach();
  }
}

}  // namespace onepiece::worker
