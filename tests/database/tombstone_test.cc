// What was deleted or fetched stays so, however long another database was away, and whichever
// databases keep the job then.
#include <QtTest>
#include <string>
#include <vector>

#include "tests/database/database_cluster.h"
#include "tests/database/job_store_fixture.h"
#include "tests/test_main.h"

namespace onepiece::database {
namespace {

using namespace std::chrono_literals;

constexpr int kDay = 24 * 3600;

std::vector<v1::JobRecord> RecordsOf(const JobStore& store, const std::string& uid) {
  return store.Records(std::vector{ToUid(uid)});
}

/// A keeper of a job whose result lives for 30 days, and one that has a copy and then goes away.
struct TwoKeepers {
  explicit TwoKeepers(bool done) {
    v1::JobRecord record = here.NewRecord();
    record.set_result_ttl_s(30 * kDay);
    uid = record.job().uid();
    StoreFixture::RequireOk(here.store.Create(record));
    if (done) here.Store(uid, "video");
    away.store.Merge(RecordsOf(here.store, uid));
  }
  /// Lets time pass at both. They hear nothing of each other.
  void Pass(base::Duration time) {
    for (StoreFixture* keeper : {&here, &away}) {
      keeper->clock.Advance(time);
      keeper->store.Sweep(EveryoneAlive);
    }
  }
  /// The one that was away is back, and they tell each other what they have.
  void Meet() {
    const auto back = RecordsOf(away.store, uid);
    away.store.Merge(RecordsOf(here.store, uid));
    here.store.Merge(back);
  }

  StoreFixture here{{.tombstone_ttl = 1s}}, away{{.tombstone_ttl = 1s}};
  std::string uid;
};

/// Databases that drop what others keep after a moment.
DatabaseCluster::Setup DropsSoon() {
  return {.options =
              [](DatabaseNodeOptions& options) {
                options.compare_interval = 200ms;
                options.drop_after = 200ms;
              },
          .fill = {}};
}

bool IsHere(DatabaseCluster& cluster, const std::string& id, const std::string& uid) {
  return !RecordsOf(cluster.at(id).node->store(), uid).empty();
}

}  // namespace

class TombstoneTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void ADatabaseThatWasAway_DoesNotBringBackWhatWasDeletedOrFetched_data() {
    QTest::addColumn<bool>("fetched");
    QTest::addColumn<int>("days");
    QTest::newRow("deleted, two hours later") << false << 0;
    QTest::newRow("deleted, 29 days later") << false << 29;
    QTest::newRow("fetched, 29 days later") << true << 29;
  }
  void ADatabaseThatWasAway_DoesNotBringBackWhatWasDeletedOrFetched() {
    QFETCH(const bool, fetched);
    QFETCH(const int, days);
    TwoKeepers f(/*done=*/true);
    if (fetched) {
      QVERIFY(f.here.store.Acknowledge(f.uid).ok());
    } else {
      QVERIFY(f.here.store.Delete(f.uid).ok());
    }
    f.Pass(2h + days * 24h);
    QVERIFY(f.away.State(f.uid) == v1::Job::SUCCEEDED);
    f.Meet();
    for (StoreFixture* keeper : {&f.here, &f.away}) {
      const absl::Status status = keeper->store.FindArtifact(f.uid, "").status();
      QCOMPARE(Reason(status), std::string(fetched ? "RESULT_FETCHED" : "JOB_UNKNOWN"));
      QCOMPARE(keeper->store.List({})->jobs_size(), fetched ? 1 : 0);
    }
    // No copy is left, and neither tombstone lives longer because of the other.
    f.Pass(2 * 24h);
    f.Pass(30 * 24h);
    QCOMPARE(f.here.store.stats().records, 0);
    QCOMPARE(f.away.store.stats().records, 0);
  }

  // The proxy cancels a job before it deletes it. The database that is away has the job open.
  void ADatabaseThatWasAway_DoesNotBringBackAnOpenJob() {
    TwoKeepers f(/*done=*/false);
    v1::UpdateJobRequest cancel;
    cancel.set_uid(f.uid);
    cancel.set_cancelled(true);
    QVERIFY(f.here.store.Update(cancel).ok());
    QVERIFY(f.here.store.Delete(f.uid).ok());
    f.Pass(30 * 24h + 99s);
    QVERIFY(f.away.State(f.uid) != v1::Job::STATE_UNSPECIFIED);
    f.Meet();
    QCOMPARE(f.away.store.List({})->jobs_size(), 0);
    QCOMPARE(f.here.store.List({})->jobs_size(), 0);
  }

