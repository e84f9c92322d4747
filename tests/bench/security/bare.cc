#include "tests/bench/security/bare.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/tls.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace onepiece::bench {

namespace {

constexpr std::int64_t kPartBytes = 1 << 20;

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> CredentialsOf(
    const std::string& identity) {
  if (identity.empty()) return grpc::InsecureServerCredentials();
  return rpc::MakeServerCredentials({.folder = identity}, rpc::Clients::kNodesAndPrincipals,
                                    base::SystemClock());
}

}  // namespace

class Bare::Service final : public v1::GenerationService::Service {
 public:
  grpc::Status GetJob(grpc::ServerContext* /*context*/, const v1::GetJobRequest* /*request*/,
                      v1::Job* /*job*/) override {
    return grpc::Status::OK;
  }
  grpc::Status FetchResult(grpc::ServerContext* /*context*/, const v1::FetchResultRequest* request,
                           grpc::ServerWriter<v1::FetchResultResponse>* writer) override {
    v1::FetchResultResponse part;
    for (std::int64_t left = request->limit_bytes(); left > 0; left -= kPartBytes) {
      part.set_chunk(std::string(static_cast<std::size_t>(std::min(left, kPartBytes)), 'x'));
      if (!writer->Write(part)) break;
    }
    return grpc::Status::OK;
  }
};

Bare::Bare() : service_(std::make_unique<Service>()) {}

Bare::~Bare() {
  if (server_ != nullptr) server_->Shutdown();
}

absl::StatusOr<std::unique_ptr<Bare>> Bare::Start(const std::string& identity) {
  std::unique_ptr<Bare> bare(new Bare);
  ONEPIECE_ASSIGN_OR_RETURN(const auto credentials, CredentialsOf(identity));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", credentials, &port);
  builder.RegisterService(bare->service_.get());
  bare->server_ = builder.BuildAndStart();
  if (bare->server_ == nullptr) return absl::UnavailableError("a bare server does not start");
  bare->stub_ = v1::GenerationService::NewStub(rpc::MakeChannel(absl::StrCat("127.0.0.1:", port)));
  return bare;
}

absl::Status Bare::Call() {
  return rpc::Call(*stub_, &v1::GenerationService::Stub::GetJob, {}, std::chrono::seconds(10))
      .status();
}

absl::Status Bare::Fetch(std::int64_t bytes) {
  grpc::ClientContext context;
  rpc::SetTimeout(context, std::chrono::seconds(60));
  v1::FetchResultRequest request;
  request.set_limit_bytes(bytes);
  const auto reader = stub_->FetchResult(&context, request);
  v1::FetchResultResponse part;
  while (reader->Read(&part)) {
  }
  return rpc::FromGrpc(reader->Finish());
}

}  // namespace onepiece::bench
