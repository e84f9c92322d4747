#include "stages/worker/collaboration.h"

#include <poll.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cluster/base/status.h"
#include "cluster/fabric/fabric.h"
#include "onepiece/v1/worker.pb.h"
#include "stages/collectives/rendezvous.h"
#include "stages/collectives/socket_rendezvous.h"
#include "stages/runtime/stage_runner.h"
#include "stages/sdk/device_name.h"
#include "stages/worker/stage_link.h"
#include "stages/worker/wire.h"

namespace onepiece::worker {
namespace {

namespace fs = std::filesystem;
using Artifacts = std::vector<message::Artifact>;

/// How long the workers may take to open their ways to each other. Scaled.
constexpr auto kWorldLimit = std::chrono::seconds(30);
/// How long a rank that the others have given up may take to answer all the same. Scaled.
constexpr auto kGrace = std::chrono::seconds(1);

/// A folder that only this user can enter, for the socket of a meeting. Removed at the end.
class MeetingFolder {
 public:
  static absl::StatusOr<std::unique_ptr<MeetingFolder>> Make() {
    std::string name = (fs::temp_directory_path() / "onepiece-workers-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      return base::MakeError(absl::StatusCode::kResourceExhausted, "NO_FOLDER",
                             "no folder " + name + " for the workers of a group");
    }
    return std::unique_ptr<MeetingFolder>(new MeetingFolder(std::move(name)));
  }
  ~MeetingFolder() {
    std::error_code ignored;
    fs::remove_all(name_, ignored);
  }
  MeetingFolder(const MeetingFolder&) = delete;
  MeetingFolder& operator=(const MeetingFolder&) = delete;
  [[nodiscard]] std::string socket() const { return name_ + "/meeting"; }

 private:
  explicit MeetingFolder(std::string name) : name_(std::move(name)) {}
  const std::string name_;
};

/// What has come from the workers of one run.
struct Answers {
  explicit Answers(std::size_t ranks) : statuses(ranks), until(ranks, base::MonotonicTime::max()) {}
  /// By rank; none: it computes.
  std::vector<std::optional<absl::Status>> statuses;
  v1::StageRan first;  ///< The answer of rank 0, and what it brought.
  FileDescriptor memory;
  /// When each is given up, by rank.
  std::vector<base::MonotonicTime> until;

  void Limit(std::size_t rank, base::MonotonicTime time) {
    until[rank] = std::min(until[rank], time);
  }
  [[nodiscard]] bool all() const {
    return std::ranges::all_of(statuses, [](const auto& status) { return status.has_value(); });
  }
};

class Collaborators final : public sdk::Stage {
 public:
  Collaborators(Workers& workers, StageName name) : workers_(workers), name_(std::move(name)) {}

  sdk::StageInfo Info() const override { return links_.front()->info(); }
  absl::Status Load(const sdk::LoadOptions& options) override;
  absl::StatusOr<Artifacts> Run(sdk::StageContext& context, const Artifacts& inputs) override;
  void Unload() override {
    for (const auto& link : links_) link->Unload();
    has_world_ = false;
    DropStale();
  }
  std::vector<sdk::StageMetric> Metrics() const override { return links_.front()->metrics(); }

 private:
  /// Loads the stage where it is not, and opens the world.
  absl::Status Open();
  absl::Status OpenWorld();
  absl::Status Start(sdk::StageContext& context, const Artifacts& inputs);
  /// Waits for all answers, and gives up those that do not come.
  void Gather(sdk::StageContext& context, Answers& answers);
  void GiveUp(Answers& answers, const absl::Status& unwanted, base::MonotonicTime now);
  /// Takes what a worker sends.
  void Take(std::size_t rank, sdk::StageContext& context, Answers& answers);
  void Answer(std::size_t rank, absl::Status status, Answers& answers);
  /// Waits for the first worker's state.
  absl::StatusOr<FileDescriptor> AwaitSaved(v1::FromWorker& packet);
  absl::Status Lost(std::size_t rank, const absl::Status& why);
  /// Removes the shared memory of workers that were killed.
  void DropStale() const { (void)fabric::UnlinkStale(workers_.options().shared_memory); }
  absl::StatusOr<Artifacts> Result(const Answers& answers);

