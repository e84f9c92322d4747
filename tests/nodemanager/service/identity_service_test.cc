// Tests IdentityService and what the NodeManager's other services ask of their callers, through
// gRPC with TLS and a door.
#include "nodemanager/service/identity_service.h"

#include <QFile>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "cluster/identity/seal.h"
#include "cluster/identity/token.h"
#include "google/protobuf/util/json_util.h"
#include "tests/nodemanager/service/secure_world.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using identity::Role;
using identity::Scope;
using IdentityStub = v1::IdentityService::Stub;
using NodeStub = v1::NodeManagerService::Stub;
constexpr auto kCallLimit = std::chrono::seconds(20);

template <typename S, typename Request, typename Response>
absl::StatusOr<Response> Ask(S& stub,
                             grpc::Status (S::*method)(grpc::ClientContext*, const Request&,
                                                       Response*),
                             const std::type_identity_t<Request>& request = {}) {
  return rpc::Call(stub, method, request, kCallLimit);
}

v1::CreateTokenRequest JoinTokenRequest(const std::string& roles, std::uint32_t uses = 1) {
  v1::CreateTokenRequest request;
  request.mutable_join()->set_roles(roles);
  request.mutable_join()->set_uses_left(uses);
  return request;
}

v1::CreateTokenRequest BearerRequest(const std::string& name, const std::string& scopes) {
  v1::CreateTokenRequest request;
  request.mutable_bearer()->set_name(name);
  request.mutable_bearer()->set_tenant("films");
  request.mutable_bearer()->set_scopes(scopes);
  return request;
}

v1::JoinRequest JoinWith(const std::string& token, const std::string& node_id,
                         const identity::PrivateKey& key, const std::string& request_id = "") {
  v1::JoinRequest request;
  request.set_secret(identity::JoinToken::Parse(token)->secret);
  request.set_node_id(node_id);
  request.set_signing_request(identity::SigningRequest::Make(key).ToPem());
  request.set_request_id(request_id);
  return request;
}

v1::RegisterNodeRequest RegisterOf(const std::string& id, v1::Role role) {
  v1::RegisterNodeRequest request;
  *request.mutable_node() = MakeNode(id, role);
  return request;
}

v1::ReportNodeRequest ReportOf(const std::string& id, std::uint64_t epoch = 0,
                               const std::string& authority = "") {
  v1::ReportNodeRequest report;
  report.set_node_id(id);
  report.set_incarnation(1);
  report.set_state(v1::Node::READY);
  report.set_identity_epoch(epoch);
  report.set_signing_authority(authority);
  return report;
}

std::string AuditOf(SecureReplica& replica, std::size_t from_end = 0) {
  std::string text;
  replica.controller().Read([&](const StateMachine& state) {
    const v1::AuditEntry& entry = state.audit()[state.audit().size() - 1 - from_end];
    text = absl::StrCat(entry.action(), " ", entry.caller(), " ", entry.answer());
  });
  return text;
}

}  // namespace

class IdentityServiceTest : public QObject {
  Q_OBJECT
 public:
  static void initMain() { rpc::RequireTls13(); }

 private:
  void Begin(int replicas = 1) {
    world_ = std::make_unique<SecureWorld>(replicas);
    world_->Start();
    leader_ = &world_->Leader();
    leader_->keeper().Look();
    admin_ = world_->Identities(world_->Admin());
  }
  absl::StatusOr<std::string> JoinToken(const std::string& roles, std::uint32_t uses = 1) {
    const auto made = Ask(*admin_, &IdentityStub::CreateToken, JoinTokenRequest(roles, uses));
    if (!made.ok()) return made.status();
    return made->token();
  }
  std::uint64_t Epoch() {
    std::uint64_t epoch = 0;
    leader_->controller().Read([&](const StateMachine& s) { epoch = s.identity().epoch(); });
    return epoch;
  }

 private Q_SLOTS:
  void cleanup() {
    admin_.reset();
    world_.reset();
  }

  // ---- The first CA ----

