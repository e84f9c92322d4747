// A tenant whose results fill its quota gets no new jobs, and each database grants its part.
#include "cluster/database/storage_quotas.h"

#include <QtTest>

#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "cluster/rpc/door.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::database {

class StorageQuotasTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    door_ = std::make_unique<rpc::Door>("pirates", clock_);
    databases_ = 2;
    quotas_ = std::make_unique<StorageQuotas>(*door_, 2, [this] { return databases_; });
    v1::IdentityTable table;
    table.set_epoch(1);
    *table.add_tenants() = TenantOf("films", 1000);
    *table.add_tenants() = TenantOf("games", 0);
    door_->Take(table);
  }

  void ATenant_MayStoreUpToItsQuota() {
    QVERIFY(quotas_->Check("films", 0).ok());
    QVERIFY(quotas_->Check("films", 999).ok());
    const absl::Status full = quotas_->Check("films", 1000);
    QVERIFY(absl::IsResourceExhausted(full));
    QCOMPARE(Reason(full), std::string("QUOTA_EXCEEDED"));
    QCOMPARE(base::GetReason(full).metadata.at("limit"), std::string("stored_bytes"));
    QVERIFY(base::GetReason(full).metadata.contains("retry_after_ms"));
  }

  void WithoutAQuota_ThereIsNoBound() {
    QVERIFY(quotas_->Check("games", 1'000'000'000'000).ok());
    QVERIFY(quotas_->Check("unknown", 1'000'000'000'000).ok());
  }

  void ADatabaseOfMany_GrantsItsPart() {
    databases_ = 8;  // Each of them has a quarter of the copies.
    QVERIFY(quotas_->Check("films", 249).ok());
    QVERIFY(!quotas_->Check("films", 250).ok());
    databases_ = 1;
    QVERIFY(quotas_->Check("films", 999).ok());
    databases_ = 0;  // It does not know the cluster yet.
    QVERIFY(quotas_->Check("films", 999).ok());
  }

  void ANewQuota_HoldsAtOnce() {
    v1::IdentityTable table;
    table.set_epoch(2);
    *table.add_tenants() = TenantOf("films", 10);
    door_->Take(table);
    QVERIFY(!quotas_->Check("films", 10).ok());
  }

 private:
  static v1::Tenant TenantOf(const std::string& name, std::int64_t bytes) {
    v1::Tenant tenant;
    tenant.set_name(name);
    tenant.mutable_quota()->set_stored_bytes(bytes);
    return tenant;
  }

  base::ManualClock clock_;
  std::unique_ptr<rpc::Door> door_;
  int databases_ = 2;
  std::unique_ptr<StorageQuotas> quotas_;
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::StorageQuotasTest)
#include "storage_quotas_test.moc"
