// Tests the verbs about people and certificates from outside: whoami, token, cert, usage, audit.
#include <QtTest>

#include "tests/fake_identity.h"
#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece::cli {
namespace {

std::int64_t HoursAgo(int hours) {
  return base::ToUnixMs(base::SystemClock().WallNow()) / 3'600'000 * 3'600'000 -
         hours * std::int64_t{3'600'000};
}

v1::ListTenantsResponse Tenants() {
  v1::ListTenantsResponse response;
  v1::Tenant* films = response.add_tenants();
  films->set_name("films");
  films->mutable_quota()->set_jobs_in_flight(4);
  films->mutable_quota()->set_stored_bytes(std::int64_t{10} << 30);
  response.add_tenants()->set_name("clips");
  for (const int hours : {1, 2, 100}) {
    v1::TenantUse* use = response.add_uses();
    use->set_tenant("films");
    use->set_hour_unix_ms(HoursAgo(hours));
    use->set_jobs(hours);
    use->set_worker_seconds(hours * 1.5);
    use->set_bytes(hours * 1024);
  }
  return response;
}

v1::ListAuditResponse Audit() {
  v1::ListAuditResponse response;
  for (const int hours : {1, 3}) {
    v1::AuditEntry* entry = response.add_entries();
    entry->set_revision(static_cast<std::uint64_t>(100 - hours));
    entry->set_time_unix_ms(HoursAgo(hours));
    entry->set_action("apply_config");
    entry->set_subject("film");
    entry->set_caller("principal/ann");
    entry->set_caller_address("10.0.0.9:4711");
    entry->set_answer(hours == 1 ? "OK" : "MISSING_SCOPE");
  }
  return response;
}

}  // namespace

class IdentityTest : public QObject {
  Q_OBJECT
 public:
  static void initMain() { rpc::RequireTls13(); }

 private Q_SLOTS:
  void init() { fake_ = std::make_unique<testing::FakeIdentity>(); }
  void cleanup() { fake_.reset(); }

  void WhoAmI_SaysWho() {
    const auto me = Run({"whoami", "--json"}).Document();
    QCOMPARE(me.value("name", ""), std::string("insecure"));
    QCOMPARE(me.value("cluster_id", ""), std::string("pirates"));
    QVERIFY(me["tenant"].is_null());
    QVERIFY(Run({"whoami"}).Says("shown by insecure"));
  }

  void Token_Create_SaysItOnce() {
    const auto made =
        Run({"token", "create", "--name", "ci", "--scope", "read-own,submit", "--app", "film",
             "--tenant", "films", "--quota", "jobs=4,rate=2/s,worker-seconds=3600/h,bytes=10G",
             "--expires", "30d", "--reason", "the build", "--json"});
    QVERIFY2(made.exit_code == 0, made.err.c_str());
    const auto document = made.Document();
    QCOMPARE(document.value("id", ""), std::string("0123456789abcdef"));
    QVERIFY(identity::BearerToken::Parse(document.value("token", "")).ok());
    QCOMPARE(fake_->requests().back(),
             std::string("create bearer { name: \"ci\" tenant: \"films\" scopes: "
                         "\"submit,read-own\" app_id: \"film\" } life_s: 2592000 quota { "
                         "jobs_in_flight: 4 jobs_per_s: 2 worker_seconds_per_h: 3600 stored_bytes: "
                         "10737418240 } reason: \"the build\""));
    // Only the token on stdout, so that a script can take it.
    const auto text = Run({"token", "create", "--name", "ci", "--scope", "submit"});
    QVERIFY(text.out.starts_with("OPB1") && text.out.ends_with("\n"));
    QCOMPARE(std::ranges::count(text.out, '\n'), std::ptrdiff_t{1});
    QVERIFY(text.err.find("It is not shown again") != std::string::npos);
    QCOMPARE(fake_->requests().back(),
             std::string("create bearer { name: \"ci\" tenant: \"default\" scopes: \"submit\" }"));
  }

  void Token_Create_Join_PrintsTheCommand() {
    const auto made = Run({"token", "create", "--join", "--role", "instance,proxy", "--uses", "3"});
    QVERIFY2(made.exit_code == 0, made.err.c_str());
    QVERIFY2(made.out.starts_with("onepiece join " + fake_->address() + " --token OP1"),
             made.out.c_str());
    QCOMPARE(fake_->requests().back(),
             std::string("create join { roles: \"proxy,instance\" uses_left: 3 }"));
  }

