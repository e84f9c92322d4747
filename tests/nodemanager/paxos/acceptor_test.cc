// Tests the rules of one acceptor: phase 1, phase 2, leases and snapshots.
#include "nodemanager/paxos/acceptor.h"

#include <QtTest>

#include "tests/nodemanager/paxos/group.h"
#include "tests/test_main.h"

namespace onepiece::paxos {
namespace {

using namespace std::chrono_literals;

const Members kThree{{{"n1", "h1", kN1}, {"n2", "h2", kN2}, {"n3", "h3", kN3}}};
constexpr Ballot kLow{1, kN2}, kMiddle{2, kN3}, kHigh{3, kN2};

std::vector<LogEntry> Commands(int count, const std::string& text) {
  std::vector<LogEntry> entries;
  for (int i = 0; i < count; ++i) {
    LogEntry entry;
    entry.kind = LogEntry::Kind::kCommand;
    entry.payload = Command(text + std::to_string(i));
    entries.push_back(entry);
  }
  return entries;
}

LogEntry Change(const Members& members) {
  LogEntry entry;
  entry.kind = LogEntry::Kind::kMembers;
  entry.members = members;
  return entry;
}

DurableState Empty() {
  DurableState state;
  state.replica = kN1;
  state.snapshot.members = kThree;
  return state;
}

}  // namespace

class AcceptorTest : public QObject {
  Q_OBJECT
 private:
  Outputs out_;
  void Take(Acceptor& acceptor, Ballot ballot, Slot first, int count, const std::string& text) {
    QVERIFY(acceptor.TakeBallot(ballot, out_));
    acceptor.Accept(ballot, first, Commands(count, text), out_);
  }

 private Q_SLOTS:
  void init() { out_ = {}; }

  void Promise_OnlyAboveThePromise() {
    Acceptor acceptor(Empty(), 400ms, At(0));
    QVERIFY(acceptor.MayPromise(At(0), kMiddle, 0, {}));
    acceptor.Promise(kMiddle, out_);
    QVERIFY(out_.writes.promise && out_.writes.promised == kMiddle && out_.writes.urgent());
    QVERIFY(!acceptor.MayPromise(At(0), kMiddle, 0, {}));
    QVERIFY(!acceptor.MayPromise(At(0), kLow, 0, {}));
    QVERIFY(acceptor.MayPromise(At(0), kHigh, 0, {}));
  }

  void Promise_NotToACandidateThatKnowsLess() {
    Acceptor acceptor(Empty(), 400ms, At(0));
    Take(acceptor, kLow, 1, 3, "a");
    acceptor.Learn(2, out_);
    QVERIFY(!acceptor.MayPromise(At(0), kHigh, 1, {}));
    QVERIFY(acceptor.MayPromise(At(0), kHigh, 2, {}));
  }

  void Promise_NotWhileAnothersLeaseBinds() {
    Acceptor acceptor(Empty(), 400ms, At(0));
    QVERIFY(acceptor.TakeBallot(kLow, out_));
    acceptor.Bind(At(1000), kLow);
    QVERIFY(!acceptor.MayPromise(At(1399), kMiddle, 0, {}));
    QVERIFY(acceptor.MayPromise(At(1400), kMiddle, 0, {}));
    QVERIFY(acceptor.MayPromise(At(1001), kHigh, 0, {}));      // kLow's replica proposes it too.
    QVERIFY(acceptor.MayPromise(At(1001), kMiddle, 0, kLow));  // kLow's leader ended its lease.
    QVERIFY(!acceptor.MayPromise(At(1001), kMiddle, 0, kMiddle));
  }

  void Accept_BelowThePromiseIsRefused() {
    Acceptor acceptor(Empty(), 400ms, At(0));
    acceptor.Promise(kMiddle, out_);
    QVERIFY(!acceptor.TakeBallot(kLow, out_));
    QVERIFY(acceptor.TakeBallot(kHigh, out_));
    QVERIFY(acceptor.promised() == kHigh);  // Accepting is a promise too.
  }

  void Accept_BeyondAGapIsNotStored() {
    Acceptor acceptor(Empty(), 400ms, At(0));
    Take(acceptor, kLow, 1, 2, "a");
    Take(acceptor, kLow, 4, 2, "b");
    QCOMPARE(acceptor.match(), 2u);
    QCOMPARE(acceptor.log().last(), 2u);
    Take(acceptor, kLow, 2, 3, "a");  // It overlaps what the acceptor has.
    QCOMPARE(acceptor.match(), 4u);
    QCOMPARE(*acceptor.log().At(2).entry.payload, std::string("a1"));
  }

