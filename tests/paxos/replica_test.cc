// A group of replicas agrees: elections, the log, windows, snapshots.
#include <QtTest>

#include "cluster/base/status.h"
#include "tests/paxos/group.h"

namespace onepiece::paxos {
using namespace std::chrono_literals;

class ReplicaTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Alone_LeadsAtOnceAndCommits() {
    Group group(1);
    QCOMPARE(group.AwaitLeader(100ms), 1u);
    QVERIFY(group.Commit("a") != 0);
    QVERIFY(group.replica(1).LeaseCovers(group.LocalTime(1)));
  }

  void Three_ElectOneAndCommitEverywhere() {
    Group group(3);
    const ReplicaId leader = group.AwaitLeader(2s);
    QVERIFY(leader != 0);
    for (int i = 0; i < 100; ++i) QVERIFY(group.Commit("c" + std::to_string(i)) != 0);
    group.Run(200ms);
    QCOMPARE(group.Leader(), leader);
    for (auto& [id, node] : group.nodes()) {
      QCOMPARE(node.applied, group.replica(leader).chosen());
      QCOMPARE(node.replica->leader(), leader);
      QCOMPARE(node.replica->LeaseCovers(group.LocalTime(id)), id == leader);
    }
  }
};

}  // namespace onepiece::paxos

QTEST_APPLESS_MAIN(onepiece::paxos::ReplicaTest)
#include "replica_test.moc"