  void Leader_WithTheCa_GivesItToTheCluster_Sealed() {
    Begin();
    v1::AuthorityRecord authority;
    leader_->controller().Read([&](const StateMachine& state) {
      QCOMPARE(state.identity().authorities().size(), std::size_t{1});
      authority = state.identity().authorities()[0];
      QVERIFY(state.Serialize().find("PRIVATE KEY") == std::string::npos);
    });
    QCOMPARE(authority.certificate(), world_->authority().certificate().ToPem());
    QVERIFY(identity::ReadSealKeyFile(leader_->folder()).ok());
    QVERIFY(leader_->keeper().Signer().ok());
    // Once.
    const std::uint64_t epoch = Epoch();
    leader_->keeper().Look();
    QCOMPARE(Epoch(), epoch);
    QCOMPARE(Ask(*admin_, &IdentityStub::GetAuthority)->fingerprint(),
             world_->authority().certificate().Fingerprint());
  }

  void Leader_TakesTheFirstJoinToken_Once() {
    world_ = std::make_unique<SecureWorld>();
    const identity::JoinToken token =
        identity::JoinToken::Generate(world_->authority().certificate().PublicKeyHash());
    v1::JoinToken record;
    record.set_secret_hash(identity::HashOfSecret(token.secret));
    record.set_roles("instance");
    record.set_uses_left(1);
    record.set_expires_unix_ms(base::ToUnixMs(world_->clock().WallNow() + std::chrono::hours(1)));
    std::string json;
    QVERIFY(google::protobuf::util::MessageToJsonString(record, &json).ok());
    const std::string path = world_->replica(0).folder() + "/join-token.json";
    QVERIFY(identity::WriteSecretFile(path, json).ok());
    world_->Start();
    leader_ = &world_->Leader();
    leader_->keeper().Look();
    QVERIFY(!QFile::exists(QString::fromStdString(path)));
    const auto joiner = world_->Identities(world_->Nobody());
    const identity::PrivateKey key = identity::PrivateKey::Generate();
    const auto joined = Ask(*joiner, &IdentityStub::Join, JoinWith(token.Format(), "inst-1", key));
    QVERIFY2(joined.ok(), base::Message(joined.status()).c_str());
  }

  // ---- Joining ----

  void Join_GivesACertificateOfTheTokensRole() {
    Begin();
    const auto token = JoinToken("instance");
    QVERIFY2(token.ok(), base::Message(token.status()).c_str());
    QCOMPARE(identity::JoinToken::Parse(*token)->ca_hash,
             world_->authority().certificate().PublicKeyHash());
    const identity::PrivateKey key = identity::PrivateKey::Generate();
    const auto joiner = world_->Identities(world_->Nobody());
    const auto joined = Ask(*joiner, &IdentityStub::Join, JoinWith(*token, "inst-1", key));
    QVERIFY2(joined.ok(), base::Message(joined.status()).c_str());
    QCOMPARE(joined->cluster_id(), std::string(kPirates));
    QCOMPARE(joined->nodemanagers_size(), 1);
    const auto bundle = identity::TrustBundle::FromPem(joined->authorities());
    const auto certificate = identity::Certificate::FromPem(joined->certificate());
    // A joiner whose clock is four minutes behind can use it at once.
    const auto subject = bundle->Verify(*certificate, identity::Purpose::kServer,
                                        world_->clock().WallNow() - std::chrono::minutes(4));
    QVERIFY2(subject.ok(), base::Message(subject.status()).c_str());
    QVERIFY(*subject == SecureWorld::Node("inst-1", Role::kInstance));
    QVERIFY(identity::CheckKeyIsOf(key, *certificate).ok());
    const auto listed = Ask(*admin_, &IdentityStub::ListCertificates);
    QCOMPARE(listed->certificates_size(), 1);
    QCOMPARE(listed->certificates(0).serial(), certificate->SerialNumber());
    QVERIFY(AuditOf(*leader_).starts_with("issue_certificate token/"));
  }