  void Token_Create_WrongArguments_Are2_data() {
    QTest::addColumn<QStringList>("arguments");
    const QStringList good = {"--name", "ci", "--scope", "submit"};
    QTest::newRow("no name") << QStringList{"--scope", "submit"};
    QTest::newRow("no scope") << QStringList{"--name", "ci"};
    QTest::newRow("scope") << QStringList{"--name", "ci", "--scope", "cook"};
    QTest::newRow("zero jobs") << good + QStringList{"--quota", "jobs=0"};
    QTest::newRow("zero bytes") << good + QStringList{"--quota", "bytes=0G"};
    QTest::newRow("zero rate") << good + QStringList{"--quota", "rate=0/s"};
    QTest::newRow("negative") << good + QStringList{"--quota", "jobs=-1"};
    QTest::newRow("limit") << good + QStringList{"--quota", "cooks=1"};
    QTest::newRow("no number") << good + QStringList{"--quota", "worker-seconds=nan"};
    QTest::newRow("span") << good + QStringList{"--expires", "soon"};
    QTest::newRow("zero span") << good + QStringList{"--expires", "0s"};
    QTest::newRow("join without role") << QStringList{"--join"};
    QTest::newRow("join with scope") << QStringList{"--join", "--role", "proxy", "--scope", "read"};
    QTest::newRow("join of a cook") << QStringList{"--join", "--role", "cook"};
    QTest::newRow("no uses") << QStringList{"--join", "--role", "proxy", "--uses", "0"};
  }
  void Token_Create_WrongArguments_Are2() {
    QFETCH(QStringList, arguments);
    QCOMPARE(Run(QStringList{"token", "create"} + arguments).exit_code, 2);
    QVERIFY(fake_->requests().empty());
  }

  void Token_List_And_Revoke() {
    const auto listed = Run({"token", "list", "--json"}).Document();
    QCOMPARE(listed["tokens"].size(), std::size_t{2});
    QCOMPARE(listed["tokens"][0].value("kind", ""), std::string("bearer"));
    QCOMPARE(listed["tokens"][0]["scopes"][1].get<std::string>(), std::string("read-own"));
    QCOMPARE(listed["tokens"][1].value("uses_left", 0), 3);
    QVERIFY(Run({"token", "list"}).Says("instance,proxy x3"));
    QVERIFY(Run({"token", "list"}).Says("2027-01-15 08:00:00"));
    QCOMPARE(Run({"token", "revoke", "0123456789abcdef", "--reason", "lost"}).exit_code, 0);
    QCOMPARE(fake_->requests().back(),
             std::string("revoke id: \"0123456789abcdef\" reason: \"lost\""));
    const auto unknown = Run({"token", "revoke", "ff", "--json"});
    QCOMPARE(unknown.exit_code, 3);
    QCOMPARE(unknown.ErrorReason(), std::string("TOKEN_UNKNOWN"));
  }

  void Cert_List_And_Revoke() {
    v1::ListCertificatesResponse certificates;
    v1::IssuedCertificate* one = certificates.add_certificates();
    one->set_serial("ab12");
    one->set_subject("onepiece://pirates/node/i-1?role=instance");
    one->set_revoked(true);
    fake_->Set(certificates);
    const auto listed = Run({"cert", "list", "--json"}).Document();
    QCOMPARE(listed["certificates"][0].value("serial", ""), std::string("ab12"));
    QVERIFY(listed["certificates"][0].value("revoked", false));
    QVERIFY(Run({"cert", "list"}).Says("revoked"));

    QCOMPARE(Run({"cert", "revoke", "ab12"}).exit_code, 0);
    QCOMPARE(fake_->requests().back(), std::string("revoke serial: \"ab12\""));
    QCOMPARE(Run({"cert", "revoke", "--node", "i-1", "--reason", "stolen"}).exit_code, 0);
    QCOMPARE(fake_->requests().back(),
             std::string("revoke subject: \"node/i-1\" reason: \"stolen\""));
    QCOMPARE(Run({"cert", "revoke", "--principal", "ann"}).exit_code, 0);
    QCOMPARE(fake_->requests().back(), std::string("revoke subject: \"principal/ann\""));
    QCOMPARE(Run({"cert", "revoke"}).exit_code, 2);
    QCOMPARE(Run({"cert", "revoke", "ab12", "--node", "i-1"}).exit_code, 2);
    QCOMPARE(fake_->requests().size(), std::size_t{3});
  }

