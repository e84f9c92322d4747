#include "nodemanager/replication/replicated_log.h"

#include <algorithm>
#include <filesystem>
#include <future>
#include <span>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "cluster/base/canonical_bytes.h"
#include "cluster/base/crc32c.h"
#include "cluster/base/status.h"
#include "nodemanager/replication/boot_clock.h"
#include "nodemanager/replication/codec.h"
#include "nodemanager/replication/command_bytes.h"
#include "nodemanager/replication/describe_entry.h"
#include "nodemanager/replication/log_errors.h"

namespace onepiece::nodemanager {
namespace {

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

// The version under which a command that needs `needed` is proposed. `level` is the feature level.
// Every voter applied that level when it was raised, and nobody gets a seat who does not. So a
// voter that this leader has not heard yet, because it is dead, holds up nothing that the level
// has: with the loss of one host a cluster would otherwise neither plan nor sign certificates.
absl::StatusOr<std::uint32_t> ChooseVersion(std::uint32_t needed, std::uint32_t level,
                                            std::uint32_t limit, std::uint32_t common) {
  if (needed <= level) return std::max(needed, std::min(limit, common));
  if (needed > common) {
    return base::MakeError(absl::StatusCode::kUnavailable, "OLD_REPLICA",
                           absl::StrCat("not every NodeManager is known to apply version ", needed,
                                        " (yet ", common, "): update them, or try again"));
  }
  if (needed <= limit) return std::min(limit, common);
  return base::MakeError(
      absl::StatusCode::kFailedPrecondition, "FEATURE_LEVEL",
      absl::StrCat("this needs feature level ", needed, ", and the cluster's is ", limit,
                   ": when all NodeManagers are updated, run `onepiece cluster upgrade`"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReplicatedLog>> ReplicatedLog::Open(ReplicatedLogOptions options,
                                                                   base::Clock& clock) {
  std::unique_ptr<ReplicatedLog> log(new ReplicatedLog(std::move(options), clock));
  ONEPIECE_RETURN_IF_ERROR(log->driver_.Open());
  return log;
}

absl::StatusOr<v1::CommandResult> ReplicatedLog::Ask(std::shared_ptr<LogRequest> request,
                                                     base::Duration limit) {
  // The answer may come after this call has returned, so it owns the promise.
  const auto promise = std::make_shared<std::promise<absl::StatusOr<v1::CommandResult>>>();
  request->answer = [promise](absl::StatusOr<v1::CommandResult> result) {
    promise->set_value(std::move(result));
  };
  std::future<absl::StatusOr<v1::CommandResult>> answer = promise->get_future();
  ONEPIECE_RETURN_IF_ERROR(queue_.PushRequest(request));
  if (answer.wait_for(limit) != std::future_status::ready) request->Finish(NotInTime());
  return answer.get();
}

absl::StatusOr<v1::CommandResult> ReplicatedLog::Propose(const v1::Command& command) {
  ONEPIECE_ASSIGN_OR_RETURN(std::shared_ptr<LogRequest> request, MakeProposal(command));
  return Ask(std::move(request));
}

void ReplicatedLog::ProposeAsync(const v1::Command& command, Answer answer) {
  absl::StatusOr<std::shared_ptr<LogRequest>> request = MakeProposal(command);
  if (!request.ok()) return answer(request.status());
  (*request)->answer = std::move(answer);
  // It is counted before it can be answered, so that a request is never forgotten.
  deadlines_.Add(*request);
  if (const absl::Status status = queue_.PushRequest(*request); !status.ok())
    (*request)->Finish(status);
}

absl::StatusOr<std::shared_ptr<LogRequest>> ReplicatedLog::MakeProposal(
    const v1::Command& command) const {
  auto request = std::make_shared<LogRequest>();
  request->payload = std::make_shared<const std::string>(base::CanonicalBytes(command));
  if (request->payload->size() > kMaxPayloadBytes) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "COMMAND_TOO_LARGE",
                           absl::StrCat("a command has at most ", kMaxPayloadBytes, " bytes"));
  }
  // Every replica must apply what is chosen. An entry that cannot be read would stop all of them
  // for good, so it is refused here.
  if (!ReadCommand(*request->payload, request->command.emplace())) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "COMMAND_UNREADABLE",
                           "the command changes nothing, or a text in it is not UTF-8");
  }
  request->appends = true;
  // The term comes first: under it this replica has applied all that earlier leaders chose, so it
  // knows the level, which never falls.
  ONEPIECE_RETURN_IF_ERROR(Term().status());
  // Only these commands need a look at the state, whose readers they would wait for.
  std::uint32_t limit = driver_.version_limit();
  const std::uint32_t level = limit == StateMachine::kAnyVersion ? 0 : limit;
  if (command.has_raise_feature_level() || command.has_begin_generation())
    Read([&](const StateMachine& state) { limit = state.VersionLimit(command); });
  const std::uint32_t needed = std::max(VersionOf(command), command.raise_feature_level().level());
  request->begin = [payload = request->payload, needed, level, limit](
                       paxos::Replica& replica, paxos::Time now,
                       paxos::Outputs& out) -> absl::StatusOr<paxos::Slot> {
    ONEPIECE_ASSIGN_OR_RETURN(const std::uint32_t version,
                              ChooseVersion(needed, level, limit, replica.common_version()));
    return replica.Propose(now, payload, version, out);
  };
  return request;
}

void ReplicatedLog::Read(const std::function<void(const StateMachine&)>& read) const {
  driver_.ReadMachine([&](const StateMachine& machine, paxos::Slot) { read(machine); });
}

absl::StatusOr<LeaderTerm> ReplicatedLog::Term() const {
  // Each call of the service asks this, so in the usual case it takes no lock.
  absl::StatusOr<LeaderTerm> term = driver_.term();
  if (*term != LeaderTerm{}) return term;
  driver_.See([&](const ReplicaView& view) {
    if (view.term == LeaderTerm{}) {
      term = driver_.NotLeader(view);
    } else {
      term = view.term;
    }
  });
  return term;
}

absl::Status ReplicatedLog::CatchUp() const {
  paxos::Slot chosen;
  driver_.See([&](const ReplicaView& view) {
    if (view.replica != nullptr) chosen = view.replica->chosen();
  });
  if (driver_.AwaitApplied(chosen, driver_.options().propose_timeout)) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kResourceExhausted, "LOG_BUSY",
                         "the state is behind the log: try again later");
}

