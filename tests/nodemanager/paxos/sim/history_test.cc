// Tests the judge of histories: with histories by hand, possible and impossible ones, and against a
// search of every order of small random histories.
#include "tests/nodemanager/paxos/sim/history.h"

#include <QtTest>
#include <algorithm>
#include <numeric>

#include "tests/test_main.h"

Q_DECLARE_METATYPE(std::vector<onepiece::paxos::sim::Operation>)

namespace onepiece::paxos::sim {
namespace {

using History = std::vector<Operation>;

Operation Read(Nanos called, Nanos returned, std::uint64_t met) {
  return {.kind = Operation::Kind::kRead, .before = met, .called = called, .returned = returned};
}
Operation Write(Nanos called, Nanos returned, std::uint64_t value) {
  return {
      .kind = Operation::Kind::kWrite, .written = value, .called = called, .returned = returned};
}
Operation Set(Nanos called, Nanos returned, std::uint64_t expected, std::uint64_t value,
              std::uint64_t met) {
  return {.kind = Operation::Kind::kCompareAndSet,
          .expected = expected,
          .written = value,
          .before = met,
          .called = called,
          .returned = returned};
}
constexpr Nanos kNever = Operation::kNever;

/// True when a register can do the operations of `order`, which holds their indices, one after the
/// other.
bool Explains(const History& history, const std::vector<std::size_t>& order) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Operation& operation = history[order[i]];
    for (std::size_t j = i + 1; j < order.size(); ++j) {
      if (history[order[j]].returned < operation.called) return false;
    }
    const bool answered = operation.returned != kNever;
    if (operation.kind != Operation::Kind::kWrite && answered && operation.before != value) {
      return false;
    }
    if (operation.kind == Operation::Kind::kWrite ||
        (operation.kind == Operation::Kind::kCompareAndSet && value == operation.expected)) {
      value = operation.written;
    }
  }
  return true;
}

/// Tries out the definition: every order, and every choice among the operations without answer.
bool BruteForce(const History& history) {
  std::vector<std::size_t> open;
  std::vector<std::size_t> answered;
  for (std::size_t i = 0; i < history.size(); ++i) {
    (history[i].returned == kNever ? open : answered).push_back(i);
  }
  for (std::size_t choice = 0; choice < std::size_t{1} << open.size(); ++choice) {
    std::vector<std::size_t> order = answered;
    for (std::size_t i = 0; i < open.size(); ++i) {
      if ((choice >> i & 1) != 0) order.push_back(open[i]);
    }
    std::sort(order.begin(), order.end());
    do {
      if (Explains(history, order)) return true;
    } while (std::next_permutation(order.begin(), order.end()));
  }
  return false;
}

History RandomHistory(Random& random) {
  History history;
  const auto count = 2 + random.Below(4);
  for (std::uint64_t i = 0; i < count; ++i) {
    const Nanos called = random.Between(0, 12);
    const Nanos returned = random.Chance(0.2) ? kNever : called + random.Between(0, 8);
    const std::uint64_t met = random.Below(count + 1);
    switch (random.Below(3)) {
      case 0:
        history.push_back(Read(called, returned, met));
        break;
      case 1:
        history.push_back(Write(called, returned, i + 1));
        break;
      default:
        history.push_back(Set(called, returned, random.Below(count + 1), i + 1, met));
    }
  }
  return history;
}

}  // namespace

class HistoryTest : public QObject {
  Q_OBJECT

