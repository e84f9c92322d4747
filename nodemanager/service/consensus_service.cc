#include "nodemanager/service/consensus_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/base/clock.h"
#include "cluster/rpc/read_only.h"
#include "cluster/rpc/status.h"
#include "cluster/service/options.h"
#include "nodemanager/replication/codec.h"
#include "nodemanager/state/plan_state.h"

namespace onepiece::nodemanager {
namespace {

// The limit of node ids, because a seat's name is a node id.
constexpr std::size_t kMaxName = 128;

bool IsNameCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
}

absl::Status BadSeat(const char* field, const std::string& message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_SEAT",
                         absl::StrCat(field, ": ", message), {{"field", field}});
}

grpc::Status Answer(std::string_view change, const std::string& seat,
                    const absl::StatusOr<paxos::Members>& members, v1::ConsensusMembers* response) {
  if (!members.ok()) return rpc::ToGrpc(members.status());
  spdlog::info("op={} seat={} seats={} voters={}", change, seat, members->seats.size(),
               members->voters());
  EncodeSeats(*members, response->mutable_seats());
  AddWarnings(*response);
  return grpc::Status::OK;
}

}  // namespace

absl::Status CheckSeat(const std::string& name, const std::string& address) {
  if (name.empty() || name.size() > kMaxName ||
      !std::all_of(name.begin(), name.end(), IsNameCharacter)) {
    return BadSeat("name", absl::StrCat("1 to ", kMaxName, " letters, digits, '-', '_' and '.'"));
  }
  if (const absl::Status status = service::CheckAddress("address", address); !status.ok())
    return BadSeat("address", base::Message(status));
  if (address.size() > kMaxNameBytes || address.substr(address.rfind(':')) == ":0")
    return BadSeat("address", "the port that others dial, and at most 255 bytes");
  return absl::OkStatus();
}

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
}

grpc::Status ConsensusService::GetReplica(grpc::ServerContext*, const v1::GetReplicaRequest*,
                                          v1::ReplicaStatus* response) {
  *response = log_.StatusWithHash();
  AddWarnings(*response->mutable_members());
  return grpc::Status::OK;
}

grpc::Status ConsensusService::AddSeat(grpc::ServerContext*, const v1::AddSeatRequest* request,
                                       v1::ConsensusMembers* response) {
  if (read_only_) return rpc::RefuseReadOnly();
  const absl::Status status = CheckSeat(request->name(), request->address());
  if (!status.ok()) return rpc::ToGrpc(status);
  return Answer("add_seat", request->name(),
                log_.AddSeat({.name = request->name(), .address = request->address()}), response);
}

grpc::Status ConsensusService::RemoveSeat(grpc::ServerContext*,
                                          const v1::RemoveSeatRequest* request,
                                          v1::ConsensusMembers* response) {
  if (read_only_) return rpc::RefuseReadOnly();
  return Answer("remove_seat", request->name(), log_.RemoveSeat(request->name()), response);
}

grpc::Status ConsensusService::ReplaceSeat(grpc::ServerContext*,
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
  return Answer("replace_seat", request->name(), log_.ReplaceSeat(request->name(), seat), response);
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

// Watchers need not be woken: a stream looks at the state a few times a second.
grpc::Status ConsensusService::RaiseFeatureLevel(grpc::ServerContext*,
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
  command.mutable_raise_feature_level()->set_level(level);
  command.mutable_raise_feature_level()->set_actor(request->actor());
  const absl::StatusOr<v1::CommandResult> result = log_.Propose(command);
  const absl::Status status = result.ok() ? ToStatus(*result) : result.status();
  spdlog::info("op=raise_feature_level from={} to={} actor=\"{}\" result=\"{}\"",
               now.feature_level(), level, request->actor(),
               status.ok() ? "ok" : base::Message(status));
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

}  // namespace onepiece::nodemanager
