// Watching jobs: subscriptions of the store, and many watchers of one database over few
// connections.

#include <QtTest>
#include <list>
#include <memory>
#include <string>

#include "cluster/rpc/status.h"
#include "tests/database/served_store.h"
#include "tests/database/state_log.h"
#include "tests/stream_watcher.h"
#include "tests/test_main.h"

namespace onepiece::database {
namespace {

using testing::All;
using testing::Eventually;
using testing::StreamWatcher;
using testing::StreamWatchers;

std::string NameIn(const std::string& uid) { return "jobs/" + uid; }

}  // namespace

class WatchTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Subscriber_IsToldTheLatestState() {
    StoreFixture f;
    const std::string uid = f.Create();
    StateLog log;
    const std::uint64_t first = log.Subscribe(f.store, uid);
    constexpr int kSteps = 200;
    for (int step = 1; step <= kSteps; ++step) {
      QVERIFY(f.store.Update(f.Progress(uid, "a", 0, step)).ok());
    }
    QVERIFY(Eventually([&] { return log.After(first).step() == kSteps; }));
    QVERIFY(log.told().size() <= kSteps);
    QCOMPARE(log.repeats(), 0);
  }

  void Subscriber_IsToldOfTheEnd() {
    StoreFixture f;
    const std::string uid = f.Create();
    StateLog log;
    log.Subscribe(f.store, uid);
    QVERIFY(f.store.Delete(uid).ok());
    QVERIFY(Eventually([&] { return Reason(log.status()) == "JOB_UNKNOWN"; }));
    const auto ignore = [](const absl::StatusOr<JobRevision>&, bool) {};
    QCOMPARE(Reason(f.store.Subscribe(uid, ignore).status()), std::string("JOB_UNKNOWN"));
  }

  void Subscriber_IsToldNothingAfterItsEnd() {
    StoreFixture f;
    const std::string uid = f.Create();
    StateLog ended, other;
    ended.Subscribe(f.store, uid);
    const std::uint64_t first = other.Subscribe(f.store, uid);
    ended.End();
    QVERIFY(f.store.Update(f.Progress(uid, "a", 0, 1)).ok());
    (void)other.After(first);
    QVERIFY(ended.told().empty());
  }

  void Subscriber_HearsAnUnchangedStateAgain() {
    StoreFixture f;
    const std::string uid = f.Create();
    StateLog log;
    const std::uint64_t first = log.Subscribe(f.store, uid);
    QVERIFY(Eventually([&] {
      f.clock.Advance(base::Scaled(Watches::kRepeat) / 8);
      return log.repeats() > 1;
    }));
    QCOMPARE(log.told().back().revision, first);
  }

  // A job that is forgotten and made again is another one, and its watchers see it go on.
  void Subscriber_SeesAJobThatIsMadeAgain() {
    StoreFixture f({.tombstone_ttl = std::chrono::seconds(1)});
    const v1::JobRecord record = f.NewRecord();
    const std::string& uid = record.job().uid();
    StoreFixture::RequireOk(f.store.Create(record));
    StateLog log;
    const std::uint64_t first = log.Subscribe(f.store, uid);
    QVERIFY(f.store.Delete(uid).ok());
    f.clock.Advance(
        std::chrono::seconds(151));  // Its deadline, its result's life and tombstone_ttl.
    f.store.Sweep(EveryoneAlive);
    QVERIFY(Eventually([&] { return !log.status().ok(); }));
    StoreFixture::RequireOk(f.store.Create(record));
    StateLog again;
    QVERIFY(again.Subscribe(f.store, uid) > first);
    QVERIFY(f.store.Update(f.Progress(uid, "a", 0, 4)).ok());
    QCOMPARE(log.After(first).step(), 4);
  }