 private Q_SLOTS:
  void ByHand_data() {
    QTest::addColumn<History>("history");
    QTest::addColumn<bool>("possible");
    const auto row = [](const char* name, History history, bool possible) {
      QTest::newRow(name) << std::move(history) << possible;
    };
    row("nothing", {}, true);
    row("a register begins as 0", {Read(0, 1, 0)}, true);
    row("a value out of the air", {Read(0, 1, 7)}, false);
    row("one after the other", {Write(0, 1, 5), Read(2, 3, 5)}, true);
    row("a stale read", {Write(0, 1, 5), Read(2, 3, 0)}, false);
    row("a read beside the write sees either", {Write(0, 9, 5), Read(1, 2, 0), Read(3, 4, 5)},
        true);
    row("but not the new and then the old", {Write(0, 9, 5), Read(1, 2, 5), Read(3, 4, 0)}, false);
    row("two writes at once, in any order", {Write(0, 9, 5), Write(0, 9, 6), Read(10, 11, 5)},
        true);
    row("but in one order for all",
        {Write(0, 9, 5), Write(0, 9, 6), Read(10, 11, 5), Read(12, 13, 6)}, false);
    row("an acknowledged write that is lost", {Write(0, 1, 5), Write(2, 3, 6), Read(4, 5, 5)},
        false);
    row("unknown, and it happened", {Write(0, kNever, 5), Read(20, 21, 5)}, true);
    row("unknown, and it did not happen", {Write(0, kNever, 5), Read(20, 21, 0)}, true);
    row("unknown, and it happened late", {Write(0, kNever, 5), Read(2, 3, 0), Read(4, 5, 5)}, true);
    row("unknown, seen and then gone", {Write(0, kNever, 5), Read(2, 3, 5), Read(4, 5, 0)}, false);
    row("unknown, seen before it was sent", {Read(0, 1, 5), Write(2, kNever, 5)}, false);
    row("it cannot happen twice",
        {Write(0, kNever, 5), Read(1, 2, 5), Write(3, 4, 6), Read(5, 6, 6), Read(7, 8, 5)}, false);
    row("set if equal", {Set(0, 1, 0, 5, 0), Set(2, 3, 5, 6, 5), Read(4, 5, 6)}, true);
    row("set if not equal changes nothing", {Set(0, 1, 3, 5, 0), Read(2, 3, 0)}, true);
    row("set if not equal, and yet changed", {Set(0, 1, 3, 5, 0), Read(2, 3, 5)}, false);
    row("both cannot win", {Set(0, 9, 0, 5, 0), Set(0, 9, 0, 6, 0)}, false);
    row("one wins", {Set(0, 9, 0, 5, 0), Set(0, 9, 0, 6, 5)}, true);
    row("an unknown set is what won",
        {Set(0, kNever, 0, 5, 0), Set(1, 9, 0, 6, 5), Read(10, 11, 5)}, true);
    row("an unknown read says nothing", {Write(0, 1, 5), Read(2, kNever, 0), Read(3, 4, 5)}, true);
  }

  void ByHand() {
    QFETCH(History, history);
    QFETCH(bool, possible);
    const auto found = FindNonLinearisable(history);
    QCOMPARE(!found.has_value(), possible);
    QCOMPARE(BruteForce(history), possible);
    if (found) QVERIFY(found->find("no order explains") == 0);
  }

  void Registers_AreJudgedOneByOne() {
    History history = {Write(0, 1, 5), Read(2, 3, 0)};
    history[1].key = 1;
    QVERIFY(!FindNonLinearisable(history));
    history[1].key = 0;
    QVERIFY(FindNonLinearisable(history).has_value());
  }

  void SmallHistories_AreJudgedAsByEveryOrder() {
    Random random(1);
    int possible = 0;
    constexpr int kHistories = 20'000;
    for (int i = 0; i < kHistories; ++i) {
      const History history = RandomHistory(random);
      const bool expected = BruteForce(history);
      possible += expected ? 1 : 0;
      if (FindNonLinearisable(history).has_value() == !expected) continue;
      std::string text;
      for (const Operation& operation : history) text += "\n" + Describe(operation);
      QFAIL(text.c_str());
    }
    QVERIFY(possible > kHistories / 20);
    QVERIFY(possible < kHistories * 19 / 20);
  }

  void LongHistories_DoNotExplode() {
    // Five clients write blindly at the same time, with and without answers, and one client reads.
    Random random(2);
    History history;
    std::uint64_t value = 0;
    for (Nanos round = 0; round < 40; ++round) {
      for (int client = 0; client < 5; ++client) {
        const Nanos called = round * 100 + random.Between(0, 9);
        const bool answered = random.Chance(0.7);
        history.push_back(Write(called, answered ? called + 50 : kNever, ++value));
      }
      history.push_back(Read(round * 100 + 80, round * 100 + 90, value));
    }
    QVERIFY(!FindNonLinearisable(history));
  }
};

}  // namespace onepiece::paxos::sim

ONEPIECE_TEST(onepiece::paxos::sim::HistoryTest)
#include "history_test.moc"
