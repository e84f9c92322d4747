#include "nodemanager/service/consensus_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/backup/backup_file.h"
#include "cluster/base/clock.h"
#include "cluster/base/generation.h"
#include "cluster/identity/seal.h"
#include "cluster/rpc/counted_stream.h"
#include "cluster/rpc/read_only.h"
#include "cluster/rpc/status.h"
#include "nodemanager/replication/codec.h"
#include "nodemanager/service/command_caller.h"
#include "nodemanager/service/seats.h"
#include "nodemanager/state/plan_state.h"

namespace onepiece::nodemanager {
namespace {

constexpr std::size_t kMaxSaltBytes = 64;
constexpr std::size_t kChunkBytes = 256 << 10;
// Each holds a copy of the state.
constexpr int kMaxBackups = 2;

// Changes of seats are no commands of the state, so the log names who made them.
struct SeatChange {
  std::string_view name;
  const rpc::Door* door;
  const grpc::ServerContext* context;
};

grpc::Status Answer(const SeatChange& change, const std::string& seat,
                    const absl::StatusOr<paxos::Members>& members, v1::ConsensusMembers* response) {
  spdlog::info("op={} seat={} caller={} from={} result=\"{}\"", change.name, seat,
               CallerOf(change.door, change.context).name(),
               change.context == nullptr ? "" : change.context->peer(),
               members.ok() ? "ok" : base::Message(members.status()));
  if (!members.ok()) return rpc::ToGrpc(members.status());
  spdlog::info("op={} seats={} voters={}", change.name, members->seats.size(), members->voters());
  EncodeSeats(*members, response->mutable_seats());
  AddWarnings(*response);
  return grpc::Status::OK;
}

// The names of the seats, by the host part of their addresses. A cluster on a loopback address has
// one host by design, and is left out.
std::map<std::string, std::vector<std::string>> SeatsByHost(const v1::ConsensusMembers& members) {
  std::map<std::string, std::vector<std::string>> seats;
  for (const v1::Seat& seat : members.seats()) {
    const std::string host = seat.address().substr(0, seat.address().rfind(':'));
    if (host.empty() || host == "localhost" || host == "[::1]" || host.starts_with("127."))
      continue;
    seats[host].push_back(seat.name());
  }
  return seats;
}

}  // namespace

void AddWarnings(v1::ConsensusMembers& members) {
  const int seats = members.seats_size();
  const auto voters = std::count_if(members.seats().begin(), members.seats().end(),
                                    [](const v1::Seat& seat) { return seat.replica() != 0; });
  if (voters < seats)
    members.add_warnings(absl::StrCat(voters, " of ", seats, " seats are occupied"));
  if (voters > 0 && voters % 2 == 0) {
    members.add_warnings(absl::StrCat(voters, " voters tolerate no more failures than ", voters - 1,
                                      ": ", (voters - 1) / 2));
  }
  if (seats > 1 && voters < 3)
    members.add_warnings(absl::StrCat("with ", voters, " voters none may fail"));
  for (const auto& [host, names] : SeatsByHost(members)) {
    if (names.size() < 2) continue;
    members.add_warnings(absl::StrCat(absl::StrJoin(names, ", "), " are on one host, ", host,
                                      ": they may fail together"));
  }
}

grpc::Status ConsensusService::GetReplica(grpc::ServerContext*, const v1::GetReplicaRequest*,
                                          v1::ReplicaStatus* response) {
  *response = log_.StatusWithHash();
  AddWarnings(*response->mutable_members());
  return grpc::Status::OK;
}

grpc::Status ConsensusService::AddSeat(grpc::ServerContext* context,
                                       const v1::AddSeatRequest* request,
                                       v1::ConsensusMembers* response) {
  if (read_only_) return rpc::RefuseReadOnly();
  const absl::Status status = CheckSeat(request->name(), request->address());
  if (!status.ok()) return rpc::ToGrpc(status);
  return Answer({"add_seat", door_, context}, request->name(),
                log_.AddSeat({.name = request->name(), .address = request->address()}), response);
}

grpc::Status ConsensusService::RemoveSeat(grpc::ServerContext* context,
                                          const v1::RemoveSeatRequest* request,
                                          v1::ConsensusMembers* response) {
  if (read_only_) return rpc::RefuseReadOnly();
  return Answer({"remove_seat", door_, context}, request->name(), log_.RemoveSeat(request->name()),
                response);
}

grpc::Status ConsensusService::ReplaceSeat(grpc::ServerContext* context,
                                           const v1::ReplaceSeatRequest* request,
                                           v1::ConsensusMembers* response) {
  if (read_only_) return rpc::RefuseReadOnly();
  paxos::Seat seat{.name = request->new_name(), .address = request->new_address()};
  const v1::ReplicaStatus now = log_.Status();
  for (const v1::Seat& known : now.members().seats()) {
    if (known.name() != request->name()) continue;
    if (seat.name.empty()) seat.name = known.name();
    if (seat.address.empty()) seat.address = known.address();
  }
  if (seat.name.empty()) seat.name = request->name();
  // The replica refuses a name that has no seat. It knows the newest seats.
  if (!seat.address.empty()) {
    const absl::Status status = CheckSeat(seat.name, seat.address);
    if (!status.ok()) return rpc::ToGrpc(status);
  }
  return Answer({"replace_seat", door_, context}, request->name(),
                log_.ReplaceSeat(request->name(), seat), response);
}

absl::Status CheckLevel(const v1::ReplicaStatus& leader, std::uint32_t level) {
  std::vector<std::string> old;
  const auto check = [&](const std::string& name, std::uint32_t knows) {
    if (knows >= level) return;
    old.push_back(knows == 0 ? absl::StrCat(name, " (has not answered)")
                             : absl::StrCat(name, " (knows ", knows, ")"));
  };
  check(leader.name(), leader.version());
  for (const v1::ReplicaProgress& progress : leader.progress()) {
    if (progress.votes() && progress.replica() != leader.replica())
      check(progress.name(), progress.version());
  }
  if (old.empty()) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "OLD_REPLICA",
                         absl::StrCat("not every NodeManager knows feature level ", level, ": ",
                                      absl::StrJoin(old, ", "), ". Update and start these first"));
}