// The lease and the no-op prove something only if this leadership has not ended since the read.
// Otherwise another leader may have chosen entries in between.
absl::Status ReplicatedLog::Confirm(LeaderTerm term) {
  absl::Status leads;
  bool covered = false;
  const auto look = [&](const ReplicaView& view) {
    leads = view.term == term ? absl::OkStatus() : driver_.NotLeader(view);
    covered = leads.ok() && view.replica->LeaseCovers(BootNow());
  };
  driver_.See(look);
  if (!leads.ok() || covered) return leads;
  auto request = std::make_shared<LogRequest>();
  request->appends = true;
  request->begin = [](paxos::Replica& replica, paxos::Time now, paxos::Outputs& out) {
    return replica.Propose(now, nullptr, 0, out);
  };
  ONEPIECE_RETURN_IF_ERROR(Ask(std::move(request)).status());
  driver_.See(look);
  return leads;
}

absl::Status ReplicatedLog::CatchUpWithLeader() {
  const base::Duration limit = driver_.options().propose_timeout;
  const paxos::Time deadline = BootNow() + limit;
  const auto request = std::make_shared<LogRequest>();
  request->asks_index = true;
  const absl::Status asked = Ask(request, limit).status();
  // Nothing was proposed, so no outcome is unknown. Another replica may answer.
  if (absl::IsDeadlineExceeded(asked)) {
    absl::Status status;
    driver_.See([&](const ReplicaView& view) { status = driver_.NotLeader(view); });
    return status;
  }
  ONEPIECE_RETURN_IF_ERROR(asked);
  if (driver_.AwaitApplied(request->index, deadline - BootNow())) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kResourceExhausted, "LOG_BUSY",
                         "the state is behind the log: try again later");
}

absl::StatusOr<paxos::Members> ReplicatedLog::ChangeMembers(decltype(LogRequest::begin) change) {
  auto request = std::make_shared<LogRequest>();
  request->begin = std::move(change);
  ONEPIECE_RETURN_IF_ERROR(Ask(std::move(request)).status());
  absl::StatusOr<paxos::Members> members;
  driver_.See([&](const ReplicaView& view) {
    if (view.replica == nullptr) {
      members = driver_.NotLeader(view);
    } else {
      members = view.replica->members();
    }
  });
  return members;
}

absl::StatusOr<paxos::Members> ReplicatedLog::AddSeat(const paxos::Seat& seat) {
  return ChangeMembers([seat](paxos::Replica& replica, paxos::Time now, paxos::Outputs& out) {
    return replica.AddSeat(now, seat, out);
  });
}

absl::StatusOr<paxos::Members> ReplicatedLog::RemoveSeat(const std::string& name) {
  return ChangeMembers([name](paxos::Replica& replica, paxos::Time now, paxos::Outputs& out) {
    return replica.RemoveSeat(now, name, out);
  });
}

