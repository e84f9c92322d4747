#include "nodemanager/replication/replicated_log.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/canonical_bytes.h"
#include "cluster/base/check.h"
#include "cluster/base/crc32c.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/rpc/channel.h"
#include "nodemanager/replication/boot_clock.h"
#include "nodemanager/replication/codec.h"

namespace onepiece::nodemanager {
namespace {

constexpr std::size_t kMaxQueuedMessages = 16384, kMaxQueuedRequests = 4096;
constexpr auto kProbeTimeout = std::chrono::seconds(1);
constexpr auto kAskAgain = std::chrono::milliseconds(100);
constexpr int kDefaultLines = 50, kMaxLines = 1000;

v1::ReplicaStatus::Role RoleOf(paxos::Role role) {
  switch (role) {
    case paxos::Role::kLearner:
      return v1::ReplicaStatus::LEARNER;
    case paxos::Role::kFollower:
      return v1::ReplicaStatus::FOLLOWER;
    case paxos::Role::kCandidate:
      return v1::ReplicaStatus::CANDIDATE;
    case paxos::Role::kLeader:
      return v1::ReplicaStatus::LEADER;
  }
  return v1::ReplicaStatus::ROLE_UNSPECIFIED;
}

// Fills in the kind of the command, such as "register_node", and what it is about.
void DescribeCommand(const std::string& payload, v1::ListLogResponse::Line& line) {
  v1::Command command;
  const google::protobuf::OneofDescriptor& changes = *v1::Command::descriptor()->oneof_decl(0);
  const google::protobuf::FieldDescriptor* change =
      command.ParseFromString(payload)
          ? command.GetReflection()->GetOneofFieldDescriptor(command, &changes)
          : nullptr;
  line.set_kind(change != nullptr ? change->name() : "unknown");
  line.set_time_unix_ms(command.time_unix_ms());
  if (command.has_register_node()) line.set_subject(command.register_node().node_id());
  if (command.has_end_node()) line.set_subject(command.end_node().node_id());
  if (command.has_set_node_state()) line.set_subject(command.set_node_state().node_id());
  if (command.has_apply_workflow()) line.set_subject(command.apply_workflow().app_id());
  if (command.change_case() == v1::Command::kDeleteWorkflow)
    line.set_subject(command.delete_workflow());
  if (command.has_initialize()) line.set_subject(command.initialize().cluster_id());
}

v1::ListLogResponse::Line DescribeEntry(const paxos::AcceptedEntry& accepted) {
  v1::ListLogResponse::Line line;
  line.set_slot(accepted.slot);
  line.set_round(accepted.ballot.round);
  const paxos::Entry& entry = accepted.entry;
  line.set_bytes(static_cast<std::int64_t>(entry.payload ? entry.payload->size() : 0));
  switch (entry.kind) {
    case paxos::Entry::Kind::kNoop:
      line.set_kind("noop");
      break;
    case paxos::Entry::Kind::kMembers: {
      line.set_kind("members");
      std::string names;
      for (const paxos::Seat& seat : entry.members.seats) {
        absl::StrAppend(&names, names.empty() ? "" : " ", seat.name,
                        seat.replica == 0 ? " (vacant)" : "");
      }
      line.set_subject(names);
      break;
    }
    case paxos::Entry::Kind::kCommand:
      DescribeCommand(*entry.payload, line);
      break;
  }
  return line;
}

}  // namespace

ReplicatedLog::ReplicatedLog(Options options)
    : options_(std::move(options)),
      transport_({.receive =
                      [this](paxos::Message message) {
                        const base::MutexLock lock(queue_mutex_);
                        if (closed_ || queue_.messages.size() >= kMaxQueuedMessages) return;
                        queue_.messages.push_back(std::move(message));
                        queued_.NotifyOne();
                      },
                  .invited =
                      [this](const std::string& cluster_id, std::uint64_t group) {
                        const base::MutexLock lock(queue_mutex_);
                        queue_.cluster_id = cluster_id;
                        queue_.group = group;
                        queued_.NotifyOne();
                      }}) {}

absl::StatusOr<std::unique_ptr<ReplicatedLog>> ReplicatedLog::Open(Options options) {
  std::unique_ptr<ReplicatedLog> log(new ReplicatedLog(std::move(options)));
  ONEPIECE_ASSIGN_OR_RETURN(log->store_, Store::Open(log->options_.data_dir));
  if (!log->store_->identity()) return log;
  log->identity_ = *log->store_->identity();
  ONEPIECE_RETURN_IF_ERROR(log->CheckIdentity());
  log->state_ = log->store_->TakeState();
  const paxos::Snapshot& snapshot = log->state_->snapshot;
  if (snapshot.index == 0 || snapshot.state == nullptr || snapshot.state->empty()) return log;
  const absl::Status status = log->machine_.Restore(*snapshot.state);
  if (base::GetReason(status).reason == "NEWER_VERSION") {
    const base::MutexLock lock(log->replica_mutex_);
    log->SetNewerVersion(absl::StrCat("the snapshot of slot ", snapshot.index));
    return log;
  }
  if (!status.ok()) return base::Annotate(status, log->options_.data_dir);
  log->applied_ = snapshot.index;
  return log;
}

ReplicatedLog::~ReplicatedLog() { Stop(); }

absl::Status ReplicatedLog::CheckIdentity() const {
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

ReplicatedLog::Others ReplicatedLog::AskOthers() const {
  std::vector<std::pair<const paxos::Seat*, std::future<absl::StatusOr<v1::ReplicaStatus>>>> asked;
  for (const paxos::Seat& seat : options_.seats) {
    if (seat.name == options_.name) continue;
    asked.emplace_back(&seat, std::async(std::launch::async, [&seat] {
      const auto stub = v1::ConsensusService::NewStub(rpc::MakeChannel(seat.address));
      return rpc::Call(*stub, &v1::ConsensusService::Stub::GetReplica, {}, kProbeTimeout);
    }));
  }
  Others others;
  const auto wait_for = [&](const paxos::Seat& seat, const std::string& why) {
    absl::StrAppend(&others.waits_for, others.waits_for.empty() ? "" : ", ", seat.name, " at ",
                    seat.address, " ", why);
  };
  for (auto& [seat, answer] : asked) {
    const absl::StatusOr<v1::ReplicaStatus> status = answer.get();
    if (!status.ok()) {
      wait_for(*seat, "does not answer");
    } else if (status->name() != seat->name) {
      wait_for(*seat, absl::StrCat("is ", status->name(), ": correct `replicas`"));
    } else if (!options_.cluster_id.empty() && !status->cluster_id().empty() &&
               status->cluster_id() != options_.cluster_id) {
      wait_for(*seat, absl::StrCat("belongs to cluster '", status->cluster_id(), "', not '",
                                   options_.cluster_id, "'"));
    } else if (status->group() != 0) {
      others.have_group = true;
    } else if (status->bootstraps() && status->name() < options_.name) {
      wait_for(*seat, "was told to begin it, too, and comes first");
    }
  }
  return others;
}

// Waits until every other seat has answered. An empty folder does not mean that there is no group,
// because the group's data may have been moved away. Silence does not mean it either.
bool ReplicatedLog::AwaitOthers(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const Others others = AskOthers();
    if (others.have_group) {
      spdlog::warn("op=join detail=\"bootstrap was asked for, but the others have a group\"");
    }
    if (others.have_group || others.waits_for.empty()) {
      const absl::Status status = MakeReplica(!others.have_group, stop);
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
    base::MutexLock lock(queue_mutex_);
    queued_.WaitFor(lock, stop, kAskAgain, [] { return false; });
  }
  return false;
}

absl::StatusOr<paxos::DurableState> ReplicatedLog::MakeNewReplica(bool begins) {
  paxos::DurableState state;
  state.replica = base::RandomU64();
  ReplicaIdentity identity = {
      .cluster_id = options_.cluster_id, .name = options_.name, .replica = state.replica};
  if (begins) {
    paxos::Members seats{options_.seats};
    if (seats.seats.size() <= 1) seats.seats = {{.name = options_.name, .address = address_}};
    for (paxos::Seat& seat : seats.seats) {
      if (seat.name == options_.name) seat.address = address_;
    }
    if (identity.cluster_id.empty())
      identity.cluster_id = base::Uid::GenerateRandom().ToString().substr(0, 8);
    identity.group = std::max<std::uint64_t>(1, base::RandomU64());
    state = paxos::Replica::Bootstrap(state.replica, seats, options_.name);
    spdlog::info("op=bootstrap cluster={} group={} replica={} seats={}", identity.cluster_id,
                 identity.group, state.replica, seats.seats.size());
  } else {
    spdlog::info("op=join replica={} seats={}", state.replica, options_.seats.size());
  }
  ONEPIECE_RETURN_IF_ERROR(store_->Create(identity, state));
  const base::MutexLock lock(replica_mutex_);  // Status() may be asked already.
  identity_ = identity;
  health_ = v1::ReplicaStatus::OK;
  health_detail_.clear();
  return state;
}

void ReplicatedLog::OnRole(RoleCallback callback) { on_role_ = std::move(callback); }

absl::Status ReplicatedLog::Start(const std::string& address) {
  ONEPIECE_CHECK(!thread_.joinable());
  {
    const base::MutexLock lock(replica_mutex_);
    address_ = address;
  }
  // Asking the others may take long, so the thread does it and Start() returns.
  const bool alone = options_.seats.size() <= 1;
  const bool asks = !state_ && !alone && options_.bootstrap;
  if (!asks) ONEPIECE_RETURN_IF_ERROR(MakeReplica(alone, {}));
  thread_ = std::jthread([this, asks](const std::stop_token& stop) {
    if (!asks || AwaitOthers(stop)) Run(stop);
  });
  return absl::OkStatus();
}

absl::Status ReplicatedLog::MakeReplica(bool begins, const std::stop_token& stop) {
  if (!state_) {
    ONEPIECE_ASSIGN_OR_RETURN(state_, MakeNewReplica(begins));
  }
  options_.paxos.name = options_.name;
  options_.paxos.address = address_;
  options_.paxos.seed = base::RandomU64();
  transport_.Start({.cluster_id = identity_.cluster_id,
                    .name = options_.name,
                    .address = address_,
                    .replica = identity_.replica,
                    .group = identity_.group});
  transport_.SetPeers({}, OtherAddresses());
  {
    const base::MutexLock lock(replica_mutex_);
    KeepTail(state_->log);
    replica_ = std::make_unique<paxos::Replica>(options_.paxos, *std::move(state_), BootNow());
    if (halted_) replica_->RefuseToLead(BootNow(), out_);
    state_.reset();
  }
  const base::MutexLock lock(queue_mutex_);
  closed_ = stop.stop_requested();
  return absl::OkStatus();
}

void ReplicatedLog::Stop() {
  {
    const base::MutexLock lock(queue_mutex_);
    closed_ = true;
    thread_.request_stop();
  }
  if (thread_.joinable()) thread_.join();
  transport_.Stop();
}

absl::StatusOr<v1::CommandResult> ReplicatedLog::Ask(std::shared_ptr<Request> request,
                                                     base::Duration limit) {
  std::future<absl::StatusOr<v1::CommandResult>> answer = request->answer.get_future();
  {
    const base::MutexLock lock(queue_mutex_);
    if (closed_) {
      return base::MakeError(absl::StatusCode::kUnavailable, "NOT_LEADER",
                             "this NodeManager is starting or ending");
    }
    if (queue_.requests.size() >= kMaxQueuedRequests) {
      return base::MakeError(absl::StatusCode::kResourceExhausted, "LOG_BUSY",
                             "too many commands are waiting");
    }
    queue_.requests.push_back(request);
    queued_.NotifyOne();
  }
  if (answer.wait_for(limit) == std::future_status::ready) return answer.get();
  request->abandoned = true;
  return base::MakeError(absl::StatusCode::kDeadlineExceeded, "OUTCOME_UNKNOWN",
                         "no majority answered in time; the command may still be applied: ask "
                         "again with the same request_id");
}

absl::StatusOr<v1::CommandResult> ReplicatedLog::Propose(const v1::Command& command) {
  auto request = std::make_shared<Request>();
  request->payload = std::make_shared<const std::string>(base::CanonicalBytes(command));
  if (request->payload->size() > kMaxPayloadBytes) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "COMMAND_TOO_LARGE",
                           absl::StrCat("a command has at most ", kMaxPayloadBytes, " bytes"));
  }
  // Every replica must apply what is chosen. An entry that cannot be read would stop all of them
  // for good, so it is refused here.
  if (v1::Command read; !ReadCommand(*request->payload, read)) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "COMMAND_UNREADABLE",
                           "the command changes nothing, or a text in it is not UTF-8");
  }
  request->appends = true;
  request->begin = [this, payload = request->payload, needed = VersionOf(command)](
                       paxos::Time now, paxos::Outputs& out) -> absl::StatusOr<paxos::Slot> {
    const std::uint32_t common = replica_->common_version();
    if (needed > common) {
      return base::MakeError(
          absl::StatusCode::kUnavailable, "OLD_REPLICA",
          absl::StrCat("not every NodeManager is known to apply version ", needed, " (yet ", common,
                       "): update them, or try again"));
    }
    return replica_->Propose(now, payload, common, out);
  };
  return Ask(std::move(request));
}

