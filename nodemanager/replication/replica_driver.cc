#include "nodemanager/replication/replica_driver.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "cluster/base/check.h"
#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "nodemanager/replication/boot_clock.h"
#include "nodemanager/replication/codec.h"
#include "nodemanager/replication/group_probe.h"
#include "nodemanager/replication/log_errors.h"

namespace onepiece::nodemanager {
namespace {

constexpr auto kAskAgain = std::chrono::milliseconds(100);
constexpr base::Duration kBackoffMin = std::chrono::milliseconds(100);
constexpr base::Duration kBackoffMax = std::chrono::seconds(2);
// How many slots ListLog() can show.
constexpr std::size_t kTailSlots = 1000;
// A replica that applies nothing cannot shorten its log. It stores at most this many slots, and
// then lags until the leader has shortened its own log and sends its snapshot.
constexpr std::uint64_t kMaxHaltedSlots = 1 << 16;
// The log may grow to so many times snapshot_every while the state is large. A start applies it
// all again.
constexpr std::uint64_t kMaxSnapshotDelay = 16;
// A leader takes no more while so many entries wait for its own disk.
constexpr std::size_t kMaxUnwritten = 4096;
// At most this many requests wait for room in the log.
constexpr std::size_t kMaxDeferred = 4096;
// At most this many requests wait for the leader's read index. Each holds a thread of the server.
constexpr std::size_t kMaxIndexes = 1024;

}  // namespace

ReplicaDriver::ReplicaDriver(ReplicatedLogOptions options, LogQueue& queue, base::Clock& clock)
    : options_(std::move(options)),
      queue_(queue),
      clock_(clock),
      transport_(
          {.receive = [this](paxos::Message message) { queue_.PushMessage(std::move(message)); },
           .invited = [this](const std::string& cluster_id,
                             GroupId group) { queue_.PushInvitation(cluster_id, group); }},
          clock),
      hashes_(options_.paxos.version),
      applier_(options_.paxos.version, [this] { queue_.Wake(); },
               {.hashes = &hashes_, .applied = options_.observers.apply}),
      // Random, so that a late answer to an earlier process is not taken for that of a read of this
      // one.
      next_index_(base::RandomU64()),
      writer_([this] { queue_.Wake(); }, options_.observers.sync) {}

absl::Status ReplicaDriver::Open() {
  ONEPIECE_ASSIGN_OR_RETURN(store_, Store::Open(options_.data_dir));
  if (!store_->identity()) return absl::OkStatus();
  const base::MutexLock lock(replica_mutex_);
  identity_ = *store_->identity();
  ONEPIECE_RETURN_IF_ERROR(CheckIdentity());
  if (LoadCorruption()) return absl::OkStatus();
  state_ = store_->TakeState();
  const paxos::Snapshot& snapshot = state_->snapshot;
  if (snapshot.index == paxos::Slot{} || snapshot.state == nullptr || snapshot.state->empty())
    return absl::OkStatus();
  const absl::Status status = applier_.Open(snapshot);
  if (base::GetReason(status).reason == "NEWER_VERSION") {
    // The replica starts all the same, because its group may not choose anything without its vote.
    SetNewerVersion(absl::StrCat("the snapshot of slot ", snapshot.index.value));
    return absl::OkStatus();
  }
  return status.ok() ? status : base::Annotate(status, options_.data_dir);
}

absl::Status ReplicaDriver::CheckIdentity() const {
  if (identity_.name != options_.name) {
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "OTHER_REPLICA",
        absl::StrCat("the data folder ", options_.data_dir, " belongs to NodeManager '",
                     identity_.name, "', not '", options_.name,
                     "': start with that node id, or with another data folder"));
  }
  if (!options_.cluster_id.empty() && !identity_.cluster_id.empty() &&
      options_.cluster_id != identity_.cluster_id) {
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "OTHER_CLUSTER",
        absl::StrCat("the data folder ", options_.data_dir, " belongs to cluster '",
                     identity_.cluster_id, "', not '", options_.cluster_id, "'"));
  }
  return absl::OkStatus();
}

