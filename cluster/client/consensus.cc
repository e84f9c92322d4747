// The calls to the NodeManager's replicas: how they are, and who belongs to the group.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "cluster/base/status.h"
#include "cluster/client/client.h"
#include "cluster/client/client_impl.h"
#include "cluster/rpc/channel.h"
#include "onepiece/v1/consensus.grpc.pb.h"

namespace onepiece::client {
namespace {

using ConsensusStub = v1::ConsensusService::Stub;

constexpr std::chrono::seconds kStepDownTimeout(5);
// Enough for the largest state over a line of 10 Mbit/s.
constexpr std::chrono::seconds kBackupTimeout(120);

/// Returns true when a replica may have made the change although its answer did not come. A wrong
/// service and a follower have surely done nothing.
bool AnswerLost(const absl::Status& status) {
  return rpc::IsAboutTheReplica(status) && !absl::IsUnimplemented(status) &&
         !rpc::LeaderHint(status).has_value();
}

/// Calls the leader. An error after a lost answer says that the change may have been made.
template <typename Request, typename Response>
absl::StatusOr<Response> AskLeader(ProxySet& managers,
                                   grpc::Status (ConsensusStub::*method)(grpc::ClientContext*,
                                                                         const Request&, Response*),
                                   const Request& request) {
  Response response;
  bool lost = false;
  const absl::Status status = managers.CallManager([&](const auto& channel, auto& context) {
    ConsensusStub stub(channel);
    const grpc::Status answer = (stub.*method)(&context, request, &response);
    lost |= AnswerLost(ReadAnswer(answer).status);
    return answer;
  });
  if (status.ok()) return response;
  if (!lost) return status;
  return base::Annotate(status,
                        "an attempt was not answered and may have made the change (see `onepiece "
                        "cluster members`)");
}

/// Makes one call to the replica at `address`.
template <typename Request, typename Response>
absl::StatusOr<Response> AskAt(const std::string& address,
                               grpc::Status (ConsensusStub::*method)(grpc::ClientContext*,
                                                                     const Request&, Response*),
                               const Request& request, base::Duration timeout,
                               const ClientOptions& options) {
  ConsensusStub stub(rpc::MakeChannel(address, {}, options.user_agent));
  grpc::ClientContext context;
  rpc::SetTimeLeft(context, timeout);
  const std::stop_callback cancel(options.stop, [&context] { context.TryCancel(); });
  Response response;
  const grpc::Status answer = (stub.*method)(&context, request, &response);
  if (!answer.ok()) return ReadAnswer(answer).status;
  return response;
}

/// Asks the addresses that have no answer yet, all at the same time.
void AskThose(const std::set<std::string>& addresses, const ClientOptions& options,
              std::map<std::string, absl::StatusOr<v1::ReplicaStatus>>& answers) {
  std::vector<std::jthread> threads;
  for (const std::string& address : addresses) {
    if (answers.contains(address)) continue;
    auto& answer = answers[address];  // The items of a std::map do not move.
    threads.emplace_back([&answer, &options, address] {
      answer = AskAt(address, &ConsensusStub::GetReplica, v1::GetReplicaRequest(),
                     options.attempt_timeout, options);
    });
  }
}

}  // namespace

std::vector<ReplicaAnswer> Client::AskReplicas() {
  std::map<std::string, absl::StatusOr<v1::ReplicaStatus>> answers;
  const auto known = impl_->proxies.managers().addresses();
  AskThose({known.begin(), known.end()}, impl_->options, answers);
  std::map<std::string, std::string> names;  // Seats' names, by address.
  for (const auto& [address, status] : answers) {
    if (!status.ok()) continue;
    for (const v1::Seat& seat : status->members().seats()) names[seat.address()] = seat.name();
  }
  std::set<std::string> seats;
  for (const auto& [address, name] : names) seats.insert(address);
  AskThose(seats, impl_->options, answers);
  std::vector<ReplicaAnswer> result;
  std::set<std::string> told;
  for (auto& [address, status] : answers) {
    // One replica may be known under two addresses.
    if (status.ok() && !told.insert(status->address()).second) continue;
    std::string name = status.ok() ? status->name() : names[address];
    result.push_back({address, std::move(name), std::move(status)});
  }
  std::ranges::sort(result, {}, &ReplicaAnswer::name);
  return result;
}

absl::StatusOr<v1::ConsensusMembers> Client::AddSeat(const v1::AddSeatRequest& request) {
  return AskLeader(impl_->proxies, &ConsensusStub::AddSeat, request);
}

absl::StatusOr<v1::ConsensusMembers> Client::RemoveSeat(const v1::RemoveSeatRequest& request) {
  return AskLeader(impl_->proxies, &ConsensusStub::RemoveSeat, request);
}

absl::StatusOr<v1::ConsensusMembers> Client::ReplaceSeat(const v1::ReplaceSeatRequest& request) {
  return AskLeader(impl_->proxies, &ConsensusStub::ReplaceSeat, request);
}

absl::StatusOr<v1::RaiseFeatureLevelResponse> Client::RaiseFeatureLevel(
    v1::RaiseFeatureLevelRequest request) {
  if (request.request_id().empty()) request.set_request_id(base::Uid::GenerateRandom().ToString());
  return AskLeader(impl_->proxies, &ConsensusStub::RaiseFeatureLevel, request);
}

absl::Status Client::StepDown(const std::string& address) {
  const absl::Status status = AskAt(address, &ConsensusStub::StepDown, v1::StepDownRequest(),
                                    base::Scaled(kStepDownTimeout), impl_->options)
                                  .status();
  if (!AnswerLost(status)) return status;
  return base::MakeError(
      absl::StatusCode::kUnavailable, "OUTCOME_UNKNOWN",
      address + " was asked to step down, and its answer was lost (" + base::Message(status) + ")");
}

absl::StatusOr<v1::TakeSnapshotResponse> Client::TakeSnapshot(const std::string& address) {
  return AskAt(address, &ConsensusStub::TakeSnapshot, v1::TakeSnapshotRequest(),
               base::Scaled(std::chrono::seconds(30)), impl_->options);
}

absl::StatusOr<v1::ListLogResponse> Client::ListLog(const std::string& address,
                                                    const v1::ListLogRequest& request) {
  return AskAt(address, &ConsensusStub::ListLog, request, base::Scaled(std::chrono::seconds(10)),
               impl_->options);
}

absl::Status Client::Backup(const std::string& address, const v1::BackupRequest& request,
                            const ChunkSink& sink) {
  ConsensusStub stub(rpc::MakeChannel(address, {}, impl_->options.user_agent));
  grpc::ClientContext context;
  rpc::SetTimeLeft(context, base::Scaled(kBackupTimeout));
  const std::stop_callback cancel(impl_->options.stop, [&context] { context.TryCancel(); });
  const auto reader = stub.Backup(&context, request);
  v1::BackupChunk chunk;
  absl::Status status;
  while (status.ok() && reader->Read(&chunk)) status = sink(chunk.data());
  if (!status.ok()) context.TryCancel();
  const grpc::Status answer = reader->Finish();
  return status.ok() && !answer.ok() ? ReadAnswer(answer).status : status;
}

}  // namespace onepiece::client
