// Tests the client's calls about the cluster's configuration.
#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>

#include <QtTest>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/client/client.h"
#include "cluster/rpc/status.h"
#include "onepiece/v1/cluster_config.grpc.pb.h"
#include "tests/test_main.h"

namespace onepiece::client {
namespace {

/// Does not answer the first call of ApplyConfig.
class FakeConfigService final : public v1::ConfigService::Service {
 public:
  FakeConfigService() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeConfigService() override { server_->Shutdown(gpr_inf_past(GPR_CLOCK_MONOTONIC)); }
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::vector<v1::ApplyConfigRequest> applied() {
    const base::MutexLock lock(mutex_);
    return applied_;
  }

  grpc::Status GetConfig(grpc::ServerContext*, const v1::GetConfigRequest* request,
                         v1::ConfigRevision* response) override {
    if (request->revision() == 9) {
      return rpc::ToGrpc(
          base::MakeError(absl::StatusCode::kNotFound, "REVISION_UNKNOWN", "not kept"));
    }
    response->set_revision(request->revision() == 0 ? 5 : request->revision());
    return grpc::Status::OK;
  }
  grpc::Status ListConfigRevisions(grpc::ServerContext*,
                                   const v1::ListConfigRevisionsRequest* request,
                                   v1::ListConfigRevisionsResponse* response) override {
    response->add_revisions()->set_revision(static_cast<std::uint64_t>(request->page_size()));
    response->set_next_page_token(request->page_token() + "+");
    return grpc::Status::OK;
  }
  grpc::Status ApplyConfig(grpc::ServerContext*, const v1::ApplyConfigRequest* request,
                           v1::ApplyConfigResponse* response) override {
    const base::MutexLock lock(mutex_);
    applied_.push_back(*request);
    if (applied_.size() == 1) return {grpc::StatusCode::UNAVAILABLE, "the answer was lost"};
    if (request->base_revision() == 4) {
      return rpc::ToGrpc(base::MakeError(absl::StatusCode::kAborted, "STALE_REVISION", "changed"));
    }
    response->set_revision(6);
    response->add_changes()->set_path("elasticity.policy");
    return grpc::Status::OK;
  }

 private:
  int port_ = 0;
  base::Mutex mutex_;
  std::vector<v1::ApplyConfigRequest> applied_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

class ClientConfigTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    service_ = std::make_unique<FakeConfigService>();
    ClientOptions options;
    options.nodemanagers = {service_->address()};
    client_ = std::make_unique<Client>(options);
  }

  void Revisions_AreReadAndListed() {
    QCOMPARE(client_->GetConfig()->revision(), std::uint64_t{5});
    QCOMPARE(client_->GetConfig(3)->revision(), std::uint64_t{3});
    const auto unknown = client_->GetConfig(9);
    QVERIFY(absl::IsNotFound(unknown.status()));
    QCOMPARE(base::GetReason(unknown.status()).reason, std::string("REVISION_UNKNOWN"));
    v1::ListConfigRevisionsRequest request;
    request.set_page_size(7);
    request.set_page_token("x");
    const auto page = client_->ListConfigRevisions(request);
    QVERIFY(page.ok());
    QCOMPARE(page->revisions(0).revision(), std::uint64_t{7});
    QCOMPARE(page->next_page_token(), std::string("x+"));
  }

  // A lost answer makes the client ask again, and the request id tells the server that it is the
  // same change.
  void Apply_AskedAgain_IsTheSameRequest() {
    v1::ApplyConfigRequest request;
    request.set_actor("operator:ann");
    const auto applied = client_->ApplyConfig(request);
    QVERIFY2(applied.ok(), base::Message(applied.status()).c_str());
    QCOMPARE(applied->revision(), std::uint64_t{6});
    QCOMPARE(applied->changes(0).path(), std::string("elasticity.policy"));
    const auto asked = service_->applied();
    QCOMPARE(asked.size(), std::size_t{2});
    QVERIFY(!asked[0].request_id().empty());
    QCOMPARE(asked[0].request_id(), asked[1].request_id());
    // A refusal is an answer.
    request.set_base_revision(4);
    request.set_request_id("mine");
    const auto refused = client_->ApplyConfig(request);
    QCOMPARE(base::GetReason(refused.status()).reason, std::string("STALE_REVISION"));
    QCOMPARE(service_->applied().size(), std::size_t{3});
    QCOMPARE(service_->applied()[2].request_id(), std::string("mine"));
  }

 private:
  std::unique_ptr<FakeConfigService> service_;
  std::unique_ptr<Client> client_;
};

}  // namespace onepiece::client

ONEPIECE_TEST(onepiece::client::ClientConfigTest)
#include "config_test.moc"
