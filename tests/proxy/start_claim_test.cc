#include "cluster/proxy/start_claim.h"

#include <QtTest>
#include <atomic>
#include <thread>
#include <vector>

#include "cluster/job/job_record.h"
#include "tests/database/job_store_fixture.h"
#include "tests/test_main.h"

namespace onepiece::proxy {
namespace {

using namespace std::chrono_literals;

constexpr base::Duration kLease = 6s;

v1::Endpoint EndpointOf(const std::string& node_id) {
  v1::Endpoint endpoint;
  endpoint.set_node_id(node_id);
  endpoint.set_incarnation(1);
  return endpoint;
}

/// A database with one job, whose maker has the lease.
struct Claims : database::StoreFixture {
  Claims() : StoreFixture({.start_lease = kLease}) {
    v1::JobRecord record = NewRecord();
    uid = record.job().uid();
    *record.mutable_lease() = maker.ForNewJob();
    const base::MonotonicTime asked = clock.Now();
    RequireOk(store.Create(record));
    maker.Note(*store.Get(uid), asked);
  }
  StartClaim By(const std::string& node_id) {
    return StartClaim(
        [this](const v1::ClaimStartRequest& request) {
          clock.Advance(answers_after);
          return store.Claim(request);
        },
        EndpointOf(node_id), clock);
  }
  bool Takes(StartClaim& claim) {
    const auto answer = claim.Take(uid);
    RequireOk(answer);
    return answer->granted();
  }

  base::Duration answers_after{};
  std::string uid;
  StartClaim maker = By("proxy-1");
};

}  // namespace

class StartClaimTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void NewJob_BelongsToItsMaker() {
    Claims f;
    QVERIFY(f.maker.holds());
    StartClaim other = f.By("proxy-2");
    QVERIFY(!f.Takes(other));
    QVERIFY(!other.holds());
    QVERIFY(f.maker.IsOf(*f.store.Get(f.uid)));
  }

  void Take_RenewsAClaimThatIsDue() {
    Claims f;
    QVERIFY(!f.maker.is_due());
    f.clock.Advance(kLease / 3);
    QVERIFY(f.maker.is_due());
    QVERIFY(f.Takes(f.maker));
    QVERIFY(!f.maker.is_due());
    QVERIFY(f.maker.until() == f.clock.Now() + kLease);
  }

  // The database counts from when it grants, which is later: so the claimant stops first.
  void Take_CountsFromBeforeTheCall() {
    Claims f;
    f.answers_after = 1s;
    const base::MonotonicTime asked = f.clock.Now();
    QVERIFY(f.Takes(f.maker));
    QVERIFY(f.maker.until() == asked + kLease);
  }

  void Take_OfAnotherAfterTheLease_EndsTheFirstClaim() {
    Claims f;
    f.clock.Advance(kLease);
    QVERIFY(!f.maker.holds());
    StartClaim other = f.By("proxy-2");
    QVERIFY(f.Takes(other));
    QVERIFY(!f.Takes(f.maker));
    QVERIFY(!f.maker.IsOf(*f.store.Get(f.uid)));
    QVERIFY(other.IsOf(*f.store.Get(f.uid)));
  }

  // Two calls of one proxy are two claims: only one of them starts the job.
  void Take_OfTheSameProxy_IsAnotherClaim() {
    Claims f;
    StartClaim other = f.By("proxy-1");
    QVERIFY(!f.Takes(other));
    QVERIFY(!other.IsOf(*f.store.Get(f.uid)));
  }

  void Release_LetsTheNextTakeItAtOnce() {
    Claims f;
    f.maker.Release(f.uid);
    QVERIFY(!f.maker.holds());
    StartClaim other = f.By("proxy-2");
    QVERIFY(f.Takes(other));
    // It does not hold any more, so it ends nothing.
    f.maker.Release(f.uid);
    QVERIFY(f.Takes(other));
  }

  void Threads_OneClaimHoldsAtATime() {
    Claims f;
    f.maker.Release(f.uid);
    std::atomic<int> holding = 0, most = 0, starts = 0;
    std::vector<std::jthread> calls;
    for (int i = 0; i < 4; ++i) {
      calls.emplace_back([&, i] {
        StartClaim claim = f.By("proxy-" + std::to_string(i));
        for (int round = 0; round < 200; ++round) {
          if (!f.Takes(claim)) continue;
          if (const int now = ++holding; now > most) most = now;
          ++starts;
          --holding;
          claim.Release(f.uid);
        }
      });
    }
    calls.clear();
    QCOMPARE(most.load(), 1);
    QVERIFY(starts > 0);
  }
};

}  // namespace onepiece::proxy

ONEPIECE_TEST(onepiece::proxy::StartClaimTest)
#include "start_claim_test.moc"