void ReplicatedLog::Read(const std::function<void(const StateMachine&)>& read) const {
  const base::MutexLock lock(machine_mutex_);
  read(machine_);
}

absl::StatusOr<std::uint64_t> ReplicatedLog::Term() const {
  const base::MutexLock lock(replica_mutex_);
  if (term_ == 0) return NotLeaderLocked();
  return term_;
}

// The lease and the no-op prove something only if this leadership has not ended since the read.
// Otherwise another leader may have chosen entries in between.
absl::Status ReplicatedLog::Confirm(std::uint64_t term) {
  {
    const base::MutexLock lock(replica_mutex_);
    if (term_ != term) return NotLeaderLocked();
    if (replica_->LeaseCovers(BootNow())) return absl::OkStatus();
  }
  auto request = std::make_shared<Request>();
  request->appends = true;
  request->begin = [this](paxos::Time now, paxos::Outputs& out) {
    return replica_->Propose(now, nullptr, 0, out);
  };
  ONEPIECE_RETURN_IF_ERROR(Ask(std::move(request)).status());
  const base::MutexLock lock(replica_mutex_);
  return term_ == term ? absl::OkStatus() : NotLeaderLocked();
}

absl::Status ReplicatedLog::NotLeader() const {
  const base::MutexLock lock(replica_mutex_);
  return NotLeaderLocked();
}