absl::StatusOr<paxos::Members> ReplicatedLog::ReplaceSeat(const std::string& name,
                                                          const paxos::Seat& seat) {
  return ChangeMembers([name, seat](paxos::Replica& replica, paxos::Time now, paxos::Outputs& out) {
    return replica.ReplaceSeat(now, name, seat, out);
  });
}

absl::Status ReplicatedLog::StepDown(base::Duration limit) {
  auto request = std::make_shared<LogRequest>();
  request->begin = [](paxos::Replica& replica, paxos::Time now,
                      paxos::Outputs& out) -> absl::StatusOr<paxos::Slot> {
    ONEPIECE_RETURN_IF_ERROR(replica.StepDown(now, out));
    return paxos::Slot{};
  };
  return Ask(std::move(request), limit).status();
}

absl::StatusOr<v1::TakeSnapshotResponse> ReplicatedLog::TakeSnapshot() {
  ONEPIECE_RETURN_IF_ERROR(Ask(std::make_shared<LogRequest>()).status());
  absl::StatusOr<v1::TakeSnapshotResponse> response;
  driver_.See([&](const ReplicaView& view) {
    if (view.replica == nullptr || view.replica->snapshot() == nullptr) {
      response = driver_.NotLeader(view);
      return;
    }
    const paxos::Snapshot& snapshot = *view.replica->snapshot();
    response.emplace();
    response->set_index(snapshot.index.value);
    response->set_bytes(static_cast<std::int64_t>(snapshot.state ? snapshot.state->size() : 0));
  });
  return response;
}

void ReplicatedLog::DescribeReplica(const ReplicaView& view, v1::ReplicaStatus& status) const {
  const paxos::Replica& replica = *view.replica;
  const paxos::Time now = BootNow();
  const paxos::Members& members = replica.members();
  status.set_role(RoleOf(replica.role()));
  status.set_round(replica.promised().round);
  if (const paxos::Seat* leader = members.Find(replica.leader()); leader != nullptr) {
    status.set_leader(leader->name);
    status.set_leader_address(driver_.AddressOf(view, *leader));
  }
  status.set_lease(view.term != LeaderTerm{} && replica.LeaseCovers(now));
  status.set_first_slot(replica.first_slot().value);
  status.set_last_slot(replica.last_slot().value);
  status.set_chosen(replica.chosen().value);
  if (replica.snapshot() != nullptr) status.set_snapshot(replica.snapshot()->index.value);
  EncodeSeats(members, status.mutable_members()->mutable_seats());
  status.set_common_version(replica.common_version());
  for (const paxos::Progress& progress : replica.progress()) {
    v1::ReplicaProgress& line = *status.add_progress();
    line.set_name(progress.name);
    line.set_address(progress.address);
    line.set_replica(progress.replica.value);
    line.set_votes(progress.votes);
    line.set_match(progress.match.value);
    const bool self = progress.replica == view.identity.replica;
    line.set_silent_ms(self             ? 0
                       : progress.heard ? (now - *progress.heard) / std::chrono::milliseconds(1)
                                        : -1);
    line.set_drifts(progress.drifts);
    line.set_version(progress.version);
  }
}

v1::ReplicaStatus ReplicatedLog::Status() const {
  const ReplicatedLogOptions& options = driver_.options();
  v1::ReplicaStatus status;
  driver_.See([&](const ReplicaView& view) {
    status.set_cluster_id(view.identity.cluster_id);
    status.set_name(options.name);
    status.set_address(view.address);
    status.set_replica(view.identity.replica.value);
    status.set_group(view.identity.group.value);
    status.set_bootstraps(options.bootstrap && view.identity.replica == paxos::ReplicaId{});
    status.set_health(view.health);
    status.set_health_detail(view.health_detail);
    status.set_version(options.paxos.version);
    status.set_applied(driver_.applied().value);
    if (view.replica != nullptr) DescribeReplica(view, status);
  });
  Read([&](const StateMachine& state) { status.set_feature_level(state.feature_level()); });
  return status;
}

v1::ReplicaStatus ReplicatedLog::StatusWithHash() const {
  paxos::Slot applied;
  std::uint32_t hash = 0;
  {
    const base::MutexLock lock(hash_mutex_);
    driver_.ReadMachine([&](const StateMachine& machine, paxos::Slot slot)
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(hash_mutex_) {
                              if (hashed_ && hashed_->first == slot) return;
                              const std::string state = machine.Serialize();
                              hashed_ = {slot, base::Crc32c(std::as_bytes(std::span(state)))};
                            });
    std::tie(applied, hash) = *hashed_;
  }
  // Status() may see a newer slot than the hash does. Slot and hash must belong together, because
  // replicas are compared by them.
  v1::ReplicaStatus status = Status();
  status.set_applied(applied.value);
  status.set_state_hash(hash);
  return status;
}

