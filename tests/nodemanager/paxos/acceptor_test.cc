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
    QVERIFY(acceptor.MayPromise(At(0), kMiddle, Slot{0}, {}));
    acceptor.Promise(kMiddle, out_);
    QVERIFY(out_.writes.promise && out_.writes.promised == kMiddle && out_.writes.urgent());
    QVERIFY(!acceptor.MayPromise(At(0), kMiddle, Slot{0}, {}));
    QVERIFY(!acceptor.MayPromise(At(0), kLow, Slot{0}, {}));
    QVERIFY(acceptor.MayPromise(At(0), kHigh, Slot{0}, {}));
  }

  void Promise_NotToACandidateThatKnowsLess() {
    Acceptor acceptor(Empty(), 400ms, At(0));
    Take(acceptor, kLow, Slot{1}, 3, "a");
    acceptor.Learn(Slot{2}, out_);
    QVERIFY(!acceptor.MayPromise(At(0), kHigh, Slot{1}, {}));
    QVERIFY(acceptor.MayPromise(At(0), kHigh, Slot{2}, {}));
  }

  void Promise_NotWhileAnothersLeaseBinds() {
    Acceptor acceptor(Empty(), 400ms, At(0));
    QVERIFY(acceptor.TakeBallot(kLow, out_));
    acceptor.Bind(At(1000), kLow);
    QVERIFY(!acceptor.MayPromise(At(1399), kMiddle, Slot{0}, {}));
    QVERIFY(acceptor.MayPromise(At(1400), kMiddle, Slot{0}, {}));
    QVERIFY(acceptor.MayPromise(At(1001), kHigh, Slot{0}, {}));  // kLow's replica proposes it too.
    QVERIFY(
        acceptor.MayPromise(At(1001), kMiddle, Slot{0}, kLow));  // kLow's leader ended its lease.
    QVERIFY(!acceptor.MayPromise(At(1001), kMiddle, Slot{0}, kMiddle));
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
    Take(acceptor, kLow, Slot{1}, 2, "a");
    Take(acceptor, kLow, Slot{4}, 2, "b");
    QCOMPARE(acceptor.match(), Slot{2});
    QCOMPARE(acceptor.log().last(), Slot{2});
    Take(acceptor, kLow, Slot{2}, 3, "a");  // It overlaps what the acceptor has.
    QCOMPARE(acceptor.match(), Slot{4});
    QCOMPARE(*acceptor.log().At(Slot{2}).entry.payload, std::string("a1"));
  }

  void NewBallot_MatchBeginsAtChosen() {
    Acceptor acceptor(Empty(), 400ms, At(0));
    Take(acceptor, kLow, Slot{1}, 5, "a");
    acceptor.Learn(Slot{2}, out_);
    acceptor.Promise(kMiddle, out_);
    QCOMPARE(acceptor.match(), Slot{2});
    QCOMPARE(acceptor.log().last(), Slot{5});  // An acceptor keeps its votes.
    Take(acceptor, kMiddle, Slot{4}, 1,
         "b");  // A gap, although slot 3 was accepted at a lower ballot.
    QCOMPARE(acceptor.match(), Slot{2});
    acceptor.Learn(Slot{5}, out_);  // The acceptor holds less at this ballot, so it learns less.
    QCOMPARE(acceptor.chosen(), Slot{2});
    Take(acceptor, kMiddle, Slot{3}, 1, "b");
    QCOMPARE(acceptor.match(), Slot{3});
    QVERIFY(acceptor.log().At(Slot{3}).ballot == kMiddle &&
            acceptor.log().At(Slot{4}).ballot == kLow);
  }

  void Restart_BindsAndFindsItsMatch() {
    DurableState state = Empty();
    Acceptor before(state, 400ms, At(0));
    Take(before, kLow, Slot{1}, 2, "a");
    before.Learn(Slot{1}, out_);
    Take(before, kMiddle, Slot{2}, 2, "b");
    ApplyWrites(out_.writes, state);
    Acceptor after(state, 400ms, At(5000));
    QVERIFY(after.promised() == kMiddle);
    QCOMPARE(after.chosen(), Slot{1});
    QCOMPARE(after.match(), Slot{3});
    QVERIFY(!after.MayPromise(At(5399), kHigh, Slot{3}, {}));
    QVERIFY(after.MayPromise(At(5399), kHigh, Slot{3}, kMiddle));
    QVERIFY(after.MayPromise(At(5400), kHigh, Slot{3}, {}));
    Acceptor fresh(Empty(), 400ms, At(5000));
    QVERIFY(fresh.MayPromise(At(5000), kHigh, Slot{0}, {}));  // It never promised anything.
  }

  void Install_KeepsVotesAboveAndDropsWhatIsBelow() {
    DurableState state = Empty();
    Acceptor acceptor(state, 400ms, At(0));
    Take(acceptor, kLow, Slot{1}, 5, "stale");
    auto snapshot = std::make_shared<Snapshot>();
    snapshot->index = Slot{3};
    snapshot->members = {{{"n9", "h9", ReplicaId{9}}}};
    snapshot->state = Command("state");
    QVERIFY(acceptor.Install(snapshot, out_));
    QCOMPARE(acceptor.chosen(), Slot{3});
    QCOMPARE(acceptor.log().first(), Slot{4});
    QCOMPARE(acceptor.log().last(), Slot{5});
    QVERIFY(acceptor.members() == snapshot->members);
    QVERIFY(!acceptor.Install(snapshot, out_));
    ApplyWrites(out_.writes, state);
    QCOMPARE(state.log.size(), std::size_t{2});
    QCOMPARE(Acceptor(state, 400ms, At(0)).chosen(), Slot{3});
  }

  void TakeSnapshot_HasTheMembersOfItsSlot() {
    const Members two{{{"n1", "h1", kN1}, {"n2", "h2", kN2}}};
    Acceptor acceptor(Empty(), 400ms, At(0));
    Take(acceptor, kLow, Slot{1}, 4, "a");
    acceptor.Accept(kLow, Slot{5}, {Change(two)}, out_);
    acceptor.Accept(kLow, Slot{6}, Commands(4, "b"), out_);
    acceptor.Learn(Slot{9}, out_);
    QVERIFY(acceptor.members() == two);
    acceptor.TakeSnapshot(Slot{4}, Command("s"), 2, out_);
    QVERIFY(acceptor.snapshot()->members == kThree);
    QCOMPARE(acceptor.log().first(), Slot{3});  // Two slots stay behind the snapshot.
    acceptor.TakeSnapshot(Slot{9}, Command("s"), 2, out_);
    QVERIFY(acceptor.snapshot()->members == two);
    acceptor.TakeSnapshot(Slot{10}, Command("s"), 2, out_);  // Slot 10 is not chosen.
    acceptor.TakeSnapshot(Slot{8}, Command("s"), 2, out_);   // It is older than the present one.
    QCOMPARE(acceptor.snapshot()->index, Slot{9});
  }
};

}  // namespace onepiece::paxos

ONEPIECE_TEST(onepiece::paxos::AcceptorTest)
#include "acceptor_test.moc"