absl::Status ReplicatedLog::NotLeaderLocked() const {
  const paxos::Seat* leader =
      replica_ != nullptr ? replica_->members().Find(replica_->leader()) : nullptr;
  if (leader == nullptr || leader->replica == identity_.replica) {
    return base::MakeError(
        absl::StatusCode::kUnavailable, "NOT_LEADER",
        absl::StrCat("NodeManager ", options_.name, " does not lead, and knows no leader",
                     health_detail_.empty() ? "" : ": ", health_detail_));
  }
  return base::MakeError(absl::StatusCode::kUnavailable, "NOT_LEADER",
                         absl::StrCat("NodeManager ", options_.name, " does not lead, ",
                                      leader->name, " at ", AddressOf(*leader), " does"),
                         {{"leader", AddressOf(*leader)}});
}

absl::StatusOr<paxos::Members> ReplicatedLog::ChangeMembers(
    std::function<absl::StatusOr<paxos::Slot>(paxos::Time, paxos::Outputs&)> change) {
  auto request = std::make_shared<Request>();
  request->begin = std::move(change);
  ONEPIECE_RETURN_IF_ERROR(Ask(std::move(request)).status());
  const base::MutexLock lock(replica_mutex_);
  if (replica_ == nullptr) return NotLeaderLocked();
  return replica_->members();
}