// Waits until every other seat has answered. An empty folder does not mean that there is no group,
// because the group's data may have been moved away. Silence does not mean it either.
bool ReplicaDriver::AwaitOthers(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const GroupProbe others = ProbeGroup(options_);
    if (others.have_group) {
      spdlog::warn("op=join detail=\"bootstrap was asked for, but the others have a group\"");
    }
    if (others.have_group || others.waits_for.empty()) {
      const absl::Status status = MakeReplica(!others.have_group);
      if (status.ok()) return true;
      const base::MutexLock lock(replica_mutex_);
      health_ = v1::ReplicaStatus::DISK_FAILED;
      health_detail_ = absl::StrCat(base::Message(status), "; then restart this NodeManager");
      spdlog::error("op=disk_failed error=\"{}\"", health_detail_);
      return false;
    }
    {
      const base::MutexLock lock(replica_mutex_);
      std::string detail = absl::StrCat(
          "it begins a group when all others have said that they have none: ", others.waits_for);
      if (detail != health_detail_) spdlog::warn("op=wait_to_begin detail=\"{}\"", detail);
      health_ = v1::ReplicaStatus::WAITING;
      health_detail_ = std::move(detail);
    }
    clock_.Pause(stop, kAskAgain);
  }
  return false;
}

absl::StatusOr<paxos::DurableState> ReplicaDriver::MakeNewReplica(bool begins) {
  paxos::DurableState state;
  state.replica = paxos::ReplicaId{base::RandomU64()};
  ReplicaIdentity identity = {
      .cluster_id = options_.cluster_id, .name = options_.name, .replica = state.replica};
  if (begins) {
    paxos::Members seats{options_.seats};
    if (seats.seats.size() <= 1)
      seats.seats = {{.name = options_.name, .address = replica_options_.address}};
    for (paxos::Seat& seat : seats.seats) {
      if (seat.name == options_.name) seat.address = replica_options_.address;
    }
    if (identity.cluster_id.empty())
      identity.cluster_id = base::Uid::GenerateRandom().ToString().substr(0, 8);
    identity.group = GroupId{base::RandomU64()};
    state = paxos::Replica::Bootstrap(state.replica, seats, options_.name);
    spdlog::info("op=bootstrap cluster={} group={} replica={} seats={}", identity.cluster_id,
                 identity.group.value, state.replica.value, seats.seats.size());
  } else {
    spdlog::info("op=join replica={} seats={}", state.replica.value, options_.seats.size());
  }
  ONEPIECE_RETURN_IF_ERROR(store_->Create(identity, state));
  const base::MutexLock lock(replica_mutex_);  // Status() may be asked already.
  identity_ = identity;
  health_ = v1::ReplicaStatus::OK;
  health_detail_.clear();
  return state;
}

absl::Status ReplicaDriver::Start(const std::string& address) {
  ONEPIECE_CHECK(!thread_.joinable());
  {
    const base::MutexLock lock(replica_mutex_);
    address_ = address;
  }
  replica_options_ = options_.paxos;
  replica_options_.name = options_.name;
  replica_options_.address = address;
  replica_options_.seed = base::RandomU64();
  if (fenced_) return absl::OkStatus();  // It only says why.
  // Asking the others may take long, so the thread does it and Start() returns.
  const bool alone = options_.seats.size() <= 1;
  // MakeReplica() ignores its argument when Open() has found a state, so only an empty folder can
  // begin a group.
  const bool asks = !state_ && !alone && options_.bootstrap;
  if (!asks) ONEPIECE_RETURN_IF_ERROR(MakeReplica(alone));
  applier_.Start();
  thread_ = std::jthread([this, asks](const std::stop_token& stop) {
    if (!asks || AwaitOthers(stop)) Run(stop);
  });
  return absl::OkStatus();
}