  void Join_WithABadToken_IsRefused() {
    Begin();
    const auto joiner = world_->Identities(world_->Nobody());
    const identity::PrivateKey key = identity::PrivateKey::Generate();
    const std::string wrong =
        identity::JoinToken::Generate(world_->authority().certificate().PublicKeyHash()).Format();
    const auto join = [&](const std::string& token, const std::string& id) {
      return Reason(Ask(*joiner, &IdentityStub::Join, JoinWith(token, id, key)).status());
    };
    QCOMPARE(join(wrong, "inst-1"), std::string("WRONG_TOKEN"));
    const std::string once = *JoinToken("instance");
    QCOMPARE(join(once, "inst-1"), std::string());
    QCOMPARE(join(once, "inst-2"), std::string("TOKEN_USED"));
    const std::string late = *JoinToken("instance");
    world_->clock().Advance(std::chrono::hours(1));
    QCOMPARE(join(late, "inst-3"), std::string("TOKEN_EXPIRED"));
    const std::string revoked = *JoinToken("instance");
    v1::RevokeTokenRequest revoke;
    revoke.set_id(
        identity::TokenId(identity::HashOfSecret(identity::JoinToken::Parse(revoked)->secret)));
    QVERIFY(Ask(*admin_, &IdentityStub::RevokeToken, revoke).ok());
    QCOMPARE(join(revoked, "inst-4"), std::string("WRONG_TOKEN"));
    v1::JoinRequest bad = JoinWith(*JoinToken("instance"), "no/id", key);
    QCOMPARE(Reason(Ask(*joiner, &IdentityStub::Join, bad).status()), std::string("BAD_SUBJECT"));
    bad.set_node_id("inst-5");
    bad.set_signing_request("-----BEGIN CERTIFICATE REQUEST-----\nAAAA");
    QVERIFY(!Ask(*joiner, &IdentityStub::Join, bad).ok());
    bad.set_secret("short");
    QCOMPARE(Reason(Ask(*joiner, &IdentityStub::Join, bad).status()), std::string("WRONG_TOKEN"));
  }

  // The answer was lost, and the token is used up: the joiner must not stand outside.
  void Join_Again_IsAnsweredWithoutASecondUse() {
    Begin();
    const std::string token = *JoinToken("instance", 2);
    const auto joiner = world_->Identities(world_->Nobody());
    const identity::PrivateKey key = identity::PrivateKey::Generate();
    const auto first = Ask(*joiner, &IdentityStub::Join, JoinWith(token, "inst-1", key, "r1"));
    QVERIFY(first.ok());
    const auto other = Ask(*joiner, &IdentityStub::Join,
                           JoinWith(token, "inst-2", identity::PrivateKey::Generate(), "r1"));
    QVERIFY2(other.ok(), base::Message(other.status()).c_str());  // Another key: another request.
    world_->clock().Advance(std::chrono::hours(2));
    const auto again = Ask(*joiner, &IdentityStub::Join, JoinWith(token, "inst-1", key, "r1"));
    QVERIFY2(again.ok(), base::Message(again.status()).c_str());
    QVERIFY(
        identity::CheckKeyIsOf(key, *identity::Certificate::FromPem(again->certificate())).ok());
    QCOMPARE(
        Reason(Ask(*joiner, &IdentityStub::Join, JoinWith(token, "inst-1", key, "r2")).status()),
        std::string("TOKEN_EXPIRED"));
    // What was given away can be revoked.
    QCOMPARE(Ask(*admin_, &IdentityStub::ListCertificates)->certificates_size(), 3);
    QCOMPARE(Ask(*admin_, &IdentityStub::ListTokens)->join_tokens(0).uses_left(), std::uint32_t{0});
  }

  // A token for instances would otherwise make its holder a proxy, which gets the cluster's secret.
  void Join_UnderTheIdOfAnotherRole_IsRefused() {
    Begin();
    const auto proxy = world_->Nodes(world_->Make(SecureWorld::Node("p1", Role::kProxy)));
    QVERIFY(Ask(*proxy, &NodeStub::RegisterNode, RegisterOf("p1", v1::PROXY)).ok());
    const auto joiner = world_->Identities(world_->Nobody());
    const identity::PrivateKey key = identity::PrivateKey::Generate();
    const std::string instance = *JoinToken("instance", 5), database = *JoinToken("database", 5);
    const auto join = [&](const std::string& token, const std::string& id) {
      return Reason(Ask(*joiner, &IdentityStub::Join, JoinWith(token, id, key)).status());
    };
    QCOMPARE(join(instance, "p1"), std::string("NODE_ID_TAKEN"));
    QCOMPARE(join(database, "db-1"), std::string());
    QCOMPARE(join(instance, "db-1"), std::string("NODE_ID_TAKEN"));
    QCOMPARE(join(database, "db-1"), std::string());  // One that slept past its expiry comes back.
  }

