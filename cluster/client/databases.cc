#include "cluster/client/databases.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"
#include "onepiece/v1/database.grpc.pb.h"

namespace onepiece::client {
namespace {

using DatabaseStub = v1::DatabaseService::Stub;
using namespace std::chrono_literals;

constexpr base::Duration kAnswerTimeout = 5s;
/// A purge of many results takes longer.
constexpr base::Duration kPurgeTimeout = 30s;
constexpr base::Duration kStreamTimeout = 60s;

absl::Status Damaged(const std::string& what) {
  return base::MakeError(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH",
                         "the result arrived damaged: " + what);
}

}  // namespace

absl::StatusOr<std::vector<DatabaseAnswer>> AskDatabases(Client& client) {
  ONEPIECE_ASSIGN_OR_RETURN(const v1::Cluster cluster, client.GetCluster());
  std::vector<DatabaseAnswer> answers;
  for (const v1::Node& node : cluster.nodes()) {
    if (node.role() != v1::DATABASE || node.state() == v1::Node::DEAD) continue;
    answers.push_back({node.node_id(), node.address(), absl::UnavailableError("not asked")});
  }
  std::ranges::sort(answers, {}, &DatabaseAnswer::node_id);
  std::vector<std::jthread> threads;
  for (DatabaseAnswer& answer : answers) {
    threads.emplace_back([&answer] {
      DatabaseStub stub(rpc::MakeChannel(answer.address));
      answer.database =
          rpc::Call(stub, &DatabaseStub::GetDatabase, v1::GetDatabaseRequest(), kAnswerTimeout);
    });
  }
  // This joins the threads, which write into `answers`.
  threads.clear();
  return answers;
}

absl::StatusOr<v1::JobRecord> GetJobAt(const std::string& address, std::string_view uid) {
  DatabaseStub stub(rpc::MakeChannel(address));
  v1::GetJobRecordRequest request;
  request.set_uid(std::string(uid));
  return rpc::Call(stub, &DatabaseStub::GetJob, request, kAnswerTimeout);
}

absl::StatusOr<v1::ListJobsResponse> ListJobsAt(const std::string& address,
                                                const v1::ListJobsRequest& request) {
  DatabaseStub stub(rpc::MakeChannel(address));
  return rpc::Call(stub, &DatabaseStub::ListJobs, request, kAnswerTimeout);
}

absl::StatusOr<v1::PurgeResultsResponse> PurgeResultsAt(const std::string& address,
                                                        const v1::PurgeResultsRequest& request) {
  DatabaseStub stub(rpc::MakeChannel(address));
  return rpc::Call(stub, &DatabaseStub::PurgeResults, request, kPurgeTimeout);
}

absl::StatusOr<v1::ResultArtifact> FetchAt(const std::string& address,
                                           const v1::FetchResultRequest& request,
                                           const ChunkSink& sink) {
  DatabaseStub stub(rpc::MakeChannel(address));
  grpc::ClientContext context;
  rpc::SetTimeout(context, kStreamTimeout);
  const auto reader = stub.FetchResult(&context, request);
  v1::FetchResultResponse response;
  v1::ResultArtifact artifact;
  std::int64_t received = 0;
  base::Sha256 sha256;
  absl::Status status;
  while (status.ok() && reader->Read(&response)) {
    if (response.has_artifact()) artifact = response.artifact();
    sha256.Update(response.chunk());
    received += static_cast<std::int64_t>(response.chunk().size());
    status = sink(response.chunk());
  }
  // Without this, Finish() would wait for a server that still has chunks to send.
  if (!status.ok()) context.TryCancel();
  const grpc::Status end = reader->Finish();
  if (!status.ok()) return status;
  if (!end.ok()) return rpc::FromGrpc(end);
  const std::int64_t rest = artifact.size_bytes() - request.offset_bytes();
  const std::int64_t wanted =
      request.limit_bytes() > 0 ? std::min(request.limit_bytes(), rest) : rest;
  if (received != wanted) return Damaged(absl::StrCat(received, " bytes instead of ", wanted));
  // The SHA-256 is that of the whole artifact, so nothing tells whether a part is right.
  if (received == artifact.size_bytes() && sha256.FinishHex() != artifact.sha256())
    return Damaged("its SHA-256 differs");
  return artifact;
}

}  // namespace onepiece::client