absl::Status ReplicaDriver::MakeReplica(bool begins) {
  if (!state_) {
    ONEPIECE_ASSIGN_OR_RETURN(state_, MakeNewReplica(begins));
  }
  Transport::Self self;
  {
    const base::MutexLock lock(replica_mutex_);
    id_ = identity_.replica;
    self = {.cluster_id = identity_.cluster_id,
            .name = options_.name,
            .address = address_,
            .replica = id_,
            .group = identity_.group};
  }
  transport_.Start(self);
  transport_.SetPeers({}, OtherAddresses());
  {
    const base::MutexLock lock(replica_mutex_);
    for (const paxos::AcceptedEntry& accepted : state_->log) KeepTail(accepted);
    replica_ = std::make_unique<paxos::Replica>(replica_options_, *std::move(state_), BootNow());
    if (halted_) replica_->RefuseToLead(BootNow(), out_);
    state_.reset();
  }
  // The queue opens last. It drops what comes earlier, when there was no replica to take it.
  queue_.Open();
  return absl::OkStatus();
}

// The queue is closed first, so that the thread answers every request that was let in. The Applier
// ends last, and answers what was chosen before.
void ReplicaDriver::Stop() {
  queue_.Close();
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  applier_.Stop();
  transport_.Stop();
}

ReplicaView ReplicaDriver::View() const {
  return {.replica = replica_.get(),
          .identity = identity_,
          .address = address_,
          .health = health_,
          .health_detail = health_detail_,
          .term = term_.load(),
          .tail = tail_};
}

void ReplicaDriver::See(absl::FunctionRef<void(const ReplicaView&)> see) const {
  const base::MutexLock lock(replica_mutex_);
  see(View());
}

absl::Status ReplicaDriver::NotLeader() const {
  const base::MutexLock lock(replica_mutex_);
  return NotLeader(View());
}

absl::Status ReplicaDriver::NotLeader(const ReplicaView& view) const {
  const paxos::Seat* leader =
      view.replica != nullptr ? view.replica->members().Find(view.replica->leader()) : nullptr;
  if (leader == nullptr || leader->replica == view.identity.replica) {
    return base::MakeError(
        absl::StatusCode::kUnavailable, "NOT_LEADER",
        absl::StrCat("NodeManager ", options_.name, " does not lead, and knows no leader",
                     view.health_detail.empty() ? "" : ": ", view.health_detail));
  }
  return base::MakeError(absl::StatusCode::kUnavailable, "NOT_LEADER",
                         absl::StrCat("NodeManager ", options_.name, " does not lead, ",
                                      leader->name, " at ", AddressOf(view, *leader), " does"),
                         {{"leader", AddressOf(view, *leader)}});
}

std::string ReplicaDriver::AddressOf(const ReplicaView& view, const paxos::Seat& seat) const {
  // After a restart a seat still has the address of the earlier start, until its replica has told
  // the leader.
  if (seat.replica == view.identity.replica) return view.address;
  const std::string found = transport_.FoundAt(seat.replica);
  return found.empty() ? seat.address : found;
}

std::vector<std::string> ReplicaDriver::OtherAddresses() const {
  std::vector<std::string> addresses;
  for (const paxos::Seat& seat : options_.seats) {
    if (seat.name != options_.name) addresses.push_back(seat.address);
  }
  return addresses;
}

void ReplicaDriver::Run(const std::stop_token& stop) {
  while (!stop.stop_requested() && !fenced_) {
    if (store_ == nullptr) {
      Recover(stop);
    } else {
      LogInputs inputs = WaitForInputs(stop);
      // Its answer to this replica itself is a part of this step.
      (void)FinishWrite();
      Step(std::move(inputs));
      CarryOut();
    }
    PublishFitness();
  }
  // The disk may be busy with a batch that nobody but the disk can end.
  if (writer_.busy()) (void)writer_.Wait();
  const absl::Status end =
      OutcomeUnknown(fenced_ ? "the state is corrupt" : "this NodeManager ends");
  FailWaiting(end);
  FailBegun(end);
  FailReads(NotLeader());
  FailSnapshots(end);
  AnswerRefused();
  for (const auto& request : queue_.Take().requests) request->Finish(NotLeader());
  // The replica may still be ready. Without `closing_` PublishRole() would begin another term after
  // it has told the end of this one.
  closing_ = true;
  {
    const base::MutexLock lock(replica_mutex_);
    term_ = LeaderTerm{};
  }
  PublishRole();
}

