// Who is in the cluster, as the state machine keeps it: version 5 of the commands.
#include "nodemanager/state/identity_records.h"

#include <QtTest>
#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "cluster/base/canonical_bytes.h"
#include "cluster/identity/token.h"
#include "nodemanager/state/state_machine.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

constexpr std::int64_t kNow = 1'795'651'200'000, kHour = 3'600'000, kDay = 24 * kHour;

std::string HashOf(int number) { return identity::HashOfSecret(std::to_string(number)); }

v1::CreateToken BearerOf(int number, std::int64_t life = kDay) {
  v1::CreateToken change;
  v1::BearerToken& token = *change.mutable_bearer();
  token.set_secret_hash(HashOf(number));
  token.set_name("ci");
  token.set_tenant("films");
  token.set_scopes("submit,read-own");
  token.set_expires_unix_ms(kNow + life);
  return change;
}

v1::CreateToken JoinOf(int number, std::uint32_t uses = 1, std::int64_t life = kHour) {
  v1::CreateToken change;
  v1::JoinToken& token = *change.mutable_join();
  token.set_secret_hash(HashOf(number));
  token.set_roles("instance");
  token.set_uses_left(uses);
  token.set_expires_unix_ms(kNow + life);
  return change;
}

v1::IssueCertificate IssueOf(const std::string& serial, const std::string& subject = "node/inst-1",
                             const std::string& token = "") {
  v1::IssueCertificate change;
  v1::IssuedCertificate& made = *change.mutable_certificate();
  made.set_serial(serial);
  made.set_subject(absl::StrCat("onepiece://pirates/", subject, "?role=instance"));
  made.set_not_after_unix_ms(kNow + 90 * kDay);
  change.set_join_token(token);
  return change;
}

v1::SetAuthorities AuthoritiesOf(int count, v1::AuthorityStatus::Rotation rotation,
                                 std::uint64_t base_epoch) {
  v1::SetAuthorities change;
  for (int i = 0; i < count; ++i) {
    v1::AuthorityRecord& authority = *change.add_authorities();
    authority.set_certificate(absl::StrCat("certificate ", i));
    authority.set_sealed_key("sealed");
  }
  change.set_rotation(rotation);
  change.set_base_epoch(base_epoch);
  return change;
}

v1::RevokeCertificate RevokeOf(const std::string& serial, const std::string& subject = "") {
  v1::RevokeCertificate change;
  change.set_serial(serial);
  change.set_subject(subject);
  return change;
}

v1::AddUses UseOf(const std::string& tenant, std::int64_t hour, std::int64_t jobs,
                  double worker_seconds = 1) {
  v1::AddUses change;
  v1::TenantUse& use = *change.add_uses();
  use.set_tenant(tenant);
  use.set_hour_unix_ms(hour);
  use.set_jobs(jobs);
  use.set_worker_seconds(worker_seconds);
  return change;
}

v1::Command By(const std::string& caller, v1::Command command) {
  command.set_time_unix_ms(kNow);
  command.set_caller(caller);
  command.set_caller_address("ipv4:10.0.0.7:4711");
  return command;
}

v1::Command TokenCommand(const v1::CreateToken& change) {
  v1::Command command;
  command.set_time_unix_ms(kNow);
  *command.mutable_create_token() = change;
  return command;
}

v1::CommandResult Apply(StateMachine& machine, const v1::Command& command,
                        std::uint32_t version = kCommandVersion) {
  return machine.Apply(machine.applied_index() + 1, command, version);
}