  // ---- Tokens ----

  void BearerToken_WorksUntilItIsRevoked() {
    Begin();
    const auto made =
        Ask(*admin_, &IdentityStub::CreateToken, BearerRequest("ci", "submit,read-own"));
    QVERIFY2(made.ok(), base::Message(made.status()).c_str());
    const auto ci = world_->Identities(world_->Token(made->token()));
    const auto me = Ask(*ci, &IdentityStub::WhoAmI);
    QVERIFY2(me.ok(), base::Message(me.status()).c_str());
    QCOMPARE(me->name(), std::string("ci"));
    QCOMPARE(me->tenant(), std::string("films"));
    QCOMPARE(me->shown(), std::string("token"));
    QCOMPARE(me->scopes_size(), 2);
    QCOMPARE(me->expires_unix_ms(), made->expires_unix_ms());
    QCOMPARE(Reason(Ask(*ci, &IdentityStub::CreateToken, BearerRequest("x", "admin")).status()),
             std::string("MISSING_SCOPE"));
    QCOMPARE(Reason(Ask(*ci, &IdentityStub::GetSealKey).status()), std::string("NODES_ONLY"));
    QCOMPARE(Reason(Ask(*ci, &IdentityStub::Renew).status()), std::string("NO_CERTIFICATE"));
    const auto listed = Ask(*admin_, &IdentityStub::ListTokens);
    QCOMPARE(listed->bearer_ids(0), made->id());
    QCOMPARE(listed->bearer_tokens(0).creator(), std::string("principal/ann"));
    QCOMPARE(listed->bearer_tokens(0).secret_hash(), std::string());
    v1::RevokeTokenRequest revoke;
    revoke.set_id(made->id());
    QVERIFY(Ask(*admin_, &IdentityStub::RevokeToken, revoke).ok());
    QCOMPARE(Reason(Ask(*ci, &IdentityStub::WhoAmI).status()), std::string("WRONG_TOKEN"));
    QCOMPARE(Reason(Ask(*admin_, &IdentityStub::RevokeToken, revoke).status()),
             std::string("TOKEN_UNKNOWN"));
    QCOMPARE(AuditOf(*leader_), std::string("end_token principal/ann TOKEN_UNKNOWN"));
  }

  void BearerToken_Expires() {
    Begin();
    const auto made = Ask(*admin_, &IdentityStub::CreateToken, BearerRequest("ci", "submit"));
    const auto ci = world_->Identities(world_->Token(made->token()));
    QVERIFY(Ask(*ci, &IdentityStub::WhoAmI).ok());
    world_->clock().Advance(std::chrono::hours(24));
    QCOMPARE(Reason(Ask(*ci, &IdentityStub::WhoAmI).status()), std::string("TOKEN_EXPIRED"));
  }