// Messages to itself, and Outputs that came outside of Step() (a snapshot, a refusal to lead), must
// not wait for the next message.
LogInputs ReplicaDriver::WaitForInputs(const std::stop_token& stop) {
  const bool writes = !writer_.busy() && (!out_.late.empty() || out_.writes.urgent());
  const bool at_once = !to_self_.empty() || !out_.early.empty() || out_.lost_leadership || writes;
  if (at_once) return queue_.Take();
  const paxos::Time deadline = [this] {
    const base::MutexLock lock(replica_mutex_);
    return replica_->next_deadline();
  }();
  return queue_.WaitAndTake(stop, deadline - BootNow());
}

void ReplicaDriver::Step(LogInputs inputs) {
  if (inputs.group != GroupId{}) JoinGroup(inputs.cluster_id, inputs.group);
  if (store_ == nullptr) {
    for (const auto& request : inputs.requests) request->Finish(NotLeader());
    return;
  }
  StepReplica(inputs);
  AnswerRefused();
}

void ReplicaDriver::StepReplica(LogInputs& inputs) {
  const base::MutexLock lock(replica_mutex_);
  const paxos::Time now = BootNow();
  TakeReport(now);
  for (const paxos::Message& message : std::exchange(to_self_, {}))
    replica_->Receive(now, message, out_);
  for (paxos::Message& message : inputs.messages) Receive(message, now);
  std::vector<std::shared_ptr<LogRequest>> requests = std::exchange(deferred_, {});
  requests.insert(requests.end(), inputs.requests.begin(), inputs.requests.end());
  for (std::shared_ptr<LogRequest>& request : requests) Begin(std::move(request), now);
  // Messages come before the tick. Otherwise a heartbeat that waited in the queue while the disk
  // synced would be too late, and each slow sync would begin an election.
  if (now >= replica_->next_deadline()) replica_->Tick(now, out_);
  // The term ends here, before the Applier gets the entries of this step. So no reader under this
  // term sees what another leader has done.
  if (out_.lost_leadership || !replica_->IsReady()) {
    term_ = LeaderTerm{};
    ready_at_ = {};
  }
  for (; tailed_ < out_.writes.accepted.size(); ++tailed_) KeepTail(out_.writes.accepted[tailed_]);
  if (const paxos::ReplicaId leader = replica_->leader(); leader != leader_) {
    leader_ = leader;
    if (leader != paxos::ReplicaId{}) ++leader_changes_;
    AskIndexesAgain();
  }
}

void ReplicaDriver::Begin(std::shared_ptr<LogRequest> request, paxos::Time now) {
  if (request->finished()) return;
  if (request->asks_index) return AskIndex(std::move(request));
  if (request->begin == nullptr) return BeginSnapshot(std::move(request));
  // Once a request found no room, the log counts as full for those after it. So appends keep their
  // order.
  const bool full = request->appends && (!deferred_.empty() || !applier_.HasRoom() ||
                                         out_.writes.accepted.size() >= kMaxUnwritten);
  const absl::StatusOr<paxos::Slot> slot = full ? LogBusy() : request->begin(*replica_, now, out_);
  // A request that finds no room waits and does not fail, because room comes as soon as followers
  // answer.
  if (!slot.ok() && request->appends && base::GetReason(slot.status()).reason == "LOG_BUSY" &&
      deferred_.size() < kMaxDeferred) {
    // Only a message, the Applier or the disk can make room. The step that follows tries the
    // request again.
    deferred_.push_back(std::move(request));
  } else if (!slot.ok()) {
    const bool leads = base::GetReason(slot.status()).reason != "NOT_LEADER";
    refused_.emplace_back(std::move(request), leads ? slot.status() : NotLeader(View()));
  } else if (*slot == paxos::Slot{}) {
    begun_.push_back(std::move(request));
  } else {
    waiting_.emplace(*slot, std::move(request));
  }
}

void ReplicaDriver::AskIndex(std::shared_ptr<LogRequest> request) {
  if (indexes_.size() >= kMaxIndexes)
    std::erase_if(indexes_, [](const auto& entry) { return entry.second->finished(); });
  const std::uint64_t number = next_index_++;
  if (indexes_.size() >= kMaxIndexes) {
    refused_.emplace_back(std::move(request), LogBusy());
  } else if (!replica_->AskReadIndex(number, out_)) {
    refused_.emplace_back(std::move(request), NotLeader(View()));
  } else {
    indexes_.emplace(number, std::move(request));
  }
}