grpc::Status ConsensusService::RaiseFeatureLevel(grpc::ServerContext* context,
                                                 const v1::RaiseFeatureLevelRequest* request,
                                                 v1::RaiseFeatureLevelResponse* response) {
  if (read_only_) return rpc::RefuseReadOnly();
  // Checked before, because a command that is refused has raised the level all the same.
  if (const absl::Status text = CheckPlanText("actor", request->actor()); !text.ok())
    return rpc::ToGrpc(text);
  if (const absl::Status leads = log_.Term().status(); !leads.ok()) return rpc::ToGrpc(leads);
  const v1::ReplicaStatus now = log_.Status();
  const std::uint32_t level = request->level() == 0 ? now.version() : request->level();
  if (level < now.feature_level()) {
    return rpc::ToGrpc(base::MakeError(
        absl::StatusCode::kFailedPrecondition, "FEATURE_LEVEL",
        absl::StrCat("the feature level is ", now.feature_level(), " and never falls")));
  }
  response->set_level(level);
  if (level == now.feature_level()) return grpc::Status::OK;
  if (const absl::Status status = CheckLevel(now, level); !status.ok()) return rpc::ToGrpc(status);
  v1::Command command;
  command.set_request_id(request->request_id());
  command.set_time_unix_ms(base::ToUnixMs(base::SystemClock().WallNow()));
  // As Controller does: programs of earlier levels do not know these fields.
  if (now.feature_level() >= kCallerLevel) SignCommand(door_, context, command);
  command.mutable_raise_feature_level()->set_level(level);
  command.mutable_raise_feature_level()->set_actor(request->actor());
  const absl::StatusOr<v1::CommandResult> result = log_.Propose(command);
  const absl::Status status = result.ok() ? ToStatus(*result) : result.status();
  spdlog::info("op=raise_feature_level from={} to={} actor=\"{}\" result=\"{}\"",
               now.feature_level(), level, request->actor(),
               status.ok() ? "ok" : base::Message(status));
  if (status.ok() && on_level_) on_level_();
  return rpc::ToGrpc(status);
}

