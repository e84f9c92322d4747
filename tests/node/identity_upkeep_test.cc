#include "cluster/node/identity_upkeep.h"

#include <QTemporaryDir>
#include <QtTest>
#include <deque>

#include "cluster/base/status.h"
#include "cluster/rpc/door.h"
#include "cluster/telemetry/metrics.h"
#include "tests/identity/sample.h"
#include "tests/reason.h"
#include "tests/scrape.h"
#include "tests/test_main.h"

namespace onepiece::node {
namespace {

using identity::Authority;
using identity::kDay;
using identity::testing::kNow;

identity::Subject Self() {
  return identity::NodeSubject{
      .cluster = "pirates", .id = "proxy-1", .roles = {identity::Role::kProxy}};
}

std::string BundleOf(std::initializer_list<const Authority*> authorities) {
  std::string pem;
  for (const Authority* authority : authorities) pem += authority->certificate().ToPem();
  return pem;
}

absl::Status Away() {
  return base::MakeError(absl::StatusCode::kUnavailable, "AWAY", "no NodeManager answers");
}

}  // namespace

class IdentityUpkeepTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    temp_ = std::make_unique<QTemporaryDir>();
    clock_ = std::make_unique<base::ManualClock>(kNow);
    authority_ = std::make_unique<Authority>(*Authority::Create("pirates", kNow));
    signing_ = authority_.get();
    door_ = std::make_unique<rpc::Door>("pirates", *clock_);
    metrics_ = std::make_unique<telemetry::Metrics>("proxy", "proxy-1");
    table_ = absl::StatusOr<v1::IdentityTable>(v1::IdentityTable());
    SetTable(1, {authority_.get()}, *authority_);
    renewed_as_ = Self();
    tables_asked_ = renewals_asked_ = 0;
    renewal_ = absl::OkStatus();
    const auto issued = identity::testing::Issue(*authority_, Self(), kNow);
    QVERIFY(identity::SaveIdentity(Folder(), "node", issued.key, issued.certificate,
                                   identity::TrustBundle(authority_->certificate()))
                .ok());
    upkeep_ = std::make_unique<IdentityUpkeep>(*door_, Folder(), Calls(), metrics_.get(), *clock_);
  }
  void cleanup() { upkeep_.reset(); }

  void Table_IsAskedFor_OnlyWhenANewerOneIsNamed() {
    QVERIFY(Step() >= IdentityUpkeep::kLookInterval);
    QCOMPARE(tables_asked_, 0);
    upkeep_->Hear(0);
    Step();
    QCOMPARE(tables_asked_, 0);
    upkeep_->Hear(1);
    Step();
    QCOMPARE(tables_asked_, 1);
    QCOMPARE(door_->epoch(), std::uint64_t{1});
    upkeep_->Hear(1);
    Step();
    QCOMPARE(tables_asked_, 1);
    v1::ReportNodeRequest report;
    upkeep_->FillIn(report);
    QCOMPARE(report.identity_epoch(), std::uint64_t{1});
    QCOMPARE(report.signing_authority(), authority_->certificate().Fingerprint());
  }

  // A revocation reaches every node within 5 s, however long the NodeManager was away.
  void Table_ThatDoesNotCome_IsAskedForSoonAgain() {
    table_ = Away();
    upkeep_->Hear(1);
    base::Duration longest{};
    for (int i = 0; i < 20; ++i) longest = std::max(longest, Step());
    QCOMPARE(tables_asked_, 20);
    QCOMPARE(upkeep_->failures(), std::uint64_t{20});
    QVERIFY(longest <= base::Scaled(std::chrono::seconds(1)));
    table_ = v1::IdentityTable();
    SetTable(1, {authority_.get()}, *authority_);
    QVERIFY(Step() >= IdentityUpkeep::kLookInterval);
    QCOMPARE(door_->epoch(), std::uint64_t{1});
  }

  void Metrics_SayHowLongTheCertificateHolds() {
    clock_->Advance(89 * kDay);
    renewal_ = Away();
    Step();
    const QByteArray scraped = testing::Scrape(metrics_->Serve("127.0.0.1:0").value());
    QVERIFY2(scraped.contains("onepiece_certificate_expiry_seconds 86400"), scraped.constData());
    QVERIFY2(scraped.contains("onepiece_identity_failures_total 1"), scraped.constData());
  }

  void Authorities_OfTheTable_AreWrittenDown() {
    const Authority next = *Authority::Create("pirates", kNow);
    SetTable(2, {authority_.get(), &next}, *authority_);
    upkeep_->Hear(2);
    Step();
    const auto bundle = identity::ReadTrustFile(Files().authorities);
    QCOMPARE(bundle->authorities().size(), std::size_t{2});
    // The old one still signs.
    QCOMPARE(renewals_asked_, 0);
  }

  void Authorities_AreWrittenDown_AlsoWhereTheDoorKnowsThemAlready() {
    const Authority next = *Authority::Create("pirates", kNow);
    SetTable(2, {authority_.get(), &next}, *authority_);
    door_->Take(*table_);  // As a NodeManager's, which reads the state.
    v1::ReportNodeRequest report;
    upkeep_->FillIn(report);
    QCOMPARE(report.identity_epoch(), std::uint64_t{0});
    upkeep_->Hear(2);
    Step();
    QCOMPARE(identity::ReadTrustFile(Files().authorities)->authorities().size(), std::size_t{2});
    upkeep_->FillIn(report);
    QCOMPARE(report.identity_epoch(), std::uint64_t{2});
  }

  void Authorities_ThatMakeNoSense_ChangeNothing() {
    const std::string before = identity::ReadTrustFile(Files().authorities)->ToPem();
    table_->set_authorities("-----BEGIN NONSENSE-----");
    upkeep_->Hear(1);
    Step();
    QCOMPARE(identity::ReadTrustFile(Files().authorities)->ToPem(), before);
    // So the NodeManager sees that this node has not followed.
    QCOMPARE(door_->epoch(), std::uint64_t{0});
    QCOMPARE(upkeep_->failures(), std::uint64_t{1});
  }

  void Certificate_IsRenewedAtTwoThirds() {
    const auto before = Certificate();
    const std::string key = identity::ReadKeyFile(Files().key)->ToPem();
    clock_->Advance(before.RenewalTime() - kNow - std::chrono::seconds(1));
    Step();
    QCOMPARE(renewals_asked_, 0);
    clock_->Advance(std::chrono::seconds(2));
    Step();
    QCOMPARE(renewals_asked_, 1);
    const auto after = Certificate();
    QVERIFY(after.SerialNumber() != before.SerialNumber());
    QVERIFY(*after.GetSubject() == Self());
    QCOMPARE(identity::ReadKeyFile(Files().key)->ToPem(), key);
    QVERIFY(identity::LoadIdentity(Folder(), "node", clock_->WallNow()).ok());
    QCOMPARE(hosts_asked_, std::vector<std::string>{});
    // It is fresh now.
    Step();
    QCOMPARE(renewals_asked_, 1);
  }

  void Certificate_OfACaThatSignsNoMore_IsRenewedAtOnce() {
    const Authority next = *Authority::Create("pirates", kNow);
    signing_ = &next;
    SetTable(2, {authority_.get(), &next}, next);
    upkeep_->Hear(2);
    Step();
    QCOMPARE(renewals_asked_, 1);
    v1::ReportNodeRequest report;
    upkeep_->FillIn(report);
    QCOMPARE(report.signing_authority(), next.certificate().Fingerprint());
    // The last step of the rotation.
    SetTable(3, {&next}, next);
    upkeep_->Hear(3);
    Step();
    QCOMPARE(identity::ReadTrustFile(Files().authorities)->authorities().size(), std::size_t{1});
    QCOMPARE(renewals_asked_, 1);
    QVERIFY(identity::LoadIdentity(Folder(), "node", clock_->WallNow()).ok());
  }

  void Renewal_ThatFails_IsTriedAgain_AtMostAMinuteLater() {
    renewal_ = Away();
    clock_->Advance(61 * kDay);
    base::Duration longest{};
    for (int i = 0; i < 20; ++i) longest = std::max(longest, Step());
    QCOMPARE(renewals_asked_, 20);
    QVERIFY(longest > base::Scaled(std::chrono::seconds(5)));
    QVERIFY(longest <= base::Scaled(std::chrono::minutes(1)));
    renewal_ = absl::OkStatus();
    Step();
    QVERIFY(Certificate().not_after() > kNow + 100 * kDay);
  }

  void Renewal_ForSomebodyElse_ChangesNothing() {
    const std::string before = Certificate().SerialNumber();
    renewed_as_ = identity::testing::Node("pirates", {identity::Role::kDatabase});
    clock_->Advance(61 * kDay);
    Step();
    QCOMPARE(renewals_asked_, 1);
    QCOMPARE(Certificate().SerialNumber(), before);
    QCOMPARE(upkeep_->failures(), std::uint64_t{1});
  }

  void Certificate_Expired_WaitsForAnotherOne() {
    clock_->Advance(91 * kDay);
    Step();
    // Nobody would answer.
    QCOMPARE(renewals_asked_, 0);
    QCOMPARE(upkeep_->failures(), std::uint64_t{1});
    // `onepiece join` has made another one.
    const auto issued = identity::testing::Issue(*authority_, Self(), clock_->WallNow());
    QVERIFY(identity::SaveIdentity(Folder(), "node", issued.key, issued.certificate,
                                   identity::TrustBundle(authority_->certificate()))
                .ok());
    QVERIFY(Step() >= IdentityUpkeep::kLookInterval);
    QCOMPARE(upkeep_->failures(), std::uint64_t{1});
  }

  void Files_ThatOthersMayRead_AreNotUsed() {
    QFile::setPermissions(QString::fromStdString(Files().key),
                          QFile::ReadOwner | QFile::WriteOwner | QFile::ReadOther);
    clock_->Advance(61 * kDay);
    Step();
    QCOMPARE(renewals_asked_, 0);
    QCOMPARE(upkeep_->failures(), std::uint64_t{1});
  }

 private:
  std::string Folder() const { return temp_->filePath("identity").toStdString(); }
  identity::IdentityFiles Files() const { return identity::FilesOf(Folder(), "node"); }
  identity::Certificate Certificate() const {
    return *identity::ReadCertificateFile(Files().certificate);
  }
  base::Duration Step() { return upkeep_->Step({}); }
  void SetTable(std::uint64_t epoch, std::initializer_list<const Authority*> believed,
                const Authority& signing) {
    table_->set_epoch(epoch);
    table_->set_authorities(BundleOf(believed));
    table_->set_signing_authority(signing.certificate().Fingerprint());
  }
  IdentityCalls Calls() {
    return {.get_table =
                [this](const std::stop_token&) {
                  ++tables_asked_;
                  return table_;
                },
            .renew = [this](const std::stop_token&,
                            const v1::RenewRequest& request) -> absl::StatusOr<v1::RenewResponse> {
              ++renewals_asked_;
              if (!renewal_.ok()) return renewal_;
              hosts_asked_ = {request.hosts().begin(), request.hosts().end()};
              v1::RenewResponse response;
              response.set_certificate(
                  signing_
                      ->Issue(*identity::SigningRequest::FromPem(request.signing_request()),
                              renewed_as_, clock_->WallNow())
                      ->ToPem());
              response.set_authorities(signing_ == authority_.get()
                                           ? BundleOf({authority_.get()})
                                           : BundleOf({authority_.get(), signing_}));
              return response;
            }};
  }

  std::unique_ptr<QTemporaryDir> temp_;
  std::unique_ptr<base::ManualClock> clock_;
  std::unique_ptr<Authority> authority_;
  const Authority* signing_ = nullptr;  // Makes the renewed certificates.
  std::unique_ptr<rpc::Door> door_;
  std::unique_ptr<telemetry::Metrics> metrics_;
  absl::StatusOr<v1::IdentityTable> table_ = absl::UnknownError("not set");
  absl::Status renewal_;
  identity::Subject renewed_as_;
  std::vector<std::string> hosts_asked_;
  int tables_asked_ = 0, renewals_asked_ = 0;
  std::unique_ptr<IdentityUpkeep> upkeep_;
};

}  // namespace onepiece::node

ONEPIECE_TEST(onepiece::node::IdentityUpkeepTest)
#include "identity_upkeep_test.moc"