// The leader that was asked may never answer. Whoever leads now answers as well, because the read
// is older than this question. While nobody leads, the reads wait for the next leader.
void ReplicaDriver::AskIndexesAgain() {
  std::erase_if(indexes_, [](const auto& entry) { return entry.second->finished(); });
  if (replica_->role() == paxos::Role::kLeader) {
    // Whoever asks again finds the leader here.
    for (auto& [number, request] : std::exchange(indexes_, {}))
      refused_.emplace_back(std::move(request), NotLeader(View()));
  }
  for (const auto& [number, request] : indexes_) (void)replica_->AskReadIndex(number, out_);
}

void ReplicaDriver::AnswerIndexes() {
  for (const paxos::ReadIndex& answer : std::exchange(out_.read_indexes, {})) {
    const auto asked = indexes_.find(answer.request);
    if (asked == indexes_.end()) continue;
    const std::shared_ptr<LogRequest> request = std::move(asked->second);
    indexes_.erase(asked);
    if (!answer.granted) {
      request->Finish(NotLeader());
      continue;
    }
    request->index = answer.index;
    request->Finish(v1::CommandResult());
  }
}

// Takes what the Applier has to say.
void ReplicaDriver::TakeReport(paxos::Time now) {
  const Applier::Report report = applier_.TakeReport();
  if (!report.newer.empty() && !halted_) {
    SetNewerVersion(report.newer);
    replica_->RefuseToLead(now, out_);
    FailSnapshots(base::MakeError(absl::StatusCode::kFailedPrecondition, "NEWER_VERSION", newer_));
  }
  if (!report.state) return;
  state_asked_ = false;
  replica_->TakeSnapshot(report.state->slot, report.state->bytes, out_);
  const paxos::Slot held =
      replica_->snapshot() != nullptr ? replica_->snapshot()->index : paxos::Slot{};
  for (auto& [slot, request] : std::exchange(snapshots_, {})) {
    if (slot <= held) {
      begun_.push_back(std::move(request));
    } else {
      // It was asked for after the Applier had looked.
      BeginSnapshot(std::move(request));
    }
  }
}

void ReplicaDriver::BeginSnapshot(std::shared_ptr<LogRequest> request) {
  if (request->finished()) return;
  if (halted_) {
    refused_.emplace_back(std::move(request), base::MakeError(absl::StatusCode::kFailedPrecondition,
                                                              "NEWER_VERSION", newer_));
    return;
  }
  const paxos::Slot applied = applier_.applied();
  if (replica_->snapshot() != nullptr && replica_->snapshot()->index >= applied)
    return begun_.push_back(std::move(request));
  snapshots_.emplace_back(applied, std::move(request));
  AskForState();
}

// While too much waits to be applied, an Accept counts as a heartbeat only. The leader goes on to
// hear this replica, and sends the entries again.
void ReplicaDriver::Receive(paxos::Message& message, paxos::Time now) {
  Heed(message, now);
  if (MustIgnore(message)) return;
  auto* accept = std::get_if<paxos::Accept>(&message.body);
  if (accept != nullptr && !applier_.HasRoom()) accept->entries.clear();
  replica_->Receive(now, message, out_);
}

bool ReplicaDriver::MustIgnore(const paxos::Message& message) const {
  const auto* accept = std::get_if<paxos::Accept>(&message.body);
  return halted_ && accept != nullptr && !accept->entries.empty() &&
         replica_->last_slot() >= replica_->first_slot() + kMaxHaltedSlots;
}

// Drops snapshots that the receiver would refuse. A refusal would break the stream, and with it the
// messages behind. That replica must wait until the state is smaller.
void ReplicaDriver::DropTooLarge(std::vector<paxos::Message>& messages) {
  std::erase_if(messages, [](const paxos::Message& message) {
    const auto* install = std::get_if<paxos::InstallSnapshot>(&message.body);
    if (install == nullptr || install->snapshot == nullptr || install->snapshot->state == nullptr ||
        install->snapshot->state->size() <= kMaxSnapshotBytes)
      return false;
    spdlog::error(
        "op=snapshot error=\"the state has {} bytes, more than can be sent: delete "
        "workflows\"",
        install->snapshot->state->size());
    return true;
  });
}