  Workers& workers_;
  const StageName name_;
  sdk::LoadOptions options_;
  std::vector<std::unique_ptr<StageLink>> links_;  // By rank.
  std::vector<std::string> devices_;
  bool has_world_ = false;
  std::uint64_t epoch_ = 0;
};

/// The group moves host memory, and a CUDA device's stage gives it memory of the device.
absl::Status CheckHostMemory(const std::vector<std::string>& devices) {
  for (const std::string& device : devices) {
    if (!sdk::CudaIndex(device).has_value()) continue;
    return base::MakeError(absl::StatusCode::kUnimplemented, "NO_COLLECTIVES",
                           "device " + device +
                               ": workers on CUDA devices cannot compute a job together yet; say "
                               "mode: individual, and each computes jobs of its own",
                           {{"device", device}});
  }
  return absl::OkStatus();
}

absl::Status Collaborators::Load(const sdk::LoadOptions& options) {
  options_ = options;
  devices_ = absl::StrSplit(options.device, ',');
  ONEPIECE_RETURN_IF_ERROR(CheckHostMemory(devices_));
  if (std::set(devices_.begin(), devices_.end()).size() < devices_.size()) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_DEVICES",
                           "devices " + options.device +
                               ": workers that compute jobs together have a device each; one is "
                               "there twice",
                           {{"devices", options.device}});
  }
  links_.clear();
  for (std::size_t i = 0; i < devices_.size(); ++i)
    links_.push_back(std::make_unique<StageLink>(workers_, name_));
  return Open();
}

absl::Status Collaborators::Open() {
  std::vector<std::future<absl::Status>> loading;
  for (std::size_t rank = 0; rank < links_.size(); ++rank) {
    if (links_[rank]->is_open()) continue;
    has_world_ = false;
    sdk::LoadOptions options = options_;
    options.device = devices_[rank];
    loading.push_back(std::async(
        [&link = *links_[rank], options = std::move(options)] { return link.Open(options); }));
  }
  absl::Status loaded;
  for (std::future<absl::Status>& one : loading) loaded.Update(one.get());
  ONEPIECE_RETURN_IF_ERROR(loaded);
  return has_world_ ? absl::OkStatus() : OpenWorld();
}

absl::Status Collaborators::OpenWorld() {
  const auto workers = static_cast<std::uint32_t>(links_.size());
  DropStale();
  ONEPIECE_ASSIGN_OR_RETURN(const auto folder, MeetingFolder::Make());
  ONEPIECE_ASSIGN_OR_RETURN(const auto hub,
                            collectives::RendezvousHub::Listen(folder->socket(), workers));
  v1::ToWorker request;
  v1::OpenWorld& world = *request.mutable_world();
  world.set_rendezvous(folder->socket());
  world.set_workers(workers);
  world.set_fabric("shm://" + workers_.options().shared_memory);
  const base::MonotonicTime deadline = base::SystemClock().Now() + base::Scaled(kWorldLimit);
  for (std::uint32_t index = 0; index < workers; ++index) {
    world.set_index(index);
    if (const absl::Status sent = links_[index]->Send(request); !sent.ok())
      return Lost(index, sent);
  }
  absl::Status opened;
  for (std::uint32_t index = 0; index < workers; ++index) {
    v1::FromWorker answer;
    const auto told = links_[index]->Receive(answer, deadline + base::Scaled(kWorldLimit));
    opened.Update(told.ok() ? FromWire(answer.opened().status()) : Lost(index, told.status()));
  }
  has_world_ = opened.ok();
  return opened;
}

absl::StatusOr<Artifacts> Collaborators::Run(sdk::StageContext& context, const Artifacts& inputs) {
  ONEPIECE_RETURN_IF_ERROR(Open());
  Answers answers(links_.size());
  ONEPIECE_RETURN_IF_ERROR(Start(context, inputs));
  Gather(context, answers);
  return Result(answers);
}

absl::Status Collaborators::Start(sdk::StageContext& context, const Artifacts& inputs) {
  // Written once, and mapped by every worker.
  ONEPIECE_ASSIGN_OR_RETURN(const SharedMessage work, ShareWork(context, name_.stage, inputs));
  v1::ToWorker request;
  request.mutable_run()->set_bytes(work.bytes);
  v1::WorkerGroup& group = *request.mutable_run()->mutable_group();
  group.set_epoch(++epoch_);
  group.set_rank_timeout_ms(
      std::chrono::ceil<std::chrono::milliseconds>(base::Scaled(workers_.options().rank_timeout))
          .count());
  for (std::size_t rank = 0; rank < links_.size(); ++rank) {
    if (const absl::Status sent = links_[rank]->Send(request, work.memory.get()); !sent.ok()) {
      // The others have begun, and wait for it. Their links are opened again with the next run.
      const absl::Status lost = Lost(rank, sent);
      for (std::size_t other = 0; other < rank; ++other) (void)Lost(other, lost);
      return lost;
    }
  }
  return absl::OkStatus();
}

void Collaborators::Gather(sdk::StageContext& context, Answers& answers) {
  absl::Status unwanted;
  while (!answers.all()) {
    std::vector<pollfd> waited;
    std::vector<std::size_t> ranks;
    for (std::size_t rank = 0; rank < links_.size(); ++rank) {
      if (answers.statuses[rank].has_value()) continue;
      waited.push_back({.fd = links_[rank]->fd(), .events = POLLIN, .revents = 0});
      ranks.push_back(rank);
    }
    ::poll(waited.data(), waited.size(), static_cast<int>(kLook.count()));
    for (std::size_t i = 0; i < waited.size(); ++i) {
      // A step that the first worker reports may end with the answer of another one.
      if (waited[i].revents != 0 && !answers.statuses[ranks[i]].has_value())
        Take(ranks[i], context, answers);
    }
    const base::MonotonicTime now = base::SystemClock().Now();
    if (unwanted.ok()) {
      unwanted = context.Check();
      for (std::size_t rank = 0; rank < links_.size() && !unwanted.ok(); ++rank)
        answers.Limit(rank, now + base::Scaled(workers_.options().stop_limit));
    }
    GiveUp(answers, unwanted, now);
  }
}