  void Cert_Rotate_SaysWhoIsWaitedFor() {
    const auto rotated = Run({"cert", "rotate", "--json"}).Document();
    QCOMPARE(rotated.value("rotation", ""), std::string("introduced"));
    QCOMPARE(rotated["waiting_for"][0].get<std::string>(), std::string("instance-1"));
    QCOMPARE(rotated.value("next_fingerprint", ""), std::string("bb"));
    QVERIFY(Run({"cert", "rotate"}).Says("waits for instance-1"));
    QVERIFY(Run({"cert", "authority"}).Says("no rotation is under way"));
  }

  void Cert_Renew_KeepsKeyAndName() {
    const QTemporaryDir temp;
    fake_ = std::make_unique<testing::FakeIdentity>(temp.filePath("nm").toStdString());
    const std::string folder = temp.filePath("ann").toStdString();
    fake_->Save(folder, "ann",
                identity::PrincipalSubject{.cluster = "pirates",
                                           .name = "ann",
                                           .tenant = "films",
                                           .scopes = {identity::Scope::kReadOwn}},
                base::SystemClock().WallNow() - 80 * identity::kDay);
    const auto load = [&] {
      return identity::LoadIdentity(folder, "ann", base::SystemClock().WallNow());
    };
    const auto before = load();
    QVERIFY(before.ok());
    const auto renewed =
        Run({"cert", "renew", temp.filePath("ann"), "--data-dir", temp.filePath("none")});
    QVERIFY2(renewed.exit_code == 0, renewed.err.c_str());
    const auto after = load();
    QVERIFY2(after.ok(), after.status().ToString().c_str());
    QVERIFY(after->certificate.not_after() > before->certificate.not_after());
    QVERIFY(after->key.PublicKeyHash() == before->key.PublicKeyHash());
    QVERIFY(after->subject == before->subject);
  }

  void Usage_SumsTheHoursSince() {
    fake_->Set(Tenants());
    const auto day = Run({"usage", "--json"}).Document();
    QCOMPARE(day["tenants"].size(), std::size_t{2});
    QCOMPARE(day["tenants"][1].value("tenant", ""), std::string("films"));
    QCOMPARE(day["tenants"][1].value("jobs", 0), 3);
    QCOMPARE(day["tenants"][1].value("worker_seconds", 0.0), 4.5);
    QCOMPARE(day["tenants"][1].value("bytes", 0), 3072);
    QCOMPARE(day["tenants"][1]["quota"].value("jobs", 0), 4);
    QVERIFY(day["tenants"][1]["quota"]["jobs_per_s"].is_null());
    const auto week = Run({"usage", "--tenant", "films", "--since", "7d", "--json"}).Document();
    QCOMPARE(week["tenants"].size(), std::size_t{1});
    QCOMPARE(week["tenants"][0].value("jobs", 0), 103);
    QVERIFY(Run({"usage"}).Says("jobs=4,bytes=10G"));
    QCOMPARE(Run({"usage", "--tenant", "cooks"}).exit_code, 3);
    QCOMPARE(Run({"usage", "--since", "never"}).exit_code, 2);
  }

  void Audit_ShowsWhoAndFromWhere() {
    fake_->Set(Audit());
    const auto all = Run({"audit", "--json"}).Document();
    QCOMPARE(all["entries"].size(), std::size_t{2});
    QCOMPARE(all["entries"][0].value("caller", ""), std::string("principal/ann"));
    QCOMPARE(all["entries"][0].value("caller_address", ""), std::string("10.0.0.9:4711"));
    QCOMPARE(all["entries"][1].value("answer", ""), std::string("MISSING_SCOPE"));
    const auto recent = Run({"audit", "--since", "150m", "--json"}).Document();
    QCOMPARE(recent["entries"].size(), std::size_t{1});
    QCOMPARE(recent["entries"][0].value("revision", 0), 99);
    QVERIFY(Run({"rebalance", "audit"}).Says("10.0.0.9:4711"));
  }

 private:
  [[nodiscard]] testing::Outcome Run(const QStringList& arguments) const {
    return testing::RunProgram(
        ONEPIECE_BINARY_DIR "/bin/onepiece",
        arguments + QStringList{"--nodemanager", QString::fromStdString(fake_->address())});
  }

  std::unique_ptr<testing::FakeIdentity> fake_;
};

}  // namespace onepiece::cli

ONEPIECE_TEST(onepiece::cli::IdentityTest)
#include "identity_test.moc"
