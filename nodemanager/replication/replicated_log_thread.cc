// The thread of a ReplicatedLog. Each round takes what came in, steps the replica, and carries out
// its Outputs: early messages, the disk, late messages, the state machine, the answers.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/mutex.h"
#include "nodemanager/replication/boot_clock.h"
#include "nodemanager/replication/codec.h"
#include "nodemanager/replication/replicated_log.h"

namespace onepiece::nodemanager {
namespace {

constexpr base::Duration kBackoffMin = std::chrono::milliseconds(100);
constexpr base::Duration kBackoffMax = std::chrono::seconds(2);
// How many slots ListLog() can show.
constexpr std::size_t kTailSlots = 1000;
// A replica that applies nothing cannot shorten its log. It stores at most this many slots, and
// then lags until the leader has shortened its own log and sends its snapshot.
constexpr paxos::Slot kMaxHaltedSlots = 1 << 16;
// At most this many requests wait for room in the log.
constexpr std::size_t kMaxDeferred = 4096;

absl::Status Lost(std::string_view why) {
  return base::MakeError(absl::StatusCode::kUnavailable, "OUTCOME_UNKNOWN",
                         absl::StrCat("the command may still be applied (", std::string(why),
                                      "): ask again with the same request_id"));
}

absl::Status LogBusy() {
  return base::MakeError(absl::StatusCode::kResourceExhausted, "LOG_BUSY",
                         "too many commands wait to be chosen: try again later");
}

void Pause(const std::stop_token& stop, base::Duration pause) {
  base::Mutex mutex;
  base::CondVar never;
  base::MutexLock lock(mutex);
  never.WaitFor(lock, stop, pause, [] { return false; });
}

}  // namespace

void ReplicatedLog::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    if (replica_ == nullptr) {
      Recover(stop);
      continue;
    }
    Step(WaitForInputs(stop));
    CarryOut();
  }
  FailWaiting(Lost("this NodeManager ends"));
  const Inputs rest = [this] {
    const base::MutexLock lock(queue_mutex_);
    return std::exchange(queue_, {});
  }();
  for (const auto& request : rest.requests) request->answer.set_value(NotLeader());
  {
    const base::MutexLock lock(replica_mutex_);
    term_ = 0;
    closing_ = true;
  }
  PublishRole();
}

// Messages to itself, and Outputs that came outside of Step() (a snapshot, a refusal to lead), must
// not wait for the next message.
ReplicatedLog::Inputs ReplicatedLog::WaitForInputs(const std::stop_token& stop) {
  const bool at_once = !to_self_.empty() || !out_.early.empty() || !out_.late.empty() ||
                       out_.writes.urgent() || out_.lost_leadership;
  base::MutexLock lock(queue_mutex_);
  if (!at_once) {
    queued_.WaitFor(lock, stop, replica_->next_deadline() - BootNow(), [this] {
      return !queue_.messages.empty() || !queue_.requests.empty() || queue_.group != 0;
    });
  }
  return std::exchange(queue_, {});
}

void ReplicatedLog::Step(Inputs inputs) {
  if (inputs.group != 0) JoinGroup(inputs.cluster_id, inputs.group);
  if (replica_ == nullptr) {
    for (const auto& request : inputs.requests) request->answer.set_value(NotLeader());
    return;
  }
  const base::MutexLock lock(replica_mutex_);
  const paxos::Time now = BootNow();
  for (const paxos::Message& message : std::exchange(to_self_, {}))
    replica_->Receive(now, message, out_);
  for (const paxos::Message& message : inputs.messages) {
    if (!MustIgnore(message)) replica_->Receive(now, message, out_);
  }
  std::vector<std::shared_ptr<Request>> requests = std::exchange(deferred_, {});
  requests.insert(requests.end(), inputs.requests.begin(), inputs.requests.end());
  for (std::shared_ptr<Request>& request : requests) Begin(std::move(request), now);
  if (now >= replica_->next_deadline()) replica_->Tick(now, out_);
  // The term ends here, before the entries of this step are applied. So no reader under this term
  // sees what another leader has done.
  if (out_.lost_leadership || !replica_->IsReady()) term_ = 0;
  KeepTail(out_.writes.accepted);
  if (const paxos::ReplicaId leader = replica_->leader(); leader != leader_) {
    leader_ = leader;
    if (leader != 0) ++leader_changes_;
  }
}

void ReplicatedLog::Begin(std::shared_ptr<Request> request, paxos::Time now) {
  if (request->abandoned) return;
  // Once a request found no room, the log counts as full for those after it. So appends keep their
  // order.
  const bool full = request->appends && !deferred_.empty();
  const absl::StatusOr<paxos::Slot> slot = full ? LogBusy() : request->begin(now, out_);
  // A request that finds no room waits and does not fail, because room comes as soon as followers
  // answer.
  if (!slot.ok() && request->appends && base::GetReason(slot.status()).reason == "LOG_BUSY" &&
      deferred_.size() < kMaxDeferred) {
    // Only a message can make room, and the step that takes it tries the request again.
    deferred_.push_back(std::move(request));
  } else if (!slot.ok()) {
    request->answer.set_value(
        base::GetReason(slot.status()).reason == "NOT_LEADER" ? NotLeaderLocked() : slot.status());
  } else if (*slot == 0) {
    begun_.push_back(std::move(request));
  } else {
    waiting_.emplace(*slot, std::move(request));
  }
}

