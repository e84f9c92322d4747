// How a job ends: the keepers agree before anybody is told, so that an end which was told is final.
#include <QtTest>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "cluster/database/placement.h"
#include "tests/database/database_cluster.h"
#include "tests/database/job_store_fixture.h"
#include "tests/test_main.h"

namespace onepiece::database {
namespace {

using namespace std::chrono_literals;
using v1::Job;

v1::UpdateJobRequest Cancellation(const std::string& uid) {
  v1::UpdateJobRequest cancel;
  cancel.set_uid(uid);
  cancel.set_cancelled(true);
  return cancel;
}

/// A store with another keeper that answers, or not.
struct AskingStore {
  base::ManualClock clock;
  bool answers = true;
  int asked = 0;
  JobStore store{{}, clock, {.settle = [this](const base::Uid&) {
                   ++asked;
                   return answers;
                 }}};

  std::string Create() {
    v1::JobRecord record = NewRecord();
    Require(store.Create(record).status());
    return record.job().uid();
  }
  Job::State State(const std::string& uid) { return store.Get(uid)->job().state(); }
  v1::JobRecord Record(const std::string& uid) {
    return store.Records(std::vector{*base::Uid::Parse(uid)}).at(0);
  }
  StoreOutcome Store(const std::string& uid, const std::string& bytes, message::Kind kind,
                     bool hold = false) {
    message::Message message;
    message.header.uid = *base::Uid::Parse(uid);
    message.header.app = "app";
    message.header.deadline = clock.Now() + 60s;
    message.artifacts.push_back(message::BytesArtifact("video", "video/mp4", bytes));
    return *store.StoreResult(*MakeResultBundle(message), kind, {.hold = hold});
  }
};

/// Remembers every end of a job that a watcher of a database was told.
class Told {
 public:
  void Watch(JobStore& store, const std::string& uid) {
    auto subscribed =
        store.Subscribe(uid, [this, uid](const absl::StatusOr<JobRevision>& now, bool) {
          if (now.ok()) Note(uid, *now->job);
        });
    Require(subscribed.status());
    Note(uid, *subscribed->now.job);
    subscriptions_.push_back(std::move(subscribed->subscription));
  }
  std::set<Job::State> Of(const std::string& uid) {
    const base::MutexLock lock(mutex_);
    return ends_[uid];
  }

 private:
  void Note(const std::string& uid, const Job& job) {
    const base::MutexLock lock(mutex_);
    if (job::IsTerminal(job.state())) ends_[uid].insert(job.state());
  }

  base::Mutex mutex_;
  std::map<std::string, std::set<Job::State>> ends_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Watches::Subscription>> subscriptions_;
};

}  // namespace

class EndsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Proposed_IsNotToldAndTakesNoOtherEnd() {
    AskingStore f;
    const std::string uid = f.Create();
    QCOMPARE(f.store.Update(Cancellation(uid))->job().state(), Job::QUEUED);
    QCOMPARE(f.asked, 1);
    v1::UpdateJobRequest fail;
    fail.set_uid(uid);
    fail.mutable_failed()->set_reason("STAGE_FAILED");
    QVERIFY(f.store.Update(fail).ok());
    QCOMPARE(f.Store(uid, "late", message::Kind::kResult), StoreOutcome::kLate);
    QCOMPARE(f.State(uid), Job::QUEUED);
    QVERIFY(f.store.Confirm(*base::Uid::Parse(uid)));
    QCOMPARE(f.State(uid), Job::CANCELLED);
    QVERIFY(!f.store.Confirm(*base::Uid::Parse(uid)));
  }

  void Proposed_EndsAtOnceWhenNobodyCanBeAsked() {
    AskingStore f;
    f.answers = false;
    const std::string uid = f.Create();
    QCOMPARE(f.store.Update(Cancellation(uid))->job().state(), Job::CANCELLED);
  }

  // Whoever was to confirm it has gone: neither the deadline nor a dead holder ends it otherwise.
  void Proposed_EndsInTimeByItself() {
    AskingStore f;
    const std::string uid = f.Create();
    QVERIFY(f.store.Update(Cancellation(uid)).ok());
    f.clock.Advance(59s);
    f.store.Sweep({});
    QCOMPARE(f.State(uid), Job::QUEUED);
    f.clock.Advance(2s);
    f.store.Sweep({});
    f.store.Sweep({});
    QCOMPARE(f.State(uid), Job::CANCELLED);
  }