void ReplicaDriver::KeepTail(const paxos::AcceptedEntry& accepted) {
  tail_.insert_or_assign(tail_.end(), accepted.slot, accepted);
  if (tail_.size() > kTailSlots) tail_.erase(tail_.begin());
}

void ReplicaDriver::JoinGroup(const std::string& cluster_id, GroupId group) {
  {
    const base::MutexLock lock(replica_mutex_);
    if (identity_.group != GroupId{}) return;
  }
  if (const absl::Status status = store_->SetGroup(cluster_id, group); !status.ok())
    return FailDisk(status);
  {
    const base::MutexLock lock(replica_mutex_);
    identity_.cluster_id = cluster_id;
    identity_.group = group;
  }
  transport_.SetGroup(cluster_id, group);
  spdlog::info("op=joined cluster={} group={} replica={}", cluster_id, group.value, id_.value);
}

// Does what paxos::Outputs asks of its caller. What is chosen need not wait for this disk, because
// a majority's disks hold it. While a write is under way, what needs the next one waits with it.
void ReplicaDriver::CarryOut() {
  if (store_ == nullptr) return;
  DropTooLarge(out_.early);
  StampHashes(out_.early);
  transport_.Send(std::exchange(out_.early, {}));
  FeedApplier();
  AnswerIndexes();
  // FeedApplier() comes first. It takes the requests whose commands this step still chose, so only
  // the rest has an unknown outcome.
  if (std::exchange(out_.lost_leadership, false))
    FailWaiting(OutcomeUnknown("the leadership was lost"));
  if (!FinishWrite() || !BeginWrite()) return;
  UpdatePeers();
  PublishRole();
  pending_ = waiting_.size() + deferred_.size();
  FenceIfOdd();
  AskForDueSnapshot();
}

bool ReplicaDriver::FinishWrite() {
  if (!writer_.busy()) return true;
  std::optional<absl::Status> result = writer_.TakeResult();
  // A leader whose disk hangs must not go on for long. While this thread waits, the others miss its
  // heartbeats, and elect another one.
  if (!result && BootNow() - write_.since >= options_.paxos.election_min) result = writer_.Wait();
  if (!result) return true;
  if (!result->ok()) {
    FailDisk(*result);
    return false;
  }
  // Only a write that succeeded shows that the disk is well again. A full disk can be opened, and
  // fails at the next write.
  if (write_.urgent) backoff_ = kBackoffMin;
  SendLate(std::exchange(write_.late, {}), std::exchange(write_.begun, {}));
  return true;
}

bool ReplicaDriver::BeginWrite() {
  if (writer_.busy()) return true;
  write_.late = std::exchange(out_.late, {});
  write_.begun = std::exchange(begun_, {});
  write_.urgent = out_.writes.urgent();
  write_.since = BootNow();
  tailed_ = 0;
  paxos::Writes writes = std::exchange(out_.writes, {});
  bool leads = false;
  {
    const base::MutexLock lock(replica_mutex_);
    leads = replica_->role() == paxos::Role::kLeader;
  }
  writer_.Begin(*store_, std::move(writes), leads && write_.urgent);
  return FinishWrite();
}

void ReplicaDriver::SendLate(std::vector<paxos::Message> late,
                             std::vector<std::shared_ptr<LogRequest>> begun) {
  std::vector<paxos::Message> to_others;
  for (paxos::Message& message : late) {
    (message.to == id_ ? to_self_ : to_others).push_back(std::move(message));
  }
  StampHashes(to_others);
  transport_.Send(std::move(to_others));
  for (const auto& request : begun) request->Finish(v1::CommandResult());
}

void ReplicaDriver::UpdatePeers() {
  {
    const base::MutexLock lock(replica_mutex_);
    if (replica_->members() == members_) return;
    members_ = replica_->members();
  }
  transport_.SetPeers(members_, OtherAddresses());
}