/// A random command about identities in a small world.
v1::Command RandomIdentityCommand(std::mt19937_64& random) {
  v1::Command command;
  command.set_time_unix_ms(kNow + static_cast<std::int64_t>(random() % 200) * kDay);
  const int number = static_cast<int>(random() % 12);
  const std::string serial = absl::StrCat(absl::Hex(random() % 40));
  switch (random() % 8) {
    case 0:
      *command.mutable_create_token() =
          BearerOf(number, static_cast<std::int64_t>(random() % 200) * kDay);
      break;
    case 1:
      *command.mutable_create_token() = JoinOf(number, 1 + random() % 2, 200 * kDay);
      break;
    case 2:
      command.mutable_end_token()->set_id(identity::TokenId(HashOf(number)));
      break;
    case 3:
      *command.mutable_issue_certificate() = IssueOf(serial, absl::StrCat("node/n", random() % 3),
                                                     random() % 2 == 0 ? HashOf(number) : "");
      command.mutable_issue_certificate()->mutable_certificate()->set_not_after_unix_ms(
          kNow + static_cast<std::int64_t>(random() % 300) * kDay);
      break;
    case 4:
      *command.mutable_revoke_certificate() =
          random() % 2 == 0 ? RevokeOf(serial) : RevokeOf("", absl::StrCat("node/n", random() % 3));
      break;
    case 5:
      command.mutable_set_tenant()->set_name(absl::StrCat("t", random() % 4));
      command.mutable_set_tenant()->mutable_quota()->set_jobs_in_flight(
          static_cast<int>(random() % 9));
      break;
    case 6:
      *command.mutable_add_uses() = UseOf(absl::StrCat("t", random() % 4),
                                          static_cast<std::int64_t>(random() % 5) * kHour, 1);
      break;
    default:
      *command.mutable_set_authorities() =
          AuthoritiesOf(1 + static_cast<int>(random() % 2),
                        static_cast<v1::AuthorityStatus::Rotation>(random() % 4), random() % 20);
  }
  if (random() % 4 == 0) command.set_request_id(std::to_string(random() % 10));
  if (random() % 2 == 0) command.set_caller("principal/ann");
  return command;
}

}  // namespace

class IdentityRecordsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void BearerToken_IsInTheTable_UntilItEnds() {
    IdentityRecords records;
    QVERIFY(records.CreateToken(BearerOf(1), kNow).ok());
    QCOMPARE(records.epoch(), std::uint64_t{1});
    QCOMPARE(records.Table(kNow).bearer_tokens_size(), 1);
    QCOMPARE(records.Table(kNow).bearer_tokens(0).name(), std::string("ci"));
    QCOMPARE(records.Table(kNow + kDay).bearer_tokens_size(), 0);
    QCOMPARE(Reason(records.CreateToken(BearerOf(1), kNow)), std::string("TOKEN_EXISTS"));
    v1::EndToken end;
    end.set_id(identity::TokenId(HashOf(1)));
    QVERIFY(records.EndToken(end).ok());
    QCOMPARE(records.epoch(), std::uint64_t{2});
    QCOMPARE(records.Table(kNow).bearer_tokens_size(), 0);
    QCOMPARE(records.bytes(), std::size_t{0});
    QCOMPARE(Reason(records.EndToken(end)), std::string("TOKEN_UNKNOWN"));
  }

  void Token_WithoutHashOrLife_IsRefused() {
    IdentityRecords records;
    v1::CreateToken bad = BearerOf(1);
    bad.mutable_bearer()->set_secret_hash("short");
    QCOMPARE(Reason(records.CreateToken(bad, kNow)), std::string("BAD_TOKEN"));
    QCOMPARE(Reason(records.CreateToken(BearerOf(1, 0), kNow)), std::string("BAD_TOKEN"));
    QCOMPARE(Reason(records.CreateToken(JoinOf(1, 0), kNow)), std::string("BAD_TOKEN"));
    QCOMPARE(Reason(records.CreateToken({}, kNow)), std::string("BAD_TOKEN"));
    QCOMPARE(records.epoch(), std::uint64_t{0});
  }

  void JoinToken_HasItsUses_AndEnds() {
    IdentityRecords records;
    QVERIFY(records.CreateToken(JoinOf(1, 2), kNow).ok());
    QVERIFY(records.IssueCertificate(IssueOf("1", "node/a", HashOf(1)), kNow).ok());
    QVERIFY(records.IssueCertificate(IssueOf("2", "node/b", HashOf(1)), kNow).ok());
    QCOMPARE(Reason(records.IssueCertificate(IssueOf("3", "node/c", HashOf(1)), kNow)),
             std::string("TOKEN_USED"));
    QCOMPARE(Reason(records.IssueCertificate(IssueOf("3", "node/c", HashOf(2)), kNow)),
             std::string("WRONG_TOKEN"));
    QVERIFY(records.CreateToken(JoinOf(3), kNow).ok());
    QCOMPARE(Reason(records.IssueCertificate(IssueOf("3", "node/c", HashOf(3)), kNow + kHour)),
             std::string("TOKEN_EXPIRED"));
    QCOMPARE(records.certificates().size(), std::size_t{2});
    // A joiner learns for a day why its token does not work.
    QVERIFY(records.CreateToken(JoinOf(4, 1, 9 * kDay), kNow + kDay).ok());
    QVERIFY(records.join_tokens().contains(HashOf(3)));
    QVERIFY(records.CreateToken(JoinOf(5, 1, 9 * kDay), kNow + kDay + kHour).ok());
    QVERIFY(!records.join_tokens().contains(HashOf(3)));
  }

  // A refused certificate must not cost a use.
  void IssueCertificate_Refused_KeepsTheUse() {
    IdentityRecords records;
    QVERIFY(records.CreateToken(JoinOf(1), kNow).ok());
    QVERIFY(records.IssueCertificate(IssueOf("1"), kNow).ok());
    QCOMPARE(Reason(records.IssueCertificate(IssueOf("1", "node/b", HashOf(1)), kNow)),
             std::string("SERIAL_KNOWN"));
    for (const char* bad : {"", "A1", "xyz", "0x1"})
      QCOMPARE(Reason(records.IssueCertificate(IssueOf(bad, "node/b", HashOf(1)), kNow)),
               std::string("BAD_CERTIFICATE"));
    QCOMPARE(records.join_tokens().at(HashOf(1)).uses_left(), std::uint32_t{1});
  }

  void Revoked_BySerialAndBySubject() {
    IdentityRecords records;
    QVERIFY(records.IssueCertificate(IssueOf("b", "node/a"), kNow).ok());
    QVERIFY(records.IssueCertificate(IssueOf("a", "node/a"), kNow).ok());
    QVERIFY(records.IssueCertificate(IssueOf("c", "node/ab"), kNow).ok());
    const std::uint64_t before = records.epoch();
    QVERIFY(records.RevokeCertificate(RevokeOf("", "node/a"), kNow).ok());
    QCOMPARE(records.epoch(), before + 1);
    const v1::IdentityTable table = records.Table(kNow);
    QCOMPARE(table.revoked_serials_size(), 2);
    QCOMPARE(table.revoked_serials(0), std::string("a"));
    QCOMPARE(table.revoked_serials(1), std::string("b"));
    // Again it changes nothing.
    QVERIFY(records.RevokeCertificate(RevokeOf("", "node/a"), kNow).ok());
    QVERIFY(records.RevokeCertificate(RevokeOf("a"), kNow).ok());
    QCOMPARE(records.epoch(), before + 1);
    QCOMPARE(Reason(records.RevokeCertificate(RevokeOf("", "node/nobody"), kNow)),
             std::string("CERTIFICATE_UNKNOWN"));
    QCOMPARE(Reason(records.RevokeCertificate(RevokeOf("", ""), kNow)),
             std::string("CERTIFICATE_UNKNOWN"));
    QCOMPARE(Reason(records.RevokeCertificate(RevokeOf("A"), kNow)), std::string("BAD_SERIAL"));
    // An expired certificate is refused anyway.
    QCOMPARE(records.Table(kNow + 90 * kDay).revoked_serials_size(), 0);
  }

  // One that was made by hand may live for 825 days.
  void Revoked_Unknown_IsKeptAsLongAsItCanLive() {
    IdentityRecords records;
    QVERIFY(records.RevokeCertificate(RevokeOf("abc"), kNow).ok());
    QCOMPARE(records.Table(kNow + 824 * kDay).revoked_serials_size(), 1);
    QCOMPARE(records.Table(kNow + 825 * kDay).revoked_serials_size(), 0);
  }

  void Subject_WithManyCertificates_GetsNoMore() {
    IdentityRecords records;
    for (std::size_t i = 0; i < IdentityRecords::kMaxCertificatesOfSubject; ++i)
      QVERIFY(records.IssueCertificate(IssueOf(absl::StrCat(absl::Hex(i))), kNow).ok());
    QCOMPARE(Reason(records.IssueCertificate(IssueOf("ffff"), kNow)),
             std::string("TOO_MANY_CERTIFICATES"));
    QVERIFY(records.IssueCertificate(IssueOf("ffff", "node/inst-2"), kNow).ok());
  }

  void Full_DropsWhatHasExpired_ThenRefuses() {
    IdentityRecords records;
    v1::CreateToken large = BearerOf(0, kHour);
    large.mutable_bearer()->set_app_id(std::string(IdentityRecords::kMaxTextBytes, 'a'));
    large.mutable_bearer()->set_creator(std::string(IdentityRecords::kMaxTextBytes, 'c'));
    int made = 0;
    absl::Status status;
    while (status.ok()) {
      large.mutable_bearer()->set_secret_hash(HashOf(++made));
      status = records.CreateToken(large, kNow);
    }
    QCOMPARE(Reason(status), std::string("IDENTITY_FULL"));
    QVERIFY(records.bytes() <= IdentityRecords::kMaxBytes);
    status = absl::OkStatus();
    for (int i = 1; status.ok(); ++i) {
      status = records.IssueCertificate(
          IssueOf(absl::StrCat(i), absl::StrCat("node/", std::string(900, 'n'), i)), kNow);
    }
    QCOMPARE(Reason(status), std::string("IDENTITY_FULL"));
    QVERIFY(records.bytes() <= IdentityRecords::kMaxBytes);
    // An hour later all of them have expired.
    large.mutable_bearer()->set_expires_unix_ms(kNow + kDay);
    QVERIFY(records.CreateToken(large, kNow + kHour).ok());
    QCOMPARE(records.bearer_tokens().size(), std::size_t{1});
  }

  void Tenants_AndUses_AreBounded() {
    IdentityRecords records;
    v1::Tenant tenant;
    for (std::size_t i = 0; i < IdentityRecords::kMaxTenants; ++i) {
      tenant.set_name(absl::StrCat("t", i));
      if (i != 7) tenant.mutable_quota()->set_jobs_in_flight(1);
      if (i == 7) tenant.clear_quota();
      QVERIFY(records.SetTenant(tenant).ok());
    }
    tenant.set_name("one-more");
    tenant.mutable_quota()->set_jobs_in_flight(1);
    QVERIFY(records.SetTenant(tenant).ok());  // In the place of the one without a quota.
    QVERIFY(!records.tenants().contains("t7"));
    tenant.set_name("too-many");
    QCOMPARE(Reason(records.SetTenant(tenant)), std::string("IDENTITY_FULL"));
    for (std::size_t i = 0; i <= IdentityRecords::kMaxUses; ++i)
      records.AddUses(UseOf("t1", static_cast<std::int64_t>(i) * kHour, 1));
    QCOMPARE(records.uses().size(), IdentityRecords::kMaxUses);
    QVERIFY(!records.uses().contains({0, "t1"}));  // The oldest hour.
  }

  void Uses_AddUp_AndStayNumbers() {
    IdentityRecords records;
    const std::uint64_t before = records.epoch();
    records.AddUses(UseOf("films", kHour, 3, 1.5));
    records.AddUses(UseOf("films", kHour, 4, 0.5));
    records.AddUses(UseOf("films", kHour, -1));
    records.AddUses(UseOf("films", kHour, 1, std::nan("")));
    records.AddUses(UseOf("films", kHour, 1, std::numeric_limits<double>::infinity()));
    records.AddUses(UseOf("", kHour, 1));
    const v1::TenantUse& sum = records.uses().at({kHour, "films"});
    QCOMPARE(sum.jobs(), std::int64_t{7});
    QCOMPARE(sum.worker_seconds(), 2.0);
    records.AddUses(UseOf("films", kHour, std::numeric_limits<std::int64_t>::max()));
    QCOMPARE(records.uses().at({kHour, "films"}).jobs(), std::numeric_limits<std::int64_t>::max());
    QCOMPARE(records.uses().size(), std::size_t{1});
    QCOMPARE(records.epoch(), before);  // Nodes need not hear of it.
  }

  void Authorities_AreReplacedByWhoHasSeenThem() {
    IdentityRecords records;
    QVERIFY(records.SetAuthorities(AuthoritiesOf(1, v1::AuthorityStatus::NONE, 0)).ok());
    QCOMPARE(Reason(records.SetAuthorities(AuthoritiesOf(1, v1::AuthorityStatus::NONE, 0))),
             std::string("STALE_EPOCH"));
    for (const auto& [count, rotation] : std::vector<std::pair<int, v1::AuthorityStatus::Rotation>>{
             {0, v1::AuthorityStatus::NONE},
             {2, v1::AuthorityStatus::NONE},
             {1, v1::AuthorityStatus::OVERLAP},
             {3, v1::AuthorityStatus::INTRODUCED},
             {1, v1::AuthorityStatus::ROTATION_UNSPECIFIED}})
      QCOMPARE(Reason(records.SetAuthorities(AuthoritiesOf(count, rotation, 1))),
               std::string("BAD_AUTHORITIES"));
    QVERIFY(records.SetAuthorities(AuthoritiesOf(2, v1::AuthorityStatus::INTRODUCED, 1)).ok());
    QCOMPARE(records.Table(kNow).authorities(), std::string("certificate 0\ncertificate 1\n"));
    QCOMPARE(records.rotation(), v1::AuthorityStatus::INTRODUCED);
  }

  void ShortSubject_NamesNodesAndPrincipals() {
    QCOMPARE(ShortSubject("onepiece://pirates/node/a?role=proxy"), std::string("node/a"));
    QCOMPARE(ShortSubject("onepiece://p/principal/ann?tenant=t&scope=admin"),
             std::string("principal/ann"));
    for (const char* bad : {"", "node/a", "onepiece://pirates", "https://pirates/node/a"})
      QCOMPARE(ShortSubject(bad), std::string());
  }

  // The epoch grows when the table changes, a copy that was saved goes on alike, and nothing is
  // counted wrong.
  void Random_StaysSound() {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
      std::mt19937_64 random(seed);
      StateMachine machine, restored;
      for (int i = 0; i < 300; ++i) {
        const v1::IdentityTable before = machine.identity().Table(0);
        const v1::Command command = RandomIdentityCommand(random);
        const v1::CommandResult result = Apply(machine, command);
        const v1::IdentityTable after = machine.identity().Table(0);
        QVERIFY(after.epoch() >= before.epoch());
        if (after.epoch() == before.epoch()) {
          // What has expired may be dropped without a new epoch.
          QVERIFY(after.bearer_tokens_size() <= before.bearer_tokens_size());
          QVERIFY(after.revoked_serials_size() <= before.revoked_serials_size());
          QCOMPARE(after.authorities(), before.authorities());
        }
        QVERIFY(result.code() == 0 || !result.reason().empty());
        if (i % 50 == 0) QVERIFY(restored.Restore(machine.Serialize()).ok());
        if (i % 50 != 0) QCOMPARE(Apply(restored, command).reason(), result.reason());
        QVERIFY(restored.Serialize() == machine.Serialize());
        QCOMPARE(restored.identity().bytes(), machine.identity().bytes());
      }
    }
  }

  // Before the level is raised, the state must be what older programs make of the same commands.
  void BelowVersion5_CommandsAreUnknown() {
    StateMachine machine;
    Apply(machine, RegisterCommand(MakeNode("p", v1::PROXY)), 4);
    const std::string before = machine.Serialize();
    QCOMPARE(Apply(machine, TokenCommand(BearerOf(1)), 4).reason(), std::string("COMMAND_UNKNOWN"));
    QCOMPARE(machine.identity().epoch(), std::uint64_t{0});
    QCOMPARE(machine.audit().size(), std::size_t{1});
    QCOMPARE(VersionOf(TokenCommand(BearerOf(1))), std::uint32_t{5});
    QCOMPARE(before.size(), machine.Serialize().size());
    Apply(machine, By("principal/ann", WorkflowCommand(MakeWorkflow("w", {"a"}))), 4);
    QCOMPARE(machine.audit().back().caller(), std::string());
    QCOMPARE(machine.audit().back().answer(), std::string());
  }

  void Audit_SaysWhoFromWhereAndTheAnswer() {
    StateMachine machine;
    QCOMPARE(Apply(machine, By("principal/ann", TokenCommand(BearerOf(1)))).code(), 0);
    const v1::AuditEntry made = machine.audit().back();
    QCOMPARE(made.action(), std::string("create_token"));
    QCOMPARE(made.subject(), identity::TokenId(HashOf(1)));
    QCOMPARE(made.detail(),
             std::string("bearer token of ci, tenant films, scopes submit,read-own"));
    QCOMPARE(made.caller(), std::string("principal/ann"));
    QCOMPARE(made.caller_address(), std::string("ipv4:10.0.0.7:4711"));
    QCOMPARE(made.answer(), std::string("OK"));
    // Refusals too, of commands that were there before as well.
    QCOMPARE(Apply(machine, By("principal/bob", TokenCommand(BearerOf(1)))).reason(),
             std::string("TOKEN_EXISTS"));
    QCOMPARE(machine.audit().back().caller(), std::string("principal/bob"));
    QCOMPARE(machine.audit().back().answer(), std::string("TOKEN_EXISTS"));
    v1::Command remove;
    remove.set_delete_workflow("none");
    Apply(machine, By("principal/bob", remove));
    QCOMPARE(machine.audit().back().action(), std::string("delete_workflow"));
    QCOMPARE(machine.audit().back().subject(), std::string("none"));
    QCOMPARE(machine.audit().back().answer(), std::string("WORKFLOW_UNKNOWN"));
    // What the cluster itself tries is no attempt of anybody.
    const std::size_t entries = machine.audit().size();
    Apply(machine, remove);
    QCOMPARE(machine.audit().size(), entries);
    // Neither is what changes nothing.
    Apply(machine, By("principal/ann", WorkflowCommand(MakeWorkflow("w", {"a"}))));
    Apply(machine, By("principal/ann", WorkflowCommand(MakeWorkflow("w", {"a"}))));
    QCOMPARE(machine.audit().size(), entries + 1);
    QCOMPARE(machine.audit().back().answer(), std::string("OK"));
  }

  void Audit_HoldsNoHash() {
    StateMachine machine;
    Apply(machine, By("principal/ann", TokenCommand(BearerOf(1))));
    Apply(machine, By("principal/ann", TokenCommand(JoinOf(2))));
    v1::Command command;
    *command.mutable_set_authorities() = AuthoritiesOf(1, v1::AuthorityStatus::NONE, 1);
    QCOMPARE(Apply(machine, By("principal/ann", command)).code(), 0);
    for (const v1::AuditEntry& entry : machine.audit()) {
      const std::string bytes = entry.SerializeAsString();
      for (const std::string& secret : {HashOf(1), HashOf(2), std::string("sealed")})
        QVERIFY(bytes.find(secret) == std::string::npos);
    }
  }

  // A retry comes over another connection, and its certificate is signed anew.
  void Retry_IsKnown_WhateverDiffersBetweenAttempts() {
    StateMachine machine;
    Apply(machine, TokenCommand(JoinOf(1)));
    v1::Command join;
    *join.mutable_issue_certificate() = IssueOf("1", "node/a", HashOf(1));
    join.set_request_id("join/1");
    QCOMPARE(Apply(machine, By("token/1", join)).code(), 0);
    QVERIFY(machine.Remembers("join/1"));
    join.mutable_issue_certificate()->mutable_certificate()->set_serial("2");
    join = By("token/1", join);
    join.set_caller_address("ipv4:10.0.0.7:9999");
    QCOMPARE(Apply(machine, join).code(), 0);
    QCOMPARE(machine.identity().certificates().size(), std::size_t{1});
    // Another node is another request.
    join.mutable_issue_certificate()->mutable_certificate()->set_subject(
        "onepiece://pirates/node/b?role=instance");
    QCOMPARE(Apply(machine, join).reason(), std::string("REQUEST_ID_REUSED"));
    v1::Command workflow = WorkflowCommand(MakeWorkflow("w", {"a"}));
    workflow.set_request_id("w/1");
    QCOMPARE(Apply(machine, By("principal/ann", workflow)).code(), 0);
    QCOMPARE(Apply(machine, workflow).code(), 0);
    workflow.mutable_apply_workflow()->mutable_stages(0)->set_stage("b");
    QCOMPARE(Apply(machine, workflow).reason(), std::string("REQUEST_ID_REUSED"));
  }

  void CopyForPlans_HasNoIdentities() {
    StateMachine machine;
    Apply(machine, TokenCommand(BearerOf(1)));
    QCOMPARE(machine.CopyForPlans().identity().epoch(), std::uint64_t{0});
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::IdentityRecordsTest)
#include "identity_records_test.moc"