grpc::Status ConsensusService::StepDown(grpc::ServerContext*, const v1::StepDownRequest*,
                                        google::protobuf::Empty*) {
  if (read_only_) return rpc::RefuseReadOnly();
  return rpc::ToGrpc(log_.StepDown());
}

grpc::Status ConsensusService::TakeSnapshot(grpc::ServerContext*, const v1::TakeSnapshotRequest*,
                                            v1::TakeSnapshotResponse* response) {
  if (read_only_) return rpc::RefuseReadOnly();
  absl::StatusOr<v1::TakeSnapshotResponse> taken = log_.TakeSnapshot();
  if (!taken.ok()) return rpc::ToGrpc(taken.status());
  *response = *std::move(taken);
  return grpc::Status::OK;
}

grpc::Status ConsensusService::ListLog(grpc::ServerContext*, const v1::ListLogRequest* request,
                                       v1::ListLogResponse* response) {
  if (request->limit() < 0 || request->limit() > 1000) {
    return rpc::ToGrpc(base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_LIMIT",
                                       "limit: 0 (50) to 1000", {{"field", "limit"}}));
  }
  *response = log_.ListLog(paxos::Slot{request->first()}, request->limit());
  return grpc::Status::OK;
}

absl::Status ConsensusService::AddSealKey(const v1::BackupRequest& request,
                                          v1::BackupHeader& header) const {
  if (request.wrapping_key().empty()) return absl::OkStatus();
  if (request.wrapping_key().size() != identity::kSealKeyBytes ||
      request.wrapping_salt().size() < identity::kWrapSaltBytes ||
      request.wrapping_salt().size() > kMaxSaltBytes) {
    return base::MakeError(
        absl::StatusCode::kInvalidArgument, "BAD_WRAPPING_KEY",
        absl::StrCat("wrapping_key has ", identity::kSealKeyBytes, " bytes, and wrapping_salt ",
                     identity::kWrapSaltBytes, " to ", kMaxSaltBytes),
        {{"field", "wrapping_key"}});
  }
  if (seal_key_ == nullptr) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "INSECURE",
                           "this cluster runs with --insecure and has no seal key");
  }
  ONEPIECE_ASSIGN_OR_RETURN(const std::string key, seal_key_());
  header.set_wrapping_salt(request.wrapping_salt());
  header.set_wrapped_seal_key(
      identity::Seal(request.wrapping_key(), key, identity::kBackupSealContext));
  return absl::OkStatus();
}

grpc::Status ConsensusService::Backup(grpc::ServerContext* context,
                                      const v1::BackupRequest* request,
                                      grpc::ServerWriter<v1::BackupChunk>* writer) {
  const rpc::CountedStream stream(backups_);
  if (stream.number() > kMaxBackups) {
    return rpc::ToGrpc(
        base::MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_BACKUPS",
                        absl::StrCat("at most ", kMaxBackups, " backups at a time: try again")));
  }
  auto backup = log_.MakeBackup(base::SystemClock().WallNow());
  if (!backup.ok()) return rpc::ToGrpc(backup.status());
  if (const absl::Status status = AddSealKey(*request, backup->header); !status.ok())
    return rpc::ToGrpc(status);
  const std::string bytes = backup::Encode(*backup);
  v1::BackupChunk chunk;
  for (std::size_t at = 0; at < bytes.size(); at += kChunkBytes) {
    chunk.set_data(bytes.substr(at, kChunkBytes));
    if (!writer->Write(chunk)) return grpc::Status::CANCELLED;
  }
  spdlog::info("op=backup slot={} epoch={} bytes={} to={}", backup->header.slot(),
               base::FormatEpoch(backup->header.epoch()), bytes.size(), context->peer());
  return grpc::Status::OK;
}

}  // namespace onepiece::nodemanager
