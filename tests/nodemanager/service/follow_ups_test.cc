#include "nodemanager/service/follow_ups.h"

#include <QtTest>
#include <future>
#include <vector>

#include "tests/test_main.h"

namespace onepiece::nodemanager {

class FollowUpsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  // Those that come while it is done for the first are served together.
  void FollowUp_IsDoneOnceForAll() {
    std::vector<bool> followed;
    std::promise<void> begun, release;
    FollowUps follow_ups([&](bool changed) {
      followed.push_back(changed);
      if (followed.size() > 1) return;
      begun.set_value();
      release.get_future().wait();
    });
    std::vector<int> answered;
    follow_ups.Add(false, [&] { answered.push_back(0); });
    begun.get_future().wait();
    for (int i = 1; i <= 3; ++i) follow_ups.Add(i == 2, [&answered, i] { answered.push_back(i); });
    QVERIFY(answered.empty());
    release.set_value();
    follow_ups.Stop();
    QCOMPARE(answered, (std::vector<int>{0, 1, 2, 3}));
    QCOMPARE(followed, (std::vector<bool>{false, true}));
    follow_ups.Add(true, [&] { answered.push_back(4); });
    QCOMPARE(answered.size(), std::size_t{5});
    QCOMPARE(followed.size(), std::size_t{2});
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::FollowUpsTest)
#include "follow_ups_test.moc"