  void Watchers_CostNoThread() {
    constexpr int kJobs = 10, kWatchersOfEach = 200;
    ServedStore s;
    const auto watchable = [](StreamWatcher& watcher) { return watcher.states() > 0; };
    std::vector<std::string> uids;
    StreamWatchers watchers;
    for (int i = 0; i < kJobs; ++i) uids.push_back(s.f.Create());
    watchers.emplace_back(*s.stub, NameIn(uids[0]));
    QVERIFY(Eventually([&] { return All(watchers, watchable); }));
    const int threads = testing::Threads();
    for (const std::string& uid : uids) {
      for (int i = 0; i < kWatchersOfEach; ++i) watchers.emplace_back(*s.stub, NameIn(uid));
    }
    QVERIFY(Eventually([&] { return All(watchers, watchable); }));
    // gRPC has a few threads of its own, which come with the processors and not with the calls.
    const int grown = testing::Threads() - threads;
    QVERIFY2(grown < 20, std::to_string(grown).c_str());
    for (const std::string& uid : uids) {
      QVERIFY(s.f.store.Update(s.f.Progress(uid, "a", 0, 7)).ok());
    }
    QVERIFY(Eventually([&] {
      return All(watchers, [](StreamWatcher& watcher) { return watcher.job().step() == 7; });
    }));
    for (const std::string& uid : uids) s.f.Store(uid, "video");
    QVERIFY(Eventually(
        [&] { return All(watchers, [](StreamWatcher& watcher) { return watcher.done(); }); }));
    QVERIFY(All(watchers, [](StreamWatcher& watcher) {
      return watcher.status().ok() && watcher.job().state() == v1::Job::SUCCEEDED;
    }));
  }

  void Watchers_EndWhenTheServiceStops() {
    ServedStore s;
    const std::string uid = s.f.Create();
    StreamWatchers watchers;
    for (int i = 0; i < 100; ++i) watchers.emplace_back(*s.stub, NameIn(uid));
    QVERIFY(Eventually([&] {
      return All(watchers, [](StreamWatcher& watcher) { return watcher.states() > 0; });
    }));
    s.service->Stop();
    QVERIFY(Eventually(
        [&] { return All(watchers, [](StreamWatcher& watcher) { return watcher.done(); }); }));
    QVERIFY(All(watchers, [](StreamWatcher& watcher) {
      return Reason(watcher.status()) == std::string("STOPPING");
    }));
  }

  void AFlood_LeavesRoomForOthers() {
    constexpr int kPlaces = 64, kFlood = 300;
    ServedStore s({}, std::int64_t{1} << 30, kPlaces);
    const std::string uid = s.f.Create();
    StreamWatchers flood;
    for (int i = 0; i < kFlood; ++i) flood.emplace_back(*s.stub, NameIn(uid));
    QVERIFY(Eventually([&] {
      return All(flood,
                 [](StreamWatcher& watcher) { return watcher.done() || watcher.states() > 0; });
    }));
    int refused = 0;
    for (StreamWatcher& watcher : flood) {
      if (!watcher.done()) continue;
      ++refused;
      const absl::Status status = watcher.status();
      QCOMPARE(status.code(), absl::StatusCode::kResourceExhausted);
      QCOMPARE(Reason(status), std::string("TOO_MANY_WATCHERS"));
      QVERIFY(base::GetReason(status).metadata.contains(rpc::kRetryAfterMs));
    }
    QCOMPARE(refused, kFlood - kPlaces / 2);
    // Another client watches, and a node's update goes through.
    const auto other = v1::DatabaseService::NewStub(rpc::MakeChannel(s.server.address()));
    StreamWatcher watcher(*other, NameIn(uid));
    QVERIFY(Eventually([&] { return watcher.states() > 0; }));
    QVERIFY(rpc::Call(*other, &v1::DatabaseService::Stub::UpdateJob, s.f.Progress(uid, "a", 0, 3),
                      std::chrono::seconds(10))
                .ok());
    QVERIFY(Eventually([&] { return watcher.job().step() == 3; }));
    // Places come back, a moment after the clients have left.
    flood.clear();
    QVERIFY(Eventually([&] { return s.service->watches() == 1; }));
    StreamWatchers later;
    for (int i = 0; i < kPlaces / 2 - 1; ++i) later.emplace_back(*s.stub, NameIn(uid));
    QVERIFY(Eventually(
        [&] { return All(later, [](StreamWatcher& one) { return one.states() > 0; }); }));
  }
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::WatchTest)
#include "watch_test.moc"
