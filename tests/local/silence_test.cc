#include "cluster/local/silence.h"

#include <QtTest>
#include <chrono>

#include "tests/test_main.h"

namespace onepiece::local {

class SilenceTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    judge_ = std::make_unique<SilenceJudge>(
        SilenceLimits{.first = std::chrono::seconds(30), .longest = std::chrono::seconds(100)}, 5);
    clock_ = std::make_unique<base::ManualClock>();
  }

  void Silence_BelowTheLimit_IsNoReason() {
    for (int s = 0; s < 30; s += 3) QVERIFY(!Hear({{"a", 1}}, 3));
    QCOMPARE(Hear({{"a", 1}}, 3), std::optional<std::string>("a"));
  }

  void Silence_ThatPauses_CountsAnew() {
    for (int s = 0; s < 27; s += 3) QVERIFY(!Hear({{"a", 1}}, 3));
    QVERIFY(!Hear({}, 3));
    for (int s = 0; s < 30; s += 3) QVERIFY(!Hear({{"a", 1}}, 3));
    QVERIFY(Hear({{"a", 1}}, 3));
  }

  void Silence_OfAnotherProcess_CountsAnew() {
    for (int s = 0; s < 27; s += 3) QVERIFY(!Hear({{"a", 1}}, 3));
    for (int s = 0; s < 30; s += 3) QVERIFY(!Hear({{"a", 2}}, 3));
    QVERIFY(Hear({{"a", 2}}, 3));
  }

  // A new leader may count nodes as dead that have not found it yet.
  void NoAnswer_SaysNothingAboutAnybody() {
    for (int s = 0; s < 27; s += 3) QVERIFY(!Hear({{"a", 1}}, 3));
    judge_->HearNothing();
    for (int s = 0; s < 30; s += 3) QVERIFY(!Hear({{"a", 1}}, 3));
    QVERIFY(Hear({{"a", 1}}, 3));
  }

  void Everybody_Silent_IsTheNodeManagersFault() {
    const SilentNodes all = {{"a", 1}, {"b", 2}, {"c", 3}, {"d", 4}, {"e", 5}};
    for (int s = 0; s < 300; s += 3) QVERIFY(!Hear(all, 3));
    SilentNodes most = all;
    most.erase("c");
    // One goes for each answer.
    QCOMPARE(Hear(most, 3), std::optional<std::string>("a"));
    QCOMPARE(Hear({{"b", 2}, {"d", 4}, {"e", 5}}, 3), std::optional<std::string>("b"));
  }

  // A node that is silent again and again is killed less and less often.
  void Limit_DoublesUntilTheNodeIsWell() {
    int pid = 0;
    for (const int limit : {30, 60, 100, 100}) QCOMPARE(SecondsUntilGivenUp(++pid), limit);
    for (int s = 0; s < 100; s += 5) QVERIFY(!Hear({}, 5));
    QVERIFY(!Hear({}, 5));
    QCOMPARE(SecondsUntilGivenUp(++pid), 30);
  }

 private:
  std::optional<std::string> Hear(const SilentNodes& silent, int then_seconds) {
    const auto given_up = judge_->Hear(silent, clock_->Now());
    clock_->Advance(std::chrono::seconds(then_seconds));
    return given_up;
  }
  int SecondsUntilGivenUp(int pid) {
    int past = 0;
    while (past < 1000 && !Hear({{"a", pid}}, 5)) past += 5;
    return past;
  }

  std::unique_ptr<SilenceJudge> judge_;
  std::unique_ptr<base::ManualClock> clock_;
};

}  // namespace onepiece::local

ONEPIECE_TEST(onepiece::local::SilenceTest)
#include "silence_test.moc"