  void CreateToken_BadInput_IsRefused() {
    Begin();
    const auto refused = [&](const v1::CreateTokenRequest& request) {
      return Reason(Ask(*admin_, &IdentityStub::CreateToken, request).status());
    };
    QCOMPARE(refused({}), std::string("BAD_TOKEN"));
    QCOMPARE(refused(BearerRequest("ci", "rule-the-world")), std::string("BAD_SCOPE"));
    QCOMPARE(refused(BearerRequest("c i", "submit")), std::string("BAD_SUBJECT"));
    QCOMPARE(refused(JoinTokenRequest("captain")), std::string("BAD_ROLE"));
    QCOMPARE(refused(JoinTokenRequest("proxy", 10'001)), std::string("BAD_USES"));
    v1::CreateTokenRequest request = BearerRequest("ci", "submit");
    request.set_life_s(-1);
    QCOMPARE(refused(request), std::string("BAD_LIFE"));
    request.set_life_s(826 * 24 * 3600);
    QCOMPARE(refused(request), std::string("BAD_LIFE"));
    request.set_life_s(60);
    request.mutable_quota()->set_jobs_in_flight(-1);
    QCOMPARE(refused(request), std::string("BAD_QUOTA"));
    request.mutable_quota()->set_jobs_in_flight(0);
    request.mutable_quota()->set_jobs_per_s(std::nan(""));
    QCOMPARE(refused(request), std::string("BAD_QUOTA"));
    request.mutable_quota()->set_jobs_per_s(2.5);
    QCOMPARE(refused(request), std::string());
    QCOMPARE(Ask(*admin_, &IdentityStub::ListTenants)->tenants(0).quota().jobs_per_s(), 2.5);
  }

  void Tenants_SeeThemselves() {
    Begin();
    v1::SetTenantRequest set;
    for (const char* name : {"films", "games"}) {
      set.mutable_tenant()->set_name(name);
      QVERIFY(Ask(*admin_, &IdentityStub::SetTenant, set).ok());
    }
    const auto ci =
        world_->Identities(world_->Make(SecureWorld::Person("ci", {Scope::kSubmit}, "films")));
    const auto reader =
        world_->Identities(world_->Make(SecureWorld::Person("bob", {Scope::kRead}, "films")));
    QCOMPARE(Ask(*ci, &IdentityStub::ListTenants)->tenants_size(), 1);
    QCOMPARE(Ask(*reader, &IdentityStub::ListTenants)->tenants_size(), 2);
    set.mutable_tenant()->set_name("no tenant");
    QCOMPARE(Reason(Ask(*admin_, &IdentityStub::SetTenant, set).status()),
             std::string("BAD_SUBJECT"));
  }

  // ---- Certificates ----

  void Renew_KeepsTheSubject_UnlessItWasRevoked() {
    Begin();
    const auto node = world_->Identities(world_->Make(SecureWorld::Node("p1", Role::kProxy)));
    const identity::PrivateKey key = identity::PrivateKey::Generate();
    v1::RenewRequest request;
    request.set_signing_request(identity::SigningRequest::Make(key).ToPem());
    const auto renewed = Ask(*node, &IdentityStub::Renew, request);
    QVERIFY2(renewed.ok(), base::Message(renewed.status()).c_str());
    const auto certificate = identity::Certificate::FromPem(renewed->certificate());
    QVERIFY(*certificate->GetSubject() == SecureWorld::Node("p1", Role::kProxy));
    // The node goes on with it, until it is revoked with all others of the node.
    const std::string folder = world_->Path("renewed");
    QVERIFY(identity::SaveIdentity(folder, identity::kNodeName, key, *certificate,
                                   *identity::TrustBundle::FromPem(renewed->authorities()))
                .ok());
    const auto again = world_->Identities(world_->Of(folder));
    QCOMPARE(Ask(*again, &IdentityStub::WhoAmI)->roles(0), std::string("proxy"));
    v1::RevokeCertificateRequest revoke;
    revoke.set_subject("node/p1");
    QVERIFY(Ask(*admin_, &IdentityStub::RevokeCertificate, revoke).ok());
    QCOMPARE(Reason(Ask(*again, &IdentityStub::Renew, request).status()),
             std::string("CERTIFICATE_REVOKED"));
    QCOMPARE(Reason(Ask(*again, &IdentityStub::WhoAmI).status()),
             std::string("CERTIFICATE_REVOKED"));
    QCOMPARE(Reason(Ask(*admin_, &IdentityStub::RevokeCertificate).status()),
             std::string("BAD_SERIAL"));
    revoke.set_serial("XYZ");
    revoke.clear_subject();
    QCOMPARE(Reason(Ask(*admin_, &IdentityStub::RevokeCertificate, revoke).status()),
             std::string("BAD_SERIAL"));
  }

  void Revocation_EndsOpenStreams() {
    Begin();
    const std::string folder = world_->Path("watcher");
    const identity::PrivateKey key = identity::PrivateKey::Generate();
    const auto certificate = *world_->authority().Issue(identity::SigningRequest::Make(key),
                                                        SecureWorld::Person("bob", {Scope::kRead}),
                                                        world_->clock().WallNow());
    QVERIFY(identity::SaveIdentity(folder, identity::kNodeName, key, certificate,
                                   identity::TrustBundle(world_->authority().certificate()))
                .ok());
    const auto stub = world_->Nodes(world_->Of(folder));
    grpc::ClientContext context;
    rpc::SetTimeout(context, kCallLimit);
    const auto stream = stub->WatchCluster(&context, {});
    v1::ClusterEvent event;
    QVERIFY(stream->Read(&event));
    v1::RevokeCertificateRequest revoke;
    revoke.set_serial(certificate.SerialNumber());
    QVERIFY(Ask(*admin_, &IdentityStub::RevokeCertificate, revoke).ok());
    QElapsedTimer timer;
    timer.start();
    while (stream->Read(&event)) continue;
    QCOMPARE(Reason(rpc::FromGrpc(stream->Finish())), std::string("CERTIFICATE_REVOKED"));
    QVERIFY(timer.elapsed() < 5000 * base::TimeScale());
  }

  // ---- Nodes ----

  void Nodes_SpeakForThemselves() {
    Begin();
    const auto proxy = world_->Nodes(world_->Make(SecureWorld::Node("p1", Role::kProxy)));
    const auto instance = world_->Nodes(world_->Make(SecureWorld::Node("i1", Role::kInstance)));
    const auto registered = Ask(*proxy, &NodeStub::RegisterNode, RegisterOf("p1", v1::PROXY));
    QVERIFY2(registered.ok(), base::Message(registered.status()).c_str());
    QCOMPARE(registered->cluster_secret().size(), std::size_t{32});
    const auto other = Ask(*instance, &NodeStub::RegisterNode, RegisterOf("i1", v1::INSTANCE));
    QVERIFY(other.ok());
    QCOMPARE(other->cluster_secret(), std::string());
    const auto refused = [&](const auto& answer) { return Reason(answer.status()); };
    QCOMPARE(refused(Ask(*instance, &NodeStub::RegisterNode, RegisterOf("p1", v1::PROXY))),
             std::string("FOREIGN_NODE"));
    QCOMPARE(refused(Ask(*instance, &NodeStub::RegisterNode, RegisterOf("i1", v1::PROXY))),
             std::string("WRONG_ROLE"));
    QCOMPARE(refused(Ask(*instance, &NodeStub::ReportNode, ReportOf("p1"))),
             std::string("FOREIGN_NODE"));
    v1::DeregisterNodeRequest bye;
    bye.set_node_id("p1");
    bye.set_incarnation(1);
    QCOMPARE(refused(Ask(*instance, &NodeStub::DeregisterNode, bye)), std::string("FOREIGN_NODE"));
    for (const auto& [stub, id, reason] :
         std::vector<std::tuple<NodeStub*, std::string, std::string>>{
             {instance.get(), "p1", "FOREIGN_NODE"}, {proxy.get(), "p1", "WRONG_ROLE"}}) {
      grpc::ClientContext context;
      rpc::SetTimeout(context, kCallLimit);
      v1::WatchAssignmentRequest watch;
      watch.set_node_id(id);
      const auto stream = stub->WatchAssignment(&context, watch);
      v1::Assignment assignment;
      QVERIFY(!stream->Read(&assignment));
      QCOMPARE(Reason(rpc::FromGrpc(stream->Finish())), reason);
    }
    // The node itself reports, and hears of the table.
    const auto answer = Ask(*proxy, &NodeStub::ReportNode, ReportOf("p1"));
    QCOMPARE(answer->identity_epoch(), Epoch());
  }

  void Uses_OfProxies_AreCounted_OnceAMinute() {
    Begin();
    const auto proxy = world_->Nodes(world_->Make(SecureWorld::Node("p1", Role::kProxy)));
    const auto instance = world_->Nodes(world_->Make(SecureWorld::Node("i1", Role::kInstance)));
    QVERIFY(Ask(*proxy, &NodeStub::RegisterNode, RegisterOf("p1", v1::PROXY)).ok());
    QVERIFY(Ask(*instance, &NodeStub::RegisterNode, RegisterOf("i1", v1::INSTANCE)).ok());
    const std::int64_t now = base::ToUnixMs(world_->clock().WallNow());
    for (auto* stub : {proxy.get(), instance.get()}) {
      v1::ReportNodeRequest report = ReportOf(stub == proxy.get() ? "p1" : "i1");
      v1::TenantUse& use = *report.add_uses();
      use.set_tenant("films");
      use.set_hour_unix_ms(now);
      use.set_jobs(2);
      v1::TenantUse& old = *report.add_uses();
      old.set_tenant("films");
      old.set_jobs(1);  // Of 1970.
      QVERIFY(Ask(*stub, &NodeStub::ReportNode, report).ok());
    }
    world_->clock().Advance(std::chrono::minutes(1));
    leader_->keeper().Look();
    const auto tenants = Ask(*admin_, &IdentityStub::ListTenants);
    QCOMPARE(tenants->uses_size(), 1);
    QCOMPARE(tenants->uses(0).jobs(), std::int64_t{2});
    QCOMPARE(tenants->uses(0).hour_unix_ms(), now - now % 3'600'000);
  }

  // ---- From one CA to the next ----

  void Rotation_WaitsForTheNodes() {
    Begin();
    const auto proxy = world_->Nodes(world_->Make(SecureWorld::Node("p1", Role::kProxy)));
    QVERIFY(Ask(*proxy, &NodeStub::RegisterNode, RegisterOf("p1", v1::PROXY)).ok());
    const auto report = [&](std::uint64_t epoch, const std::string& authority) {
      return Ask(*proxy, &NodeStub::ReportNode, ReportOf("p1", epoch, authority)).ok();
    };
    const auto rotate = [&] { return Ask(*admin_, &IdentityStub::RotateAuthority); };
    const auto introduced = rotate();
    QVERIFY2(introduced.ok(), base::Message(introduced.status()).c_str());
    QCOMPARE(introduced->rotation(), v1::AuthorityStatus::INTRODUCED);
    QCOMPARE(introduced->fingerprint(), world_->authority().certificate().Fingerprint());
    QCOMPARE(introduced->waiting_for_size(), 1);
    QCOMPARE(Reason(rotate().status()), std::string("ROTATION_WAITS"));
    QVERIFY(report(Epoch() - 1, introduced->fingerprint()));
    const absl::Status waits = rotate().status();
    QCOMPARE(Reason(waits), std::string("ROTATION_WAITS"));
    QVERIFY(base::Message(waits).find("p1") != std::string::npos);
    QVERIFY(report(Epoch(), introduced->fingerprint()));
    const auto overlap = rotate();
    QVERIFY2(overlap.ok(), base::Message(overlap.status()).c_str());
    QCOMPARE(overlap->rotation(), v1::AuthorityStatus::OVERLAP);
    QCOMPARE(overlap->fingerprint(), introduced->next_fingerprint());
    // The next CA signs from here on, and the node gets its certificate of it.
    QCOMPARE(leader_->keeper().Signer()->certificate().Fingerprint(), overlap->fingerprint());
    QCOMPARE(Reason(rotate().status()), std::string("ROTATION_WAITS"));
    QVERIFY(report(Epoch(), overlap->fingerprint()));
    const auto done = rotate();
    QVERIFY2(done.ok(), base::Message(done.status()).c_str());
    QCOMPARE(done->rotation(), v1::AuthorityStatus::NONE);
    QCOMPARE(done->next_fingerprint(), std::string());
    v1::IdentityTable table;
    leader_->controller().Read(
        [&](const StateMachine& state) { table = state.identity().Table(0); });
    QCOMPARE(identity::TrustBundle::FromPem(table.authorities())->authorities().size(),
             std::size_t{1});
    QCOMPARE(table.signing_authority(), done->fingerprint());
  }

  // ---- Several replicas ----

  // The host with ca.key is gone for good. The others have the key in the state, and the seal key.
  void FirstNodeManagerLost_TheOthersSign() {
    Begin(3);
    QVERIFY(testing::Eventually([&] {
      const v1::ReplicaStatus status = world_->Leader().log().Status();
      return std::ranges::all_of(status.members().seats(),
                                 [](const auto& seat) { return seat.replica() != 0; });
    }));
    const SecureWorld::Credentials admin = world_->Admin();
    std::string token;
    QVERIFY(testing::Eventually([&] {
      const auto stub = world_->Identities(admin);
      const auto made = Ask(*stub, &IdentityStub::CreateToken, JoinTokenRequest("instance"));
      if (made.ok()) token = made->token();
      return made.ok();
    }));
    QVERIFY(testing::Eventually([&] {
      world_->clock().Advance(std::chrono::seconds(2));  // Past the pause between two tries.
      for (std::size_t i : {0, 1, 2}) world_->replica(i).keeper().Look();
      return world_->replica(1).keeper().SealKey().ok() &&
             world_->replica(2).keeper().SealKey().ok();
    }));
    // A follower's door knows what the leader's does.
    QVERIFY(testing::Eventually([&] {
      for (std::size_t i : {0, 1, 2}) world_->replica(i).keeper().Refresh();
      return world_->replica(1).door().epoch() == world_->replica(0).door().epoch();
    }));
    QCOMPARE(*identity::ReadSealKeyFile(world_->replica(1).folder()),
             *identity::ReadSealKeyFile(world_->replica(0).folder()));
    world_->replica(0).Stop();
    const identity::PrivateKey key = identity::PrivateKey::Generate();
    absl::StatusOr<v1::JoinResponse> joined;
    QVERIFY(testing::Eventually([&] {
      const auto joiner = world_->Identities(world_->Nobody());
      joined = Ask(*joiner, &IdentityStub::Join, JoinWith(token, "inst-1", key, "r1"));
      return joined.ok();
    }));
    const auto certificate = identity::Certificate::FromPem(joined->certificate());
    QVERIFY(identity::TrustBundle(world_->authority().certificate())
                .Verify(*certificate, identity::Purpose::kClient, world_->clock().WallNow())
                .ok());
  }

  // ---- Audit ----

  void Audit_NamesWhoAppliedAWorkflow() {
    Begin();
    const auto operators =
        world_->Nodes(world_->Make(SecureWorld::Person("olga", {Scope::kOperate})));
    v1::ApplyWorkflowRequest apply;
    *apply.mutable_workflow() = MakeWorkflow("video", {"a"});
    apply.set_actor("operator:somebody-else");
    QVERIFY(Ask(*operators, &NodeStub::ApplyWorkflow, apply).ok());
    QCOMPARE(AuditOf(*leader_), std::string("apply_workflow principal/olga OK"));
    v1::DeleteWorkflowRequest remove;
    remove.set_name("workflows/none");
    QVERIFY(!Ask(*operators, &NodeStub::DeleteWorkflow, remove).ok());
    QCOMPARE(AuditOf(*leader_), std::string("delete_workflow principal/olga WORKFLOW_UNKNOWN"));
  }

  // ---- Backups ----

  void Backup_HoldsTheSealKey_BehindThePassphrase() {
    Begin();
    const std::string salt(identity::kWrapSaltBytes, 's');
    const std::string wrap = *identity::WrapKeyOf("a passphrase", salt);
    v1::BackupRequest request;
    request.set_wrapping_key(wrap);
    const auto stub = world_->Stub<v1::ConsensusService>(
        *leader_, world_->Make(SecureWorld::Person("ann", {Scope::kAdmin})));
    const auto read = [&](std::string& bytes) {
      grpc::ClientContext context;
      rpc::SetTimeout(context, kCallLimit);
      const auto stream = stub->Backup(&context, request);
      v1::BackupChunk chunk;
      while (stream->Read(&chunk)) bytes += chunk.data();
      return Reason(rpc::FromGrpc(stream->Finish()));
    };
    std::string bytes;
    QCOMPARE(read(bytes), std::string("BAD_WRAPPING_KEY"));
    request.set_wrapping_salt(salt);
    QCOMPARE(read(bytes), std::string());
    const auto backup = backup::Decode(bytes);
    QVERIFY(backup.ok());
    const std::string seal_key = *leader_->keeper().SealKey();
    QVERIFY(bytes.find(seal_key) == std::string::npos);
    QCOMPARE(*identity::Unseal(*identity::WrapKeyOf("a passphrase", backup->header.wrapping_salt()),
                               backup->header.wrapped_seal_key(), identity::kBackupSealContext),
             seal_key);
  }

 private:
  std::unique_ptr<SecureWorld> world_;
  SecureReplica* leader_ = nullptr;
  std::unique_ptr<IdentityStub> admin_;
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::IdentityServiceTest)
#include "identity_service_test.moc"