void ReplicaDriver::AskForDueSnapshot() {
  if (halted_ || state_asked_ || fenced_) return;
  const paxos::Slot applied = applier_.applied();
  {
    const base::MutexLock lock(replica_mutex_);
    const auto& snapshot = replica_->snapshot();
    const paxos::Slot last = snapshot ? snapshot->index : paxos::Slot{};
    if (applied < last + options_.snapshot_every) return;
    // A snapshot writes the whole state. It waits until the log has grown by as much, so that at
    // most half of what is written are snapshots.
    const std::size_t state_bytes = snapshot && snapshot->state ? snapshot->state->size() : 0;
    const bool long_log = applied >= last + options_.snapshot_every * kMaxSnapshotDelay;
    if (fed_bytes_ < state_bytes && !long_log) return;
    // After a disk failure the replica may not know yet that it is chosen.
    if (applied > replica_->chosen()) return;
  }
  AskForState();
}

void ReplicaDriver::AskForState() {
  state_asked_ = true;
  fed_bytes_ = 0;
  applier_.AskForState();
}

// Hands over what is chosen, with the requests that wait for it.
void ReplicaDriver::FeedApplier() {
  if (out_.restore == nullptr && out_.chosen.empty()) return;
  std::vector<Applier::Task> tasks;
  tasks.reserve(out_.chosen.size() + 1);
  if (out_.restore != nullptr) tasks.push_back({.restore = std::move(out_.restore)});
  for (paxos::ChosenEntry& chosen : out_.chosen) {
    fed_bytes_ += chosen.entry.bytes();
    std::vector<std::shared_ptr<LogRequest>> requests = TakeWaiting(chosen);
    tasks.push_back({.chosen = std::move(chosen), .requests = std::move(requests)});
  }
  out_.restore.reset();
  out_.chosen.clear();
  applier_.Push(std::move(tasks));
}

std::vector<std::shared_ptr<LogRequest>> ReplicaDriver::TakeWaiting(
    const paxos::ChosenEntry& chosen) {
  std::vector<std::shared_ptr<LogRequest>> taken;
  const auto [begin, end] = waiting_.equal_range(chosen.slot);
  for (auto it = begin; it != end;) {
    // After a lost leadership the slot may hold another leader's entry. A command of ours is
    // recognised by its payload, which is the same object. A no-op is like any other, so it is not
    // trusted then.
    const bool ours = it->second->payload == chosen.entry.payload &&
                      (it->second->payload != nullptr || !out_.lost_leadership);
    if (ours) taken.push_back(std::move(it->second));
    it = ours ? waiting_.erase(it) : std::next(it);
  }
  return taken;
}

void ReplicaDriver::SetNewerVersion(const std::string& what) {
  halted_ = true;
  newer_ = absl::StrCat(what, " is newer than this program, which applies version ",
                        options_.paxos.version, ": update it");
  health_ = v1::ReplicaStatus::NEWER_VERSION;
  health_detail_ = newer_;
  spdlog::error("op=newer_version error=\"{}\"", health_detail_);
}

// A replica must not be stepped again after a write that failed, because nobody knows what is
// durable. Recover() makes a new one from the disk.
void ReplicaDriver::FailDisk(const absl::Status& why) {
  ++disk_failures_;
  {
    const base::MutexLock lock(replica_mutex_);
    if (health_detail_ != base::Message(why))
      spdlog::error("op=disk_failed error=\"{}\"", base::Message(why));
    health_ = v1::ReplicaStatus::DISK_FAILED;
    health_detail_ = base::Message(why);
    term_ = LeaderTerm{};
    ready_at_ = {};
    replica_.reset();
  }
  store_.reset();
  out_ = {};
  tailed_ = 0;
  to_self_.clear();
  FailWaiting(OutcomeUnknown("the disk failed"));
  FailBegun(OutcomeUnknown("the disk failed"));
  FailReads(NotLeader());
  FailSnapshots(OutcomeUnknown("the disk failed"));
  AnswerRefused();
  PublishRole();
}