  void Deadline_IsAProposalToo() {
    AskingStore f;
    const std::string uid = f.Create();
    f.clock.Advance(61s);
    f.store.Sweep({});
    QCOMPARE(f.State(uid), Job::QUEUED);
    QCOMPARE(job::EndOf(f.Record(uid)), Job::FAILED);
  }

  void Merge_AsksAgainWhenAnotherEndWins() {
    AskingStore a, b;
    const std::string uid = a.Create();
    b.store.Merge(std::vector{a.Record(uid)});
    QVERIFY(a.store.Update(Cancellation(uid)).ok());
    QCOMPARE(b.Store(uid, "video", message::Kind::kReplica), StoreOutcome::kStored);
    QCOMPARE(b.State(uid), Job::QUEUED);
    a.store.Merge(std::vector{b.Record(uid)});
    QCOMPARE(a.asked, 2);
    b.store.Merge(std::vector{a.Record(uid)});
    QCOMPARE(b.asked, 1);
    QCOMPARE(job::EndOf(a.Record(uid)), Job::SUCCEEDED);
    QVERIFY(job::SameEnd(a.Record(uid), b.Record(uid)));
    // Only the bytes are missing at `a`.
    QVERIFY(b.Record(uid).has_bytes() && !a.Record(uid).has_bytes());
    QCOMPARE(a.Store(uid, "another", message::Kind::kReplica), StoreOutcome::kLate);
    QCOMPARE(a.Store(uid, "video", message::Kind::kReplica), StoreOutcome::kStored);
    QVERIFY(a.Record(uid).has_bytes());
  }

  void Merge_DropsAHeldResultThatLost() {
    AskingStore a, b;
    const std::string uid = a.Create();
    b.store.Merge(std::vector{a.Record(uid)});
    QCOMPARE(a.Store(uid, "mine", message::Kind::kResult, /*hold=*/true), StoreOutcome::kHeld);
    QCOMPARE(b.Store(uid, "theirs", message::Kind::kReplica), StoreOutcome::kStored);
    a.store.Merge(std::vector{b.Record(uid)});
    QVERIFY(!a.Record(uid).has_bytes());
    QCOMPARE(a.Store(uid, "theirs", message::Kind::kReplica), StoreOutcome::kStored);
  }

  // A peer without room for this very result fails the job, or one is told to cancel it.
  void Merge_AHeldResultBeatsAnotherEndThatIsProposed() {
    for (const bool cancelled : {false, true}) {
      AskingStore a, b;
      const std::string uid = a.Create();
      b.store.Merge(std::vector{a.Record(uid)});
      QCOMPARE(b.Store(uid, "video", message::Kind::kResult, /*hold=*/true), StoreOutcome::kHeld);
      v1::UpdateJobRequest end = Cancellation(uid);
      end.set_cancelled(cancelled);
      if (!cancelled) end.mutable_failed()->set_reason("RESULT_BUDGET_EXCEEDED");
      QVERIFY(a.store.Update(end).ok());
      b.store.Merge(std::vector{a.Record(uid)});
      QCOMPARE(job::EndOf(b.Record(uid)), Job::SUCCEEDED);
      QVERIFY(b.Record(uid).has_bytes());
      QCOMPARE(b.asked, 1);
      a.store.Merge(std::vector{b.Record(uid)});
      QVERIFY(job::SameEnd(a.Record(uid), b.Record(uid)));
      QVERIFY(b.store.Confirm(*base::Uid::Parse(uid)));
      QCOMPARE(b.State(uid), Job::SUCCEEDED);
    }
  }

  void Merge_AHeldResultOfAnEarlierRunBeatsNothing() {
    AskingStore a, b;
    const std::string uid = a.Create();
    b.store.Merge(std::vector{a.Record(uid)});
    QCOMPARE(b.Store(uid, "video", message::Kind::kResult, /*hold=*/true), StoreOutcome::kHeld);
    QVERIFY(a.store.Update(Cancellation(uid)).ok());
    v1::JobRecord later = a.Record(uid);
    job::NoteRun(7, later);
    b.store.Merge(std::vector{later});
    QCOMPARE(job::EndOf(b.Record(uid)), Job::CANCELLED);
  }