  // The end's own life is over when the database comes back, but the job's deadline is not.
  void ADatabaseThatWasAway_DoesNotEndAJobAgain_data() {
    QTest::addColumn<int>("state");
    QTest::addColumn<int>("known_s");
    QTest::newRow("failed") << static_cast<int>(v1::Job::FAILED) << 150;
    QTest::newRow("cancelled") << static_cast<int>(v1::Job::CANCELLED) << 150;
    QTest::newRow("expired") << static_cast<int>(v1::Job::EXPIRED) << 101;
  }
  void ADatabaseThatWasAway_DoesNotEndAJobAgain() {
    QFETCH(const int, state);
    QFETCH(const int, known_s);
    StoreFixture here({.tombstone_ttl = 1s}), away({.tombstone_ttl = 1s});
    const std::string uid = here.Create();  // For 100 s, and its result for 50 s.
    away.store.Merge(RecordsOf(here.store, uid));
    v1::UpdateJobRequest end;
    end.set_uid(uid);
    if (state == v1::Job::EXPIRED) {
      here.Store(uid, "video");
    } else if (state == v1::Job::CANCELLED) {
      end.set_cancelled(true);
    } else {
      end.mutable_failed()->set_reason("BROKEN");
    }
    StoreFixture::RequireOk(here.store.Update(end));
    const auto pass = [&](StoreFixture& f, int seconds) {
      for (int i = 0; i < seconds; ++i) {
        f.clock.Advance(1s);
        f.store.Sweep(EveryoneAlive);
      }
    };
    pass(here, 99);
    pass(away, 99);
    away.store.Merge(RecordsOf(here.store, uid));
    here.store.Merge(RecordsOf(away.store, uid));
    for (StoreFixture* keeper : {&here, &away}) {
      QCOMPARE(static_cast<int>(keeper->State(uid)), state);
      pass(*keeper, known_s - 100);
      QCOMPARE(static_cast<int>(keeper->State(uid)), state);
      pass(*keeper, 1);
      QCOMPARE(keeper->store.stats().records, 0);
    }
  }

  // The new keeper gets the job from the former one, which then has no copy that it could bring
  // back.
  void AFormerKeeper_HandsOverAndDrops() {
    DatabaseCluster cluster;
    for (const char* id : {"db-1", "db-2"}) cluster.AddDatabase(id, {}, DropsSoon());
    std::vector<std::string> uids;
    for (int i = 0; i < 30; ++i) {
      const v1::JobRecord record = NewRecord();
      uids.push_back(record.job().uid());
      QVERIFY(cluster.records().Create(record).ok());
      // A third has a result, a third is deleted, and a third is open.
      if (i % 3 == 0) QVERIFY(cluster.SendResult(uids.back(), "video").ok());
      if (i % 3 == 1) QVERIFY(cluster.records().Delete(ToUid(uids.back())).ok());
    }
    for (const std::string& uid : uids) {
      QVERIFY(
          Eventually([&] { return IsHere(cluster, "db-1", uid) && IsHere(cluster, "db-2", uid); }));
    }
    cluster.AddDatabase("db-3", {}, DropsSoon());
    int moved = 0;
    for (std::size_t i = 0; i < uids.size(); ++i) {
      const auto order = cluster.Order(uids[i]);
      const bool has_moved = order[2] != "db-3";
      moved += has_moved ? 1 : 0;
      QVERIFY(Eventually([&] { return !IsHere(cluster, order[2], uids[i]); }));
      for (const std::string& id : {order[0], order[1]}) {
        JobStore& store = cluster.at(id).node->store();
        QVERIFY(Eventually([&] { return IsHere(cluster, id, uids[i]); }));
        if (i % 3 == 0) QVERIFY(Eventually([&] { return store.FindArtifact(uids[i], "").ok(); }));
        if (i % 3 == 1) QVERIFY(RecordsOf(store, uids[i]).front().deleted());
      }
      // A client sees what it saw before.
      QCOMPARE(cluster.records().Get(ToUid(uids[i])).ok(), i % 3 != 1);
    }
    QVERIFY(moved > 5);
  }

  // The former keeper drops its copy, the job is deleted, and then the former keeper keeps it
  // again. The keeper that stayed tells it of the deletion.
  void AFormerKeeper_ThatKeepsTheJobAgain_DoesNotBringItBack() {
    DatabaseCluster cluster;
    for (const char* id : {"db-1", "db-2"}) cluster.AddDatabase(id, {}, DropsSoon());
    std::vector<std::string> uids;
    for (int i = 0; i < 20; ++i) {
      const v1::JobRecord record = NewRecord();
      uids.push_back(record.job().uid());
      QVERIFY(cluster.records().Create(record).ok());
    }
    for (const std::string& uid : uids) {
      QVERIFY(
          Eventually([&] { return IsHere(cluster, "db-1", uid) && IsHere(cluster, "db-2", uid); }));
    }
    cluster.AddDatabase("db-3", {}, DropsSoon());
    for (const std::string& uid : uids)
      QVERIFY(Eventually([&] { return !IsHere(cluster, cluster.Order(uid)[2], uid); }));
    for (const std::string& uid : uids) QVERIFY(cluster.records().Delete(ToUid(uid)).ok());
    cluster.Kill("db-3");
    cluster.Forget("db-3");
    for (const std::string& uid : uids) {
      for (const char* id : {"db-1", "db-2"}) {
        QVERIFY(Eventually([&] {
          const auto records = RecordsOf(cluster.at(id).node->store(), uid);
          return !records.empty() && records.front().deleted();
        }));
      }
      QVERIFY(!cluster.records().Get(ToUid(uid)).ok());
    }
  }
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::TombstoneTest)
#include "tombstone_test.moc"
