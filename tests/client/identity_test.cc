// Tests the calls of IdentityService: that they go to the replica that leads.
#include <QtTest>

#include "cluster/client/client.h"
#include "cluster/rpc/replicas.h"
#include "tests/fake_identity.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::client {
namespace {

/// A replica that does not lead and names the one that does.
class FollowingReplica final : public v1::IdentityService::Service {
 public:
  explicit FollowingReplica(std::string leader) : leader_(std::move(leader)), server_({}) {
    server_.AddService(*this);
    ONEPIECE_CHECK(server_.Start().ok());
  }
  ~FollowingReplica() override { server_.Shutdown({}); }
  [[nodiscard]] const std::string& address() const { return server_.address(); }

  grpc::Status Join(grpc::ServerContext*, const v1::JoinRequest*, v1::JoinResponse*) override {
    return NotLeader();
  }
  grpc::Status RevokeToken(grpc::ServerContext*, const v1::RevokeTokenRequest*,
                           google::protobuf::Empty*) override {
    return NotLeader();
  }

 private:
  [[nodiscard]] grpc::Status NotLeader() const {
    return rpc::ToGrpc(base::MakeError(absl::StatusCode::kUnavailable, rpc::kNotLeader,
                                       "another one leads", {{rpc::kLeader, leader_}}));
  }

  const std::string leader_;
  rpc::Server server_;
};

}  // namespace

class ClientIdentityTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Calls_GoToTheLeader() {
    testing::FakeIdentity leader;
    const FollowingReplica follower(leader.address());
    Client client({.nodemanagers = {follower.address()}});
    v1::RevokeTokenRequest revoke;
    revoke.set_id("0123456789abcdef");
    const absl::Status revoked = client.RevokeToken(revoke);
    QVERIFY2(revoked.ok(), revoked.ToString().c_str());
    // The leader's refusal is the answer.
    revoke.set_id("ff");
    QCOMPARE(Reason(client.RevokeToken(revoke)), std::string("TOKEN_UNKNOWN"));
    QCOMPARE(leader.requests().size(), std::size_t{2});
  }

  void Join_HasARequestId() {
    testing::FakeIdentity leader;
    const FollowingReplica follower(leader.address());
    Client client({.nodemanagers = {follower.address()}});
    QCOMPARE(Reason(client.Join({}).status()), std::string("WRONG_TOKEN"));
    QCOMPARE(leader.requests().size(), std::size_t{1});
    QVERIFY(leader.requests()[0].find("request_id: ") != std::string::npos);
  }
};

}  // namespace onepiece::client

ONEPIECE_TEST(onepiece::client::ClientIdentityTest)
#include "identity_test.moc"