void ReplicaDriver::Recover(const std::stop_token& stop) {
  clock_.Pause(stop, backoff_);
  backoff_ = std::clamp(backoff_ * 2, kBackoffMin, kBackoffMax);
  for (const auto& request : queue_.Take().requests) request->Finish(NotLeader());
  if (stop.stop_requested()) return;
  absl::StatusOr<std::unique_ptr<Store>> store = Store::Open(options_.data_dir);
  if (store.ok() && (!(*store)->identity() || (*store)->identity()->replica != id_)) {
    store =
        base::MakeError(absl::StatusCode::kDataLoss, "OTHER_REPLICA",
                        absl::StrCat(options_.data_dir,
                                     " is empty, or another's, now: ", "restart this NodeManager"));
  }
  const base::MutexLock lock(replica_mutex_);
  if (!store.ok()) {
    health_detail_ = base::Message(store.status());
    return;
  }
  store_ = *std::move(store);
  // The disk failed while JoinGroup() wrote, and the write is durable after all.
  if (store_->identity()->group != identity_.group) {
    identity_ = *store_->identity();
    transport_.SetGroup(identity_.cluster_id, identity_.group);
  }
  paxos::DurableState state = store_->TakeState();
  std::vector<Applier::Task> restore;
  if (state.snapshot.state != nullptr && !state.snapshot.state->empty())
    restore.push_back({.restore = std::make_shared<const paxos::Snapshot>(state.snapshot)});
  applier_.Push(std::move(restore));
  for (const paxos::AcceptedEntry& accepted : state.log) KeepTail(accepted);
  replica_ = std::make_unique<paxos::Replica>(replica_options_, std::move(state), BootNow());
  if (halted_) replica_->RefuseToLead(BootNow(), out_);
  health_ = halted_ ? v1::ReplicaStatus::NEWER_VERSION : v1::ReplicaStatus::OK;
  health_detail_ = newer_;
  spdlog::info("op=disk_opened applied={}", applier_.applied().value);
}

// Requests that wait for a slot may still take effect, so they get `why`. Deferred ones never
// entered the log.
void ReplicaDriver::FailWaiting(const absl::Status& why) {
  for (const auto& [slot, request] : std::exchange(waiting_, {})) request->Finish(why);
  for (const auto& request : std::exchange(deferred_, {})) request->Finish(NotLeader());
}

// Those that wait for the disk, too.
void ReplicaDriver::FailBegun(const absl::Status& why) {
  for (const auto& request : std::exchange(begun_, {})) request->Finish(why);
  for (const auto& request : std::exchange(write_.begun, {})) request->Finish(why);
}

void ReplicaDriver::FailReads(const absl::Status& why) {
  for (const auto& [number, request] : std::exchange(indexes_, {})) request->Finish(why);
}

void ReplicaDriver::FailSnapshots(const absl::Status& why) {
  for (auto& [slot, request] : std::exchange(snapshots_, {}))
    refused_.emplace_back(std::move(request), why);
}

void ReplicaDriver::AnswerRefused() {
  for (const auto& [request, why] : std::exchange(refused_, {})) request->Finish(why);
}

// A ready leader gets its term only when all is applied that was chosen when it became ready. So
// whoever reads under that term sees all that earlier leaders chose.
void ReplicaDriver::PublishRole() {
  LeaderTerm term;
  std::uint64_t round = 0;
  {
    const base::MutexLock lock(replica_mutex_);
    if (term_.load() == LeaderTerm{} && replica_ != nullptr && replica_->IsReady() && !closing_) {
      if (ready_at_ == paxos::Slot{}) ready_at_ = replica_->chosen();
      if (applier_.WakeAt(ready_at_)) term_ = ++last_term_;
    }
    term = term_.load();
    if (replica_ != nullptr) round = replica_->promised().round;
  }
  if (term == told_term_) return;
  // A leadership that was lost and won again within one round is told as an end and a beginning.
  if (told_term_ != LeaderTerm{}) {
    spdlog::info("op=follow");
    if (on_role_) on_role_(false);
  }
  told_term_ = term;
  if (term == LeaderTerm{}) return;
  spdlog::info("op=lead round={} applied={}", round, applier_.applied().value);
  if (on_role_) on_role_(true);
}

}  // namespace onepiece::nodemanager
