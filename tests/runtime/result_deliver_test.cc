#include "stages/runtime/result_deliver.h"

#include <QtTest>
#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "tests/test_main.h"

namespace onepiece::runtime {
namespace {

constexpr auto kDeliverLimit = std::chrono::seconds(20);  // Only reached when a test fails.

FinishedWork To(const std::string& destination, int number = 0) {
  FinishedWork work;
  work.item.message.header.stage = destination;
  work.item.message.header.priority = number;
  return work;
}

/// Next hops that can be stuck: a delivery to one does not return until it is let go.
class Hops {
 public:
  std::optional<FinishedWork> Take(FinishedWork work) {
    base::MutexLock lock(mutex_);
    const std::string& name = work.item.message.header.stage;
    ++under_way_[name];
    most_ = std::max(most_, under_way_[name]);
    changed_.NotifyAll();
    changed_.WaitFor(lock, kDeliverLimit, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !stuck_.contains(name);
    });
    --under_way_[name];
    if (refuse_ > 0) {
      --refuse_;
      return work;
    }
    came_.push_back(name + std::to_string(work.item.message.header.priority));
    changed_.NotifyAll();
    return std::nullopt;
  }
  void Stick(const std::string& name) {
    const base::MutexLock lock(mutex_);
    stuck_.insert(name);
  }
  void LetGo() {
    const base::MutexLock lock(mutex_);
    stuck_.clear();
    changed_.NotifyAll();
  }
  void Refuse(int times) {
    const base::MutexLock lock(mutex_);
    refuse_ = times;
  }
  bool WaitUnderWay(const std::string& name) {
    base::MutexLock lock(mutex_);
    return changed_.WaitFor(lock, kDeliverLimit, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return under_way_[name] > 0;
    });
  }
  std::vector<std::string> WaitFor(std::size_t count) {
    base::MutexLock lock(mutex_);
    changed_.WaitFor(lock, kDeliverLimit,
                     [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return came_.size() >= count; });
    return came_;
  }
  int most() {
    const base::MutexLock lock(mutex_);
    return most_;
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  std::set<std::string> stuck_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> under_way_ ABSL_GUARDED_BY(mutex_);
  int most_ ABSL_GUARDED_BY(mutex_) = 0;
  int refuse_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> came_ ABSL_GUARDED_BY(mutex_);
};

struct DeliverFixture {
  explicit DeliverFixture(std::size_t max_queued = 2)
      : deliver(
            max_queued, [](const FinishedWork& work) { return work.item.message.header.stage; },
            [this](FinishedWork work) { return hops.Take(std::move(work)); }, base::SystemClock()) {
  }
  ~DeliverFixture() { hops.LetGo(); }

  Hops hops;
  ResultDeliver deliver;
};

}  // namespace

class ResultDeliverTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Deliver_AStuckDestinationHoldsUpNoOther() {
    DeliverFixture f;
    f.hops.Stick("stuck");
    for (int i = 0; i < 3; ++i) {
      f.deliver.Submit(To("stuck", i));
      QVERIFY(f.hops.WaitUnderWay("stuck"));
    }
    for (int i = 0; i < 5; ++i) f.deliver.Submit(To("good", i));
    const std::vector<std::string> good = {"good0", "good1", "good2", "good3", "good4"};
    QCOMPARE(f.hops.WaitFor(5), good);
    QTRY_COMPARE(f.deliver.held(), std::size_t{3});
    f.hops.LetGo();
    QCOMPARE(f.hops.WaitFor(8).size(), std::size_t{8});
  }

  void Deliver_OneDestinationHasOneThreadAndKeepsTheOrder() {
    DeliverFixture f(100);
    std::vector<std::string> wanted;
    for (int i = 0; i < 50; ++i) {
      f.deliver.Submit(To("a", i));
      wanted.push_back("a" + std::to_string(i));
    }
    QCOMPARE(f.hops.WaitFor(50), wanted);
    QCOMPARE(f.hops.most(), 1);
  }

  void Deliver_WhatIsRefusedGoesBehindTheOthers() {
    DeliverFixture f(3);
    f.hops.Stick("a");
    f.hops.Refuse(1);
    f.deliver.Submit(To("a", 0));
    QVERIFY(f.hops.WaitUnderWay("a"));
    f.deliver.Submit(To("a", 1));
    f.deliver.Submit(To("a", 2));
    f.hops.LetGo();
    QCOMPARE(f.hops.WaitFor(3), (std::vector<std::string>{"a1", "a2", "a0"}));
  }

  void Submit_WaitsForRoomAtItsDestination() {
    DeliverFixture f(1);
    f.hops.Stick("a");
    f.deliver.Submit(To("a", 0));
    QVERIFY(f.hops.WaitUnderWay("a"));
    f.deliver.Submit(To("a", 1));
    f.deliver.Add(To("a", 2));  // It does not wait.
    std::atomic<bool> submitted = false;
    std::jthread waiting([&] {
      f.deliver.Submit(To("a", 3));
      submitted = true;
    });
    QTRY_COMPARE(f.deliver.held(), std::size_t{4});
    f.deliver.Submit(To("b", 0));
    QCOMPARE(f.hops.WaitFor(1).size(), std::size_t{1});
    QVERIFY(!submitted);
    f.hops.LetGo();
    waiting.join();
    QCOMPARE(f.hops.WaitFor(5).size(), std::size_t{5});
  }

  void Close_DeliversWhatIsQueued() {
    DeliverFixture f(100);
    for (int i = 0; i < 20; ++i) f.deliver.Submit(To("d" + std::to_string(i % 12), i));
    f.hops.Refuse(3);
    f.deliver.Close();
    QCOMPARE(f.hops.WaitFor(20).size(), std::size_t{20});
    QCOMPARE(f.deliver.held(), std::size_t{0});
  }
};

}  // namespace onepiece::runtime

ONEPIECE_TEST(onepiece::runtime::ResultDeliverTest)
#include "result_deliver_test.moc"