absl::StatusOr<paxos::Members> ReplicatedLog::AddSeat(const paxos::Seat& seat) {
  return ChangeMembers([this, seat](paxos::Time now, paxos::Outputs& out) {
    return replica_->AddSeat(now, seat, out);
  });
}

absl::StatusOr<paxos::Members> ReplicatedLog::RemoveSeat(const std::string& name) {
  return ChangeMembers([this, name](paxos::Time now, paxos::Outputs& out) {
    return replica_->RemoveSeat(now, name, out);
  });
}

absl::StatusOr<paxos::Members> ReplicatedLog::ReplaceSeat(const std::string& name,
                                                          const paxos::Seat& seat) {
  return ChangeMembers([this, name, seat](paxos::Time now, paxos::Outputs& out) {
    return replica_->ReplaceSeat(now, name, seat, out);
  });
}

absl::Status ReplicatedLog::StepDown(base::Duration limit) {
  auto request = std::make_shared<Request>();
  request->begin = [this](paxos::Time now, paxos::Outputs& out) -> absl::StatusOr<paxos::Slot> {
    ONEPIECE_RETURN_IF_ERROR(replica_->StepDown(now, out));
    return paxos::Slot{0};
  };
  return Ask(std::move(request), limit).status();
}

absl::StatusOr<v1::TakeSnapshotResponse> ReplicatedLog::TakeSnapshot() {
  auto request = std::make_shared<Request>();
  auto response = std::make_shared<v1::TakeSnapshotResponse>();
  request->begin = [this, response](paxos::Time,
                                    paxos::Outputs& out) -> absl::StatusOr<paxos::Slot> {
    if (halted_) {
      return base::MakeError(absl::StatusCode::kFailedPrecondition, "NEWER_VERSION",
                             health_detail_);
    }
    if (replica_->snapshot() == nullptr || replica_->snapshot()->index < applied_)
      replica_->TakeSnapshot(applied_, SerializeState(), out);
    const paxos::Snapshot& snapshot = *replica_->snapshot();
    response->set_index(snapshot.index);
    response->set_bytes(static_cast<std::int64_t>(snapshot.state ? snapshot.state->size() : 0));
    return paxos::Slot{0};
  };
  ONEPIECE_RETURN_IF_ERROR(Ask(std::move(request)).status());
  return *response;
}

