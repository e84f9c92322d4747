// Who a caller is, as the door finds out: certificates that end or are revoked while a connection
// lives, tokens, and callers that speak for others.
#include "cluster/rpc/door.h"

#include <QtTest>

#include "cluster/identity/token.h"
#include "tests/identities.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::rpc {
namespace {

using namespace std::chrono_literals;
using identity::Scope;

struct OneDoor {
  std::string PemOf(const identity::Subject& subject) {
    const identity::PrivateKey key = identity::PrivateKey::Generate();
    return authority.authority()
        .Issue(identity::SigningRequest::Make(key), subject, clock.WallNow())
        ->ToPem();
  }
  /// A token of ci that is valid for an hour, and stands in `table`.
  std::string TokenOf(const std::string& scopes) {
    const auto token = identity::BearerToken::Generate();
    v1::BearerToken& known = *table.add_bearer_tokens();
    known.set_secret_hash(identity::HashOfSecret(token.secret));
    known.set_name("ci");
    known.set_tenant("films");
    known.set_scopes(scopes);
    known.set_expires_unix_ms(base::ToUnixMs(clock.WallNow() + 1h));
    return "Bearer " + token.Format();
  }
  void Take() {
    table.set_epoch(table.epoch() + 1);
    door.Take(table);
  }

  testing::TestAuthority authority{"pirates"};
  base::ManualClock clock{base::SystemClock().WallNow()};
  Door door{"pirates", clock};
  v1::IdentityTable table;
};

identity::Subject Alice(const std::string& cluster = "pirates") {
  return identity::PrincipalSubject{
      .cluster = cluster, .name = "alice", .tenant = "films", .scopes = {Scope::kReadOwn}};
}

}  // namespace

class DoorTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void WhoShowsNothing_IsNobody_AndNotInsecure() {
    OneDoor d;
    const auto caller = d.door.Identify("", "");
    QVERIFY(caller.ok());
    QCOMPARE(caller->name(), std::string("nobody"));
    QVERIFY(!caller->Has(Scope::kSubmit) && !caller->MaySee("default"));
    QVERIFY(Caller().Has(Scope::kAdmin));
    QCOMPARE(Caller().name(), std::string("insecure"));
  }

  void ACertificateThatEnds_EndsOpenConnectionsToo() {
    OneDoor d;
    const std::string pem = d.PemOf(Alice());
    const auto caller = d.door.Identify(pem, "");
    QVERIFY2(caller.ok(), caller.status().ToString().c_str());
    QCOMPARE(caller->name(), std::string("principal/alice"));
    QCOMPARE(caller->tenant(), std::string("films"));
    QVERIFY(caller->MaySee("films") && !caller->MaySee("games") && !caller->MaySee(""));
    d.clock.Advance(91 * identity::kDay);
    QCOMPARE(Reason(d.door.Identify(pem, "").status()), std::string("CERTIFICATE_EXPIRED"));
  }

  void ARevokedCertificate_IsRefusedFromTheNextTableOn() {
    OneDoor d;
    const std::string alice = d.PemOf(Alice()), other = d.PemOf(Alice());
    QVERIFY(d.door.Identify(alice, "").ok());
    d.table.add_revoked_serials(identity::Certificate::FromPem(alice)->SerialNumber());
    d.Take();
    QCOMPARE(Reason(d.door.Identify(alice, "").status()), std::string("CERTIFICATE_REVOKED"));
    QVERIFY(d.door.Identify(other, "").ok());
    // An older table that comes late brings nothing back.
    v1::IdentityTable old;
    old.set_epoch(1);
    d.door.Take(old);
    QVERIFY(!d.door.Identify(alice, "").ok());
  }

  void AnotherClustersCertificate_IsRefused_WhateverSignedIt() {
    OneDoor d;
    QCOMPARE(Reason(d.door.Identify(d.PemOf(Alice("navy")), "").status()),
             std::string("WRONG_CLUSTER"));
  }

  void Tokens_AreKnownFromTheTable_UntilTheyEnd() {
    OneDoor d;
    const std::string token = d.TokenOf("submit,read-own");
    const absl::Status early = d.door.Identify("", token).status();
    QVERIFY(absl::IsUnavailable(early));
    QCOMPARE(Reason(early), std::string("NO_TABLE"));
    d.Take();
    const auto caller = d.door.Identify("", token);
    QVERIFY2(caller.ok(), caller.status().ToString().c_str());
    QVERIFY(caller->Has(Scope::kSubmit) && !caller->Has(Scope::kRead));
    QCOMPARE(Reason(d.door.Identify("", token + "x").status()), std::string("BAD_TOKEN"));
    QCOMPARE(Reason(d.door.Identify("", token.substr(7)).status()), std::string("BAD_TOKEN"));
    const std::string unknown = "Bearer " + identity::BearerToken::Generate().Format();
    QCOMPARE(Reason(d.door.Identify("", unknown).status()), std::string("WRONG_TOKEN"));
    d.clock.Advance(61min);
    QCOMPARE(Reason(d.door.Identify("", token).status()), std::string("TOKEN_EXPIRED"));
  }

  void ARevokedToken_IsUnknown() {
    OneDoor d;
    const std::string token = d.TokenOf("admin");
    d.Take();
    QVERIFY(d.door.Identify("", token).ok());
    d.table.clear_bearer_tokens();
    d.Take();
    QCOMPARE(Reason(d.door.Identify("", token).status()), std::string("WRONG_TOKEN"));
  }

  void ANode_SpeaksForItselfAlone() {
    OneDoor d;
    const auto caller = d.door.Identify(
        d.PemOf(identity::NodeSubject{
            .cluster = "pirates", .id = "db-1", .roles = {identity::Role::kDatabase}}),
        "");
    QVERIFY(caller.ok());
    QVERIFY(caller->CheckNode("db-1").ok());
    QVERIFY(caller->CheckNode("db-1", identity::Role::kDatabase).ok());
    QCOMPARE(Reason(caller->CheckNode("db-2")), std::string("FOREIGN_NODE"));
    QCOMPARE(Reason(caller->CheckNode("db-1", identity::Role::kProxy)), std::string("WRONG_ROLE"));
    QVERIFY(!caller->Has(Scope::kReadOwn));
    QVERIFY(!Caller::Nobody().CheckNode("db-1").ok());
    QVERIFY(Caller().CheckNode("anybody").ok());
  }

  void AnUnknownMethod_IsNobodysToCall() {
    OneDoor d;
    QCOMPARE(Reason(d.door.Check("/onepiece.v1.NoService/Method", Caller::Nobody())),
             std::string("METHOD_UNKNOWN"));
  }
};

}  // namespace onepiece::rpc

ONEPIECE_TEST(onepiece::rpc::DoorTest)
#include "door_test.moc"