  // A client that was told CANCELLED loses nothing when the database that told it dies at once.
  void Cancellation_IsKnownToBothBeforeItIsTold() {
    DatabaseCluster cluster;
    JobStore& first = cluster.AddDatabase("db-1").node->store();
    JobStore& second = cluster.AddDatabase("db-2").node->store();
    for (int i = 0; i < 50; ++i) {
      const v1::JobRecord record = NewRecord();
      const std::string& uid = record.job().uid();
      Require(first.Create(record).status());
      second.Merge(std::vector{record});
      base::Mutex mutex;
      Job::State known = Job::STATE_UNSPECIFIED;  // To the second when the first tells the end.
      bool told = false;
      const auto look = [&](const Job& job) {
        if (job.state() != Job::CANCELLED) return;
        const auto there = second.Records(std::vector{*base::Uid::Parse(uid)});
        const base::MutexLock lock(mutex);
        if (!told && !there.empty()) known = job::EndOf(there[0]);
        told = true;
      };
      const auto subscribed =
          first.Subscribe(uid, [&](const absl::StatusOr<JobRevision>& now, bool) {
            if (now.ok()) look(*now->job);
          });
      Require(subscribed.status());
      Require(first.Update(Cancellation(uid)).status());
      QVERIFY(Eventually([&] {
        const base::MutexLock lock(mutex);
        return told;
      }));
      QCOMPARE(known, Job::CANCELLED);
    }
  }

  // The client cancels at one keeper while the result arrives at the other: whoever watches, at
  // either of them, is told one end.
  void ResultAndCancellation_AtTwoKeepersEndTheJobOnce_data() {
    QTest::addColumn<int>("acknowledge");
    QTest::newRow("all") << static_cast<int>(v1::RESULT_COPIES_ALL);
    QTest::newRow("first") << static_cast<int>(v1::RESULT_COPIES_FIRST);
  }
  void ResultAndCancellation_AtTwoKeepersEndTheJobOnce() {
    QFETCH(int, acknowledge);
    DatabaseCluster cluster;
    for (const char* id : {"db-1", "db-2"}) {
      cluster.AddDatabase(id, {}, {.options = [&](DatabaseNodeOptions& options) {
                            options.acknowledge = static_cast<v1::ResultCopies>(acknowledge);
                          }});
    }
    Told told;
    std::vector<std::string> uids;
    int cancelled = 0;
    for (int i = 0; i < 200; ++i) {
      const v1::JobRecord record = NewRecord();
      const std::string& uid = uids.emplace_back(record.job().uid());
      const std::vector<std::string> order = cluster.Order(uid);
      JobStore& holder = cluster.at(order[0]).node->store();
      JobStore& other = cluster.at(order[1]).node->store();
      Require(holder.Create(record).status());
      other.Merge(std::vector{record});
      told.Watch(holder, uid);
      told.Watch(other, uid);
      std::jthread sender([&] { Require(cluster.SendResult(uid, "video").status()); });
      // Most cancellations come when the result is here and its copy is on the way.
      while (i % 4 != 0 && holder.FindResult(*base::Uid::Parse(uid)) == nullptr)
        std::this_thread::yield();
      for (int spin = 0; spin < i % 50; ++spin) (void)other.Get(uid);
      Require(other.Update(Cancellation(uid)).status());
    }
    for (const std::string& uid : uids) {
      const auto ended = [&] {
        return std::ranges::all_of(std::vector{"db-1", "db-2"}, [&](const char* id) {
          return job::IsTerminal(cluster.at(id).node->store().Get(uid)->job().state());
        });
      };
      QVERIFY(Eventually(ended));
      QVERIFY(Eventually([&] { return !told.Of(uid).empty(); }));
      QCOMPARE(told.Of(uid).size(), std::size_t{1});
      if (told.Of(uid).contains(Job::CANCELLED)) ++cancelled;
    }
    qInfo("%d of %zu were cancelled", cancelled, uids.size());
    QVERIFY(cancelled > 0 && cancelled < 200);
  }
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::EndsTest)
#include "ends_test.moc"