v1::ReplicaStatus ReplicatedLog::Status() const {
  v1::ReplicaStatus status;
  const base::MutexLock lock(replica_mutex_);
  status.set_cluster_id(identity_.cluster_id);
  status.set_name(options_.name);
  status.set_address(address_);
  status.set_replica(identity_.replica);
  status.set_group(identity_.group);
  status.set_bootstraps(options_.bootstrap && identity_.replica == 0);
  status.set_health(health_);
  status.set_health_detail(health_detail_);
  status.set_version(options_.paxos.version);
  {
    const base::MutexLock machine_lock(machine_mutex_);
    status.set_applied(applied_);
  }
  if (replica_ == nullptr) return status;
  const paxos::Time now = BootNow();
  const paxos::Members& members = replica_->members();
  status.set_role(RoleOf(replica_->role()));
  status.set_round(replica_->promised().round);
  if (const paxos::Seat* leader = members.Find(replica_->leader()); leader != nullptr) {
    status.set_leader(leader->name);
    status.set_leader_address(AddressOf(*leader));
  }
  status.set_lease(term_ != 0 && replica_->LeaseCovers(now));
  status.set_first_slot(replica_->first_slot());
  status.set_last_slot(replica_->last_slot());
  status.set_chosen(replica_->chosen());
  if (replica_->snapshot() != nullptr) status.set_snapshot(replica_->snapshot()->index);
  EncodeSeats(members, status.mutable_members()->mutable_seats());
  status.set_common_version(replica_->common_version());
  for (const paxos::Progress& progress : replica_->progress()) {
    v1::ReplicaProgress& line = *status.add_progress();
    line.set_name(progress.name);
    line.set_address(progress.address);
    line.set_replica(progress.replica);
    line.set_votes(progress.votes);
    line.set_match(progress.match);
    const bool self = progress.replica == identity_.replica;
    line.set_silent_ms(self             ? 0
                       : progress.heard ? (now - *progress.heard) / std::chrono::milliseconds(1)
                                        : -1);
    line.set_drifts(progress.drifts);
    line.set_version(progress.version);
  }
  return status;
}