bool ReplicatedLog::MustIgnore(const paxos::Message& message) const {
  const auto* accept = std::get_if<paxos::Accept>(&message.body);
  return halted_ && accept != nullptr && !accept->entries.empty() &&
         replica_->last_slot() >= replica_->first_slot() + kMaxHaltedSlots;
}

// Drops snapshots that the receiver would refuse. A refusal would break the stream, and with it the
// messages behind. That replica must wait until the state is smaller.
void ReplicatedLog::DropTooLarge(std::vector<paxos::Message>& messages) const {
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

void ReplicatedLog::KeepTail(const std::vector<paxos::AcceptedEntry>& accepted) {
  for (const paxos::AcceptedEntry& entry : accepted) tail_[entry.slot] = entry;
  while (tail_.size() > kTailSlots) tail_.erase(tail_.begin());
}

void ReplicatedLog::JoinGroup(const std::string& cluster_id, std::uint64_t group) {
  if (identity_.group != 0) return;
  if (const absl::Status status = store_->SetGroup(cluster_id, group); !status.ok())
    return FailDisk(status);
  {
    const base::MutexLock lock(replica_mutex_);
    identity_.cluster_id = cluster_id;
    identity_.group = group;
  }
  transport_.SetGroup(cluster_id, group);
  spdlog::info("op=joined cluster={} group={} replica={}", cluster_id, group, identity_.replica);
}

absl::Status ReplicatedLog::CommitWrites() {
  const paxos::Writes writes = std::exchange(out_.writes, {});
  ONEPIECE_RETURN_IF_ERROR(store_->Commit(writes));
  if (writes.urgent()) backoff_ = kBackoffMin;
  return absl::OkStatus();
}

// Does what paxos::Outputs asks of its caller, in that order.
void ReplicatedLog::CarryOut() {
  if (replica_ == nullptr) return;
  DropTooLarge(out_.early);
  transport_.Send(std::exchange(out_.early, {}));
  if (const absl::Status status = CommitWrites(); !status.ok()) return FailDisk(status);
  std::vector<paxos::Message> to_others;
  for (paxos::Message& message : out_.late) {
    (message.to == identity_.replica ? to_self_ : to_others).push_back(std::move(message));
  }
  out_.late.clear();
  transport_.Send(std::move(to_others));
  for (const auto& request : std::exchange(begun_, {}))
    request->answer.set_value(v1::CommandResult());
  Apply();
  if (std::exchange(out_.lost_leadership, false)) FailWaiting(Lost("the leadership was lost"));
  if (const paxos::Members& members = replica_->members(); members != members_) {
    members_ = members;
    transport_.SetPeers(members_, OtherAddresses());
  }
  PublishRole();
  const auto& snapshot = replica_->snapshot();
  if (!halted_ && applied_ >= (snapshot ? snapshot->index : 0) + options_.snapshot_every) {
    std::shared_ptr<const std::string> state = SerializeState();
    const base::MutexLock lock(replica_mutex_);
    replica_->TakeSnapshot(applied_, std::move(state), out_);
  }
}

void ReplicatedLog::Apply() {
  if (out_.restore == nullptr && out_.chosen.empty()) return;
  std::vector<std::pair<std::shared_ptr<Request>, v1::CommandResult>> answers;
  std::string newer;  // Describes what cannot be applied.
  {
    const base::MutexLock lock(machine_mutex_);
    if (out_.restore != nullptr && out_.restore->index > applied_) newer = Restore(*out_.restore);
    for (const paxos::ChosenEntry& chosen : out_.chosen) {
      // After a disk failure the replica was made anew, and hands out slots that are applied
      // already.
      if (chosen.slot <= applied_) continue;
      if (halted_ || !newer.empty()) break;
      v1::CommandResult result;
      if (!ApplyEntry(chosen.entry, result)) {
        newer = absl::StrCat("slot ", chosen.slot, " (version ", chosen.entry.version, ")");
        break;
      }
      applied_ = chosen.slot;
      const auto [begin, end] = waiting_.equal_range(chosen.slot);
      for (auto it = begin; it != end;) {
        // After a lost leadership the slot may hold another leader's entry. A command of ours is
        // recognised by its payload, which is the same object. A no-op is like any other, so it is
        // not trusted then.
        const bool ours = it->second->payload == chosen.entry.payload &&
                          (it->second->payload != nullptr || !out_.lost_leadership);
        if (ours) answers.emplace_back(it->second, result);
        it = ours ? waiting_.erase(it) : std::next(it);
      }
    }
  }
  out_.restore.reset();
  out_.chosen.clear();
  for (const auto& [request, result] : answers) request->answer.set_value(result);
  if (!newer.empty()) Halt(newer);
}

std::string ReplicatedLog::Restore(const paxos::Snapshot& snapshot) {
  if (!machine_.Restore(*snapshot.state).ok())
    return absl::StrCat("the snapshot of slot ", snapshot.index);
  applied_ = snapshot.index;
  return "";
}

bool ReplicatedLog::ReadCommand(const std::string& payload, v1::Command& command) {
  return command.ParseFromString(payload) && command.change_case() != v1::Command::CHANGE_NOT_SET;
}

bool ReplicatedLog::ApplyEntry(const paxos::Entry& entry, v1::CommandResult& result) {
  if (entry.version > options_.paxos.version) return false;
  if (entry.kind != paxos::Entry::Kind::kCommand) return true;
  v1::Command command;
  if (!ReadCommand(*entry.payload, command)) return false;
  result = machine_.Apply(machine_.applied_index() + 1, command, entry.version);
  return true;
}

void ReplicatedLog::Halt(const std::string& what) {
  if (halted_) return;
  const base::MutexLock lock(replica_mutex_);
  SetNewerVersion(what);
  replica_->RefuseToLead(BootNow(), out_);
}

void ReplicatedLog::SetNewerVersion(const std::string& what) {
  halted_ = true;
  newer_ = absl::StrCat(what, " is newer than this program, which applies version ",
                        options_.paxos.version, ": update it");
  health_ = v1::ReplicaStatus::NEWER_VERSION;
  health_detail_ = newer_;
  spdlog::error("op=newer_version error=\"{}\"", health_detail_);
}

// A replica must not be stepped again after a write that failed, because nobody knows what is
// durable. Recover() makes a new one from the disk.
void ReplicatedLog::FailDisk(const absl::Status& why) {
  ++disk_failures_;
  {
    const base::MutexLock lock(replica_mutex_);
    if (health_detail_ != base::Message(why))
      spdlog::error("op=disk_failed error=\"{}\"", base::Message(why));
    health_ = v1::ReplicaStatus::DISK_FAILED;
    health_detail_ = base::Message(why);
    term_ = 0;
    replica_.reset();
  }
  store_.reset();
  out_ = {};
  to_self_.clear();
  FailWaiting(Lost("the disk failed"));
  PublishRole();
}

void ReplicatedLog::Recover(const std::stop_token& stop) {
  Pause(stop, backoff_);
  backoff_ = std::clamp(backoff_ * 2, kBackoffMin, kBackoffMax);
  const Inputs missed = [this] {
    const base::MutexLock lock(queue_mutex_);
    return std::exchange(queue_, {});
  }();
  for (const auto& request : missed.requests) request->answer.set_value(NotLeader());
  if (stop.stop_requested()) return;
  absl::StatusOr<std::unique_ptr<Store>> store = Store::Open(options_.data_dir);
  if (store.ok() && (!(*store)->identity() || (*store)->identity()->replica != identity_.replica)) {
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
  std::string newer;
  {
    const base::MutexLock machine_lock(machine_mutex_);
    if (state.snapshot.index > applied_) newer = Restore(state.snapshot);
  }
  if (!newer.empty() && !halted_) SetNewerVersion(newer);
  KeepTail(state.log);
  replica_ = std::make_unique<paxos::Replica>(options_.paxos, std::move(state), BootNow());
  if (halted_) replica_->RefuseToLead(BootNow(), out_);
  health_ = halted_ ? v1::ReplicaStatus::NEWER_VERSION : v1::ReplicaStatus::OK;
  health_detail_ = newer_;
  spdlog::info("op=disk_opened applied={}", applied_);
}

// Requests that wait for a slot or for the disk may still take effect, so they get `why`. Deferred
// ones never entered the log.
void ReplicatedLog::FailWaiting(const absl::Status& why) {
  for (const auto& [slot, request] : std::exchange(waiting_, {})) request->answer.set_value(why);
  for (const auto& request : std::exchange(begun_, {})) request->answer.set_value(why);
  for (const auto& request : std::exchange(deferred_, {})) request->answer.set_value(NotLeader());
}

void ReplicatedLog::PublishRole() {
  std::uint64_t term = 0;
  {
    const base::MutexLock lock(replica_mutex_);
    if (term_ == 0 && replica_ != nullptr && replica_->IsReady() && !closing_) term_ = ++terms_;
    term = term_;
  }
  if (term == told_term_) return;
  // A leadership that was lost and won again within one round is told as an end and a beginning.
  if (told_term_ != 0) {
    spdlog::info("op=follow");
    if (on_role_) on_role_(false);
  }
  told_term_ = term;
  if (term == 0) return;
  spdlog::info("op=lead round={} applied={}", replica_->promised().round, applied_);
  if (on_role_) on_role_(true);
}

std::shared_ptr<const std::string> ReplicatedLog::SerializeState() const {
  const base::MutexLock lock(machine_mutex_);
  return std::make_shared<const std::string>(machine_.Serialize());
}

}  // namespace onepiece::nodemanager