v1::ListLogResponse ReplicatedLog::ListLog(paxos::Slot first, int limit) const {
  if (limit <= 0) limit = kDefaultLines;
  limit = std::min(limit, kMaxLines);
  v1::ListLogResponse response;
  driver_.See([&](const ReplicaView& view) {
    const paxos::Slot chosen = view.replica != nullptr ? view.replica->chosen() : paxos::Slot{};
    auto line = first != paxos::Slot{} ? view.tail.lower_bound(first) : view.tail.end();
    if (first == paxos::Slot{}) {
      for (int i = 0; i < limit && line != view.tail.begin(); ++i) --line;
    }
    for (int i = 0; i < limit && line != view.tail.end(); ++i, ++line) {
      *response.add_lines() = DescribeEntry(line->second);
      response.mutable_lines(i)->set_chosen(line->first <= chosen);
    }
  });
  return response;
}

absl::StatusOr<backup::Backup> ReplicatedLog::MakeBackup(base::WallTime now) const {
  const v1::ReplicaStatus status = Status();
  if (status.health() == v1::ReplicaStatus::CORRUPT) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "CORRUPT",
                           absl::StrCat("NodeManager ", status.name(), ": ", status.health_detail(),
                                        ": ask another replica"));
  }
  backup::Backup backup;
  backup.header.set_replica(status.name());
  backup.header.set_group(status.group());
  backup.header.set_create_unix_ms(base::ToUnixMs(now));
  *backup.header.mutable_seats() = status.members().seats();
  driver_.ReadMachine([&](const StateMachine& machine, paxos::Slot applied) {
    backup.header.set_cluster_id(machine.cluster_id());
    backup.header.set_slot(applied.value);
    backup.header.set_epoch(machine.epoch());
    backup.header.set_version(machine.feature_level());
    if (!machine.cluster_id().empty()) backup.state = machine.Serialize();
  });
  if (!backup.state.empty()) return backup;
  return base::MakeError(
      absl::StatusCode::kFailedPrecondition, "NOTHING_TO_BACK_UP",
      absl::StrCat("NodeManager ", status.name(), " knows no cluster yet: ask another replica"));
}

std::vector<std::string> ReplicatedLog::Addresses() const {
  std::vector<std::string> addresses;
  const auto add = [&](const std::string& address) {
    if (!address.empty() &&
        std::find(addresses.begin(), addresses.end(), address) == addresses.end())
      addresses.push_back(address);
  };
  driver_.See([&](const ReplicaView& view) {
    const paxos::Members members =
        view.replica != nullptr ? view.replica->members() : paxos::Members{};
    for (const paxos::Seat& seat : members.seats) add(driver_.AddressOf(view, seat));
    // While there is no leader to correct the seats, the configuration may know better addresses.
    if (view.replica == nullptr || view.replica->leader() == paxos::ReplicaId{}) {
      for (const std::string& address : driver_.OtherAddresses()) add(address);
    }
    if (members.seats.empty()) add(view.address);
  });
  return addresses;
}

bool ReplicatedLog::IsAlone() const {
  bool alone = false;
  driver_.See([&](const ReplicaView& view) {
    alone = view.replica != nullptr && view.replica->members().voters() == 1 &&
            view.replica->members().Votes(view.identity.replica);
  });
  return alone;
}

std::string ReplicatedLog::cluster_id() const {
  std::string cluster_id;
  driver_.See([&](const ReplicaView& view) { cluster_id = view.identity.cluster_id; });
  return cluster_id;
}

ReplicatedLog::Counters ReplicatedLog::counters() const {
  return {driver_.leader_changes(), driver_.disk_failures(), driver_.pending()};
}

ReplicatedLog::DiskUse ReplicatedLog::disk_use() const {
  namespace fs = std::filesystem;
  const std::string& dir = driver_.options().data_dir;
  DiskUse use;
  std::error_code error;
  for (const char* file : {"/nodemanager.sqlite", "/nodemanager.sqlite-wal"}) {
    const std::uintmax_t bytes = fs::file_size(dir + file, error);
    if (!error) use.bytes += bytes;
  }
  const fs::space_info space = fs::space(dir, error);
  if (!error) use.available = space.available;
  return use;
}

}  // namespace onepiece::nodemanager