v1::ReplicaStatus ReplicatedLog::StatusWithHash() const {
  paxos::Slot applied = 0;
  std::uint32_t hash = 0;
  {
    const base::MutexLock lock(machine_mutex_);
    if (!hashed_ || hashed_->first != applied_) {
      const std::string state = machine_.Serialize();
      hashed_ = {applied_, base::Crc32c(std::as_bytes(std::span(state)))};
    }
    std::tie(applied, hash) = *hashed_;
  }
  v1::ReplicaStatus status = Status();
  status.set_applied(applied);
  status.set_state_hash(hash);
  return status;
}

v1::ListLogResponse ReplicatedLog::ListLog(std::uint64_t first, int limit) const {
  if (limit <= 0) limit = kDefaultLines;
  limit = std::min(limit, kMaxLines);
  v1::ListLogResponse response;
  const base::MutexLock lock(replica_mutex_);
  const paxos::Slot chosen = replica_ != nullptr ? replica_->chosen() : 0;
  auto line = first != 0 ? tail_.lower_bound(first) : tail_.end();
  if (first == 0) {
    for (int i = 0; i < limit && line != tail_.begin(); ++i) --line;
  }
  for (int i = 0; i < limit && line != tail_.end(); ++i, ++line) {
    *response.add_lines() = DescribeEntry(line->second);
    response.mutable_lines(i)->set_chosen(line->first <= chosen);
  }
  return response;
}

std::string ReplicatedLog::AddressOf(const paxos::Seat& seat) const {
  // After a restart a seat still has the address of the earlier start, until its replica has told
  // the leader.
  if (seat.replica == identity_.replica) return address_;
  const std::string found = transport_.FoundAt(seat.replica);
  return found.empty() ? seat.address : found;
}

std::vector<std::string> ReplicatedLog::OtherAddresses() const {
  std::vector<std::string> addresses;
  for (const paxos::Seat& seat : options_.seats) {
    if (seat.name != options_.name) addresses.push_back(seat.address);
  }
  return addresses;
}

std::vector<std::string> ReplicatedLog::Addresses() const {
  std::vector<std::string> addresses;
  const auto add = [&](const std::string& address) {
    if (!address.empty() &&
        std::find(addresses.begin(), addresses.end(), address) == addresses.end())
      addresses.push_back(address);
  };
  const base::MutexLock lock(replica_mutex_);
  const paxos::Members members = replica_ != nullptr ? replica_->members() : paxos::Members{};
  for (const paxos::Seat& seat : members.seats) add(AddressOf(seat));
  // While there is no leader to correct the seats, the configuration may know better addresses.
  if (replica_ == nullptr || replica_->leader() == 0) {
    for (const std::string& address : OtherAddresses()) add(address);
  }
  if (members.seats.empty()) add(address_);
  return addresses;
}

bool ReplicatedLog::IsAlone() const {
  const base::MutexLock lock(replica_mutex_);
  return replica_ != nullptr && replica_->members().voters() == 1 &&
         replica_->members().Votes(identity_.replica);
}

std::string ReplicatedLog::cluster_id() const {
  const base::MutexLock lock(replica_mutex_);
  return identity_.cluster_id;
}

ReplicatedLog::Counters ReplicatedLog::counters() const {
  return {leader_changes_.load(), disk_failures_.load()};
}

}  // namespace onepiece::nodemanager