void Collaborators::GiveUp(Answers& answers, const absl::Status& unwanted,
                           base::MonotonicTime now) {
  for (std::size_t rank = 0; rank < links_.size(); ++rank) {
    if (answers.statuses[rank].has_value() || now < answers.until[rank]) continue;
    const absl::Status lost =
        Lost(rank, absl::DeadlineExceededError("it did not come to a collective call"));
    answers.statuses[rank] = unwanted.ok() ? lost : unwanted;
  }
}

void Collaborators::Take(std::size_t rank, sdk::StageContext& context, Answers& answers) {
  v1::FromWorker packet;
  absl::StatusOr<FileDescriptor> memory =
      links_[rank]->Receive(packet, base::SystemClock().Now() + kLook);
  if (!memory.ok()) return Answer(rank, Lost(rank, memory.status()), answers);
  if (packet.has_ran()) {
    Answer(rank, FromWire(packet.ran().status()), answers);
    if (rank != 0) return;
    answers.first = std::move(*packet.mutable_ran());
    answers.memory = *std::move(memory);
    return;
  }
  if (!packet.has_step() || rank != 0)
    return Answer(rank, Lost(rank, absl::InternalError("it says what it may not")), answers);
  const absl::Status next = TakeStep(*links_[0], context, packet.step(),
                                     [&](v1::FromWorker& ran) { return AwaitSaved(ran); });
  // Either the link is lost, or the state is saved and the run has ended.
  if (!next.ok()) Answer(0, next, answers);
}

absl::StatusOr<FileDescriptor> Collaborators::AwaitSaved(v1::FromWorker& packet) {
  absl::StatusOr<FileDescriptor> memory = links_[0]->Receive(
      packet, base::SystemClock().Now() + base::Scaled(workers_.options().stop_limit));
  if (!memory.ok()) return Lost(0, memory.status());
  return memory;
}

void Collaborators::Answer(std::size_t rank, absl::Status status, Answers& answers) {
  if (!status.ok()) {
    // The rank that a collective call has missed is silent. The others come to that answer too,
    // each with its next call.
    const base::MonotonicTime soon = base::SystemClock().Now() + base::Scaled(kGrace);
    const auto missed = static_cast<std::size_t>(sdk::FailedRank(status));
    if (missed < links_.size()) answers.Limit(missed, soon);
    for (std::size_t other = 0; other < links_.size(); ++other)
      answers.Limit(other, soon + base::Scaled(workers_.options().rank_timeout));
  }
  answers.statuses[rank] = std::move(status);
}

absl::Status Collaborators::Lost(std::size_t rank, const absl::Status& why) {
  StageLink& link = *links_[rank];
  if (!link.has_process()) return why;
  const absl::Status lost = link.Lose(why);
  return base::MakeError(lost.code(), runtime::kWorkerLost,
                         absl::StrCat("rank ", rank, ": ", base::Message(lost)),
                         {{"rank", absl::StrCat(rank)}, {"device", devices_[rank]}});
}

absl::StatusOr<Artifacts> Collaborators::Result(const Answers& answers) {
  // A worker that is missing in a collective call ends the calls of the others. What happened to
  // that one says more than what they say.
  const absl::Status* first = nullptr;
  const absl::Status* of_group = nullptr;
  for (const auto& status : answers.statuses) {
    if (status->ok()) continue;
    has_world_ = has_world_ && sdk::FailedRank(*status) < 0;
    const bool echo =
        sdk::FailedRank(*status) >= 0 && base::GetReason(*status).reason != runtime::kWorkerLost;
    const absl::Status*& found = echo ? of_group : first;
    if (found == nullptr) found = &*status;
  }
  if (first != nullptr) return *first;
  if (of_group != nullptr) {
    // Nobody died, and nobody failed but for waiting: the rank that they name is to blame.
    return base::MakeError(absl::StatusCode::kUnavailable, runtime::kWorkerLost,
                           base::Message(*of_group),
                           {{"rank", absl::StrCat(sdk::FailedRank(*of_group))}});
  }
  return TakeOutputs(answers.first, answers.memory);
}

}  // namespace

std::unique_ptr<sdk::Stage> CollaborativeStage(Workers& workers, StageName name) {
  return std::make_unique<Collaborators>(workers, std::move(name));
}

}  // namespace onepiece::worker
