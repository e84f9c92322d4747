#include "cluster/proxy/read_threads.h"

#include <QtTest>
#include <atomic>
#include <future>

#include "tests/eventually.h"
#include "tests/test_main.h"

namespace onepiece::proxy {

class ReadThreadsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Run_WhileAllAreBusy_IsRefused() {
    std::promise<void> go_on;
    const std::shared_future<void> released = go_on.get_future().share();
    std::atomic<int> begun = 0, done = 0;
    ReadThreads threads(2);
    const auto work = [&] {
      ++begun;
      released.wait_for(std::chrono::seconds(20));  // Not for ever, when the test fails.
      ++done;
    };
    QVERIFY(threads.Run(work) && threads.Run(work));
    // Neither waits for the other.
    QVERIFY(testing::Eventually([&] { return begun == 2; }));
    QVERIFY(!threads.Run(work));
    go_on.set_value();
    QVERIFY(testing::Eventually([&] { return threads.Run(work); }));
    QVERIFY(testing::Eventually([&] { return done == 3; }));
  }

  void Destructor_WaitsForWorkThatHasBegun() {
    std::promise<void> begun;
    std::atomic<bool> destroying = false, done = false;
    {
      ReadThreads threads(1);
      QVERIFY(threads.Run([&] {
        begun.set_value();
        (void)testing::Eventually([&] { return destroying.load(); });
        done = true;
      }));
      begun.get_future().wait();
      destroying = true;
    }
    QVERIFY(done);
  }
};

}  // namespace onepiece::proxy

ONEPIECE_TEST(onepiece::proxy::ReadThreadsTest)
#include "read_threads_test.moc"
