// Watching through a proxy: many clients of one job, databases that go away, clients that flood.

#include <QtTest>
#include <atomic>
#include <string>
#include <vector>

#include "tests/proxy/proxy_cluster.h"
#include "tests/stream_watcher.h"
#include "tests/test_main.h"

namespace onepiece::proxy {
namespace {

using testing::All;
using testing::StreamWatcher;
using testing::StreamWatchers;

bool HasState(StreamWatcher& watcher) { return watcher.states() > 0; }
bool IsDone(StreamWatcher& watcher) { return watcher.done(); }

}  // namespace

class WatchTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Watchers_OfOneJobShareOneWatchOfTheDatabase() {
    constexpr int kWatchers = 2'000;
    ServedCluster cluster;
    const Job job = cluster.proxy.Begin(Request());
    StreamWatchers watchers;
    watchers.emplace_back(*cluster.proxy.stub, job.name());
    QVERIFY(Eventually([&] { return All(watchers, HasState); }));
    const int threads = testing::Threads();
    for (int i = 1; i < kWatchers; ++i) watchers.emplace_back(*cluster.proxy.stub, job.name());
    QVERIFY(Eventually([&] { return All(watchers, HasState); }));
    QCOMPARE(cluster.proxy.service.watches(), std::size_t{kWatchers});
    QCOMPARE(cluster.proxy.service.watched_jobs(), std::size_t{1});
    // gRPC has a few threads of its own, which come with the processors and not with the calls.
    const int grown = testing::Threads() - threads;
    QVERIFY2(grown < 20, std::to_string(grown).c_str());

    QVERIFY(cluster.records().Update(cluster.instance.Progress(job.uid(), 3)).ok());
    QVERIFY(Eventually([&] {
      return All(watchers, [](StreamWatcher& watcher) { return watcher.job().step() == 3; });
    }));
    QVERIFY(cluster.SendResult(job.uid(), "video").ok());
    QVERIFY(Eventually([&] { return All(watchers, IsDone); }));
    QVERIFY(All(watchers, [](StreamWatcher& watcher) {
      return watcher.status().ok() && watcher.job().state() == Job::SUCCEEDED;
    }));
    QVERIFY(Eventually([&] {
      return cluster.proxy.service.watches() == 0 && cluster.proxy.service.watched_jobs() == 0;
    }));
  }

  void LastWatcherLeaves_TheDatabaseIsLeftToo() {
    ServedCluster cluster;
    const Job job = cluster.proxy.Begin(Request());
    StreamWatchers watchers;
    for (int i = 0; i < 2; ++i) watchers.emplace_back(*cluster.proxy.stub, job.name());
    QVERIFY(Eventually([&] { return All(watchers, HasState); }));
    watchers.pop_back();
    QVERIFY(Eventually([&] { return cluster.proxy.service.watches() == 1; }));
    QCOMPARE(cluster.proxy.service.watched_jobs(), std::size_t{1});
    watchers.pop_back();
    QVERIFY(Eventually([&] { return cluster.proxy.service.watched_jobs() == 0; }));
    // The next one begins anew.
    watchers.emplace_back(*cluster.proxy.stub, job.name());
    QVERIFY(Eventually([&] { return All(watchers, HasState); }));
  }

  void DatabaseDies_TheWatchGoesOnAtTheNext() {
    ServedCluster cluster;
    const Job job = cluster.proxy.Begin(Request());
    StreamWatchers watchers;
    for (int i = 0; i < 20; ++i) watchers.emplace_back(*cluster.proxy.stub, job.name());
    QVERIFY(Eventually([&] { return All(watchers, HasState); }));
    const std::vector<std::string> order = cluster.Order(job.uid());
    QVERIFY(Eventually([&] { return cluster.at(order[1]).node->store().Get(job.uid()).ok(); }));
    cluster.Kill(order[0]);
    cluster.Forget(order[0]);
    QVERIFY(cluster.SendResult(job.uid(), "video").ok());
    QVERIFY(Eventually([&] { return All(watchers, IsDone); }));
    QVERIFY(All(watchers, [](StreamWatcher& watcher) {
      return watcher.job().state() == Job::SUCCEEDED && watcher.status().ok();
    }));
  }

  void UnknownJob_IsNotFound() {
    ServedCluster cluster;
    StreamWatcher watcher(*cluster.proxy.stub, "jobs/018f2b1c-0000-4000-8000-0123456789ab");
    QVERIFY(Eventually([&] { return watcher.done(); }));
    QCOMPARE(Reason(watcher.status()), std::string("JOB_UNKNOWN"));
    StreamWatcher malformed(*cluster.proxy.stub, "jobs/x");
    QVERIFY(Eventually([&] { return malformed.done(); }));
    QCOMPARE(Reason(malformed.status()), std::string("BAD_NAME"));
  }

  void Stop_EndsTheWatches() {
    ServedCluster cluster;
    const Job job = cluster.proxy.Begin(Request());
    StreamWatchers watchers;
    for (int i = 0; i < 50; ++i) watchers.emplace_back(*cluster.proxy.stub, job.name());
    QVERIFY(Eventually([&] { return All(watchers, HasState); }));
    cluster.proxy.service.Stop();
    QVERIFY(Eventually([&] { return All(watchers, IsDone); }));
    QVERIFY(All(watchers, [](StreamWatcher& watcher) {
      return Reason(watcher.status()) == std::string("STOPPING");
    }));
    QCOMPARE(cluster.proxy.service.watched_jobs(), std::size_t{0});
  }

  // 300 watches of one client once took all places of the databases, which then also refused the
  // nodes' updates.
  void AFlood_LeavesRoomForOthers() {
    constexpr int kFlood = 300;
    ServedCluster cluster;
    std::vector<Job> jobs;
    for (int i = 0; i < kFlood / 3; ++i) {
      const v1::JobRecord record = database::NewRecord();
      Require(cluster.records().Create(record).status());
      jobs.push_back(record.job());
    }
    StreamWatchers flood;
    for (int i = 0; i < kFlood; ++i) {
      flood.emplace_back(*cluster.proxy.stub, jobs[static_cast<std::size_t>(i) / 3].name());
    }
    QVERIFY(Eventually([&] { return All(flood, HasState); }));
    v1::GenerationService::Stub other(rpc::MakeChannel(cluster.proxy.server.address()));
    StreamWatcher watcher(other, jobs[0].name());
    QVERIFY(Eventually([&] { return watcher.states() > 0; }));
    QVERIFY(cluster.proxy.Submit(Request()).ok());
    QVERIFY(cluster.records().Update(cluster.instance.Progress(jobs[0].uid(), 5)).ok());
    QVERIFY(Eventually([&] { return watcher.job().step() == 5; }));
  }
};

}  // namespace onepiece::proxy

ONEPIECE_TEST(onepiece::proxy::WatchTest)
#include "watch_test.moc"
