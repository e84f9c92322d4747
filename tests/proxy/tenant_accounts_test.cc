#include "cluster/proxy/tenant_accounts.h"

#include <QtTest>

#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::proxy {
namespace {

using namespace std::chrono_literals;

base::Uid AnyUid() { return base::Uid::GenerateRandom(); }

v1::Tenant Films(int in_flight, double per_s = 0, double worker_seconds = 0) {
  v1::Tenant tenant;
  tenant.set_name("films");
  tenant.mutable_quota()->set_jobs_in_flight(in_flight);
  tenant.mutable_quota()->set_jobs_per_s(per_s);
  tenant.mutable_quota()->set_worker_seconds_per_h(worker_seconds);
  return tenant;
}

/// A job that has computed so many seconds and has a result of 100 bytes.
v1::Job Ended(int seconds) {
  v1::Job job;
  job.add_timings()->mutable_compute()->set_seconds(seconds);
  job.mutable_result()->add_artifacts()->set_size_bytes(100);
  return job;
}

}  // namespace

class TenantAccountsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void WithoutAQuota_NothingIsRefused_AndUseIsCounted() {
    base::ManualClock clock;
    TenantAccounts accounts(clock);
    for (int i = 0; i < 1000; ++i) {
      const base::Uid uid = AnyUid();
      QVERIFY(accounts.Admit("films", uid).ok());
      accounts.End(uid, Ended(2));
    }
    const auto uses = accounts.TakeUses();
    QCOMPARE(uses.size(), std::size_t{1});
    QCOMPARE(uses[0].tenant(), std::string("films"));
    QCOMPARE(uses[0].jobs(), 1000);
    QCOMPARE(uses[0].worker_seconds(), 2000.0);
    QCOMPARE(uses[0].bytes(), 100'000);
    QVERIFY(accounts.TakeUses().empty());
  }

  void JobsInFlight_AreSharedOutAmongTheProxies() {
    base::ManualClock clock;
    TenantAccounts accounts(clock);
    accounts.SetQuotas({Films(5)}, 2);
    std::vector<base::Uid> jobs;
    for (int i = 0; i < 3; ++i) {
      jobs.push_back(AnyUid());
      QVERIFY(accounts.Admit("films", jobs.back()).ok());
    }
    const absl::Status refused = accounts.Admit("films", AnyUid()).status();
    QVERIFY(absl::IsResourceExhausted(refused));
    QCOMPARE(Reason(refused), std::string("QUOTA_EXCEEDED"));
    QCOMPARE(base::GetReason(refused).metadata.at("limit"), std::string("jobs_in_flight"));
    QVERIFY(base::GetReason(refused).metadata.contains("retry_after_ms"));
    // The same job again takes no other place, and another tenant has its own.
    QVERIFY(!*accounts.Admit("films", jobs[0]));
    QVERIFY(accounts.Admit("games", AnyUid()).ok());
    accounts.End(jobs[0], Ended(1));
    accounts.End(jobs[0], Ended(1));
    QCOMPARE(accounts.UnderWay("films"), 2);
    QVERIFY(accounts.Admit("films", AnyUid()).ok());
    accounts.Withdraw(jobs[1]);
    QVERIFY(accounts.Admit("films", AnyUid()).ok());
    QVERIFY(!accounts.Admit("films", AnyUid()).ok());
  }

  void JobsPerSecond_ComeBackWithTime() {
    base::ManualClock clock;
    TenantAccounts accounts(clock);
    accounts.SetQuotas({Films(0, 2)}, 1);
    QVERIFY(accounts.Admit("films", AnyUid()).ok());
    QVERIFY(accounts.Admit("films", AnyUid()).ok());
    const absl::Status refused = accounts.Admit("films", AnyUid()).status();
    QCOMPARE(base::GetReason(refused).metadata.at("limit"), std::string("jobs_per_s"));
    QCOMPARE(base::GetReason(refused).metadata.at("retry_after_ms"), std::string("500"));
    clock.Advance(499ms);
    QVERIFY(!accounts.Admit("films", AnyUid()).ok());
    clock.Advance(2ms);
    QVERIFY(accounts.Admit("films", AnyUid()).ok());
    // A pause saves up one second's jobs and no more.
    clock.Advance(1h);
    for (int i = 0; i < 2; ++i) QVERIFY(accounts.Admit("films", AnyUid()).ok());
    QVERIFY(!accounts.Admit("films", AnyUid()).ok());
  }

  void WorkerSeconds_AreADebtThatTimePays() {
    base::ManualClock clock;
    TenantAccounts accounts(clock);
    accounts.SetQuotas({Films(0, 0, 360)}, 1);  // 0.1 worker seconds a second.
    const base::Uid job = AnyUid();
    QVERIFY(accounts.Admit("films", job).ok());
    accounts.End(job, Ended(370));
    const absl::Status refused = accounts.Admit("films", AnyUid()).status();
    QCOMPARE(base::GetReason(refused).metadata.at("limit"), std::string("worker_seconds_per_h"));
    clock.Advance(99s);
    QVERIFY(!accounts.Admit("films", AnyUid()).ok());
    clock.Advance(2s);
    QVERIFY(accounts.Admit("films", AnyUid()).ok());
  }

  void AQuotaThatGoes_HoldsNoMore() {
    base::ManualClock clock;
    TenantAccounts accounts(clock);
    accounts.SetQuotas({Films(1)}, 1);
    QVERIFY(accounts.Admit("films", AnyUid()).ok());
    QVERIFY(!accounts.Admit("films", AnyUid()).ok());
    accounts.SetQuotas({}, 1);
    QVERIFY(accounts.Admit("films", AnyUid()).ok());
  }
};

}  // namespace onepiece::proxy

ONEPIECE_TEST(onepiece::proxy::TenantAccountsTest)
#include "tenant_accounts_test.moc"