  void NewBallot_MatchBeginsAtChosen() {
    Acceptor acceptor(Empty(), 400ms, At(0));
    Take(acceptor, kLow, 1, 5, "a");
    acceptor.Learn(2, out_);
    acceptor.Promise(kMiddle, out_);
    QCOMPARE(acceptor.match(), 2u);
    QCOMPARE(acceptor.log().last(), 5u);  // An acceptor keeps its votes.
    Take(acceptor, kMiddle, 4, 1, "b");   // A gap, although slot 3 was accepted at a lower ballot.
    QCOMPARE(acceptor.match(), 2u);
    acceptor.Learn(5, out_);  // The acceptor holds less at this ballot, so it learns less.
    QCOMPARE(acceptor.chosen(), 2u);
    Take(acceptor, kMiddle, 3, 1, "b");
    QCOMPARE(acceptor.match(), 3u);
    QVERIFY(acceptor.log().At(3).ballot == kMiddle && acceptor.log().At(4).ballot == kLow);
  }

  void Restart_BindsAndFindsItsMatch() {
    DurableState state = Empty();
    Acceptor before(state, 400ms, At(0));
    Take(before, kLow, 1, 2, "a");
    before.Learn(1, out_);
    Take(before, kMiddle, 2, 2, "b");
    ApplyWrites(out_.writes, state);
    Acceptor after(state, 400ms, At(5000));
    QVERIFY(after.promised() == kMiddle);
    QCOMPARE(after.chosen(), 1u);
    QCOMPARE(after.match(), 3u);
    QVERIFY(!after.MayPromise(At(5399), kHigh, 3, {}));
    QVERIFY(after.MayPromise(At(5399), kHigh, 3, kMiddle));
    QVERIFY(after.MayPromise(At(5400), kHigh, 3, {}));
    Acceptor fresh(Empty(), 400ms, At(5000));
    QVERIFY(fresh.MayPromise(At(5000), kHigh, 0, {}));  // It never promised anything.
  }

  void Install_KeepsVotesAboveAndDropsWhatIsBelow() {
    DurableState state = Empty();
    Acceptor acceptor(state, 400ms, At(0));
    Take(acceptor, kLow, 1, 5, "stale");
    auto snapshot = std::make_shared<Snapshot>();
    snapshot->index = 3;
    snapshot->members = {{{"n9", "h9", ReplicaId{9}}}};
    snapshot->state = Command("state");
    QVERIFY(acceptor.Install(snapshot, out_));
    QCOMPARE(acceptor.chosen(), 3u);
    QCOMPARE(acceptor.log().first(), 4u);
    QCOMPARE(acceptor.log().last(), 5u);
    QVERIFY(acceptor.members() == snapshot->members);
    QVERIFY(!acceptor.Install(snapshot, out_));
    ApplyWrites(out_.writes, state);
    QCOMPARE(state.log.size(), std::size_t{2});
    QCOMPARE(Acceptor(state, 400ms, At(0)).chosen(), 3u);
  }

  void TakeSnapshot_HasTheMembersOfItsSlot() {
    const Members two{{{"n1", "h1", kN1}, {"n2", "h2", kN2}}};
    Acceptor acceptor(Empty(), 400ms, At(0));
    Take(acceptor, kLow, 1, 4, "a");
    acceptor.Accept(kLow, 5, {Change(two)}, out_);
    acceptor.Accept(kLow, 6, Commands(4, "b"), out_);
    acceptor.Learn(9, out_);
    QVERIFY(acceptor.members() == two);
    acceptor.TakeSnapshot(4, Command("s"), 2, out_);
    QVERIFY(acceptor.snapshot()->members == kThree);
    QCOMPARE(acceptor.log().first(), 3u);  // Two slots stay behind the snapshot.
    acceptor.TakeSnapshot(9, Command("s"), 2, out_);
    QVERIFY(acceptor.snapshot()->members == two);
    acceptor.TakeSnapshot(10, Command("s"), 2, out_);  // Slot 10 is not chosen.
    acceptor.TakeSnapshot(8, Command("s"), 2, out_);   // It is older than the present one.
    QCOMPARE(acceptor.snapshot()->index, 9u);
  }
};

}  // namespace onepiece::paxos

ONEPIECE_TEST(onepiece::paxos::AcceptorTest)
#include "acceptor_test.moc"
