#include "cluster/proxy/helpers.h"

#include <QtTest>
#include <atomic>
#include <future>

#include "tests/eventually.h"
#include "tests/test_main.h"

namespace onepiece::proxy {

class HelpersTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Run_WhileAllAreBusy_IsRefused() {
    std::promise<void> go_on;
    const std::shared_future<void> released = go_on.get_future().share();
    std::atomic<int> begun = 0, done = 0;
    Helpers helpers(2);
    const auto work = [&] {
      ++begun;
      released.wait_for(std::chrono::seconds(20));  // Not for ever, when the test fails.
      ++done;
    };
    QVERIFY(helpers.Run(work) && helpers.Run(work));
    // Neither waits for the other.
    QVERIFY(testing::Eventually([&] { return begun == 2; }));
    QVERIFY(!helpers.Run(work));
    go_on.set_value();
    QVERIFY(testing::Eventually([&] { return helpers.Run(work); }));
    QVERIFY(testing::Eventually([&] { return done == 3; }));
  }

  void Destructor_WaitsForWorkThatHasBegun() {
    std::promise<void> begun;
    std::atomic<bool> destroying = false, done = false;
    {
      Helpers helpers(1);
      QVERIFY(helpers.Run([&] {
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

ONEPIECE_TEST(onepiece::proxy::HelpersTest)
#include "helpers_test.moc"
