#include "cluster/client/replicas.h"

#include <QtTest>

#include "tests/test_main.h"

namespace onepiece::client {
namespace {

using Replicas = std::vector<ReplicaAnswer>;

ReplicaAnswer Answer(int number, v1::ReplicaStatus::Role role) {
  v1::ReplicaStatus status;
  status.set_cluster_id("pirates");
  status.set_name("nodemanager-" + std::to_string(number));
  status.set_replica(static_cast<std::uint64_t>(100 + number));
  status.set_role(role);
  status.set_health(v1::ReplicaStatus::OK);
  status.set_round(4);
  status.set_applied(10);
  status.set_state_hash(0xabcd);
  for (int seat = 1; seat <= 3; ++seat) {
    auto& added = *status.mutable_members()->add_seats();
    added.set_name("nodemanager-" + std::to_string(seat));
    added.set_replica(static_cast<std::uint64_t>(100 + seat));
  }
  const std::string name = status.name();
  return {"10.0.0." + std::to_string(number) + ":7000", name, std::move(status)};
}

Replicas Healthy() {
  return {Answer(1, v1::ReplicaStatus::FOLLOWER), Answer(2, v1::ReplicaStatus::LEADER),
          Answer(3, v1::ReplicaStatus::FOLLOWER)};
}

/// Checks that there is one advice and that it contains `text`.
bool OnlyAdvice(const Replicas& replicas, const std::string& text) {
  const auto advice = AdviceFor(replicas);
  for (const auto& line : advice) qInfo("%s", line.c_str());
  return advice.size() == 1 && advice[0].find(text) != std::string::npos;
}

}  // namespace

class ReplicasTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Healthy_NeedsNoAdvice() {
    QVERIFY(AdviceFor(Healthy()).empty());
    QCOMPARE(FindLeader(Healthy())->name(), std::string("nodemanager-2"));
    QCOMPARE(ReplicaRoleName(*Healthy()[0].status), std::string("follower"));
  }

  void ReplicaDown_IsNamedWithTheWayToReplaceIt() {
    Replicas replicas = Healthy();
    replicas[2].status = absl::UnavailableError("refused");
    QVERIFY(OnlyAdvice(replicas, "onepiece cluster replace nodemanager-3"));
  }

  void MajorityDown_SaysHowManyAreMissing() {
    Replicas replicas = Healthy();
    replicas[1].status = replicas[2].status = absl::UnavailableError("refused");
    const auto advice = AdviceFor(replicas);
    QCOMPARE(advice.size(), std::size_t{3});
    QVERIFY(advice[0].find("1 of 3 answer, and 2 are needed") != std::string::npos);
    QVERIFY(FindLeader(replicas) == nullptr);
  }

  void NoGroup_SaysToBeginOne() {
    Replicas replicas = Healthy();
    for (auto& replica : replicas) {
      replica.status->set_role(v1::ReplicaStatus::FOLLOWER);
      replica.status->clear_members();
      replica.status->clear_cluster_id();
    }
    QVERIFY(OnlyAdvice(replicas, "start one replica with --bootstrap"));
  }

  void JoiningReplica_IsOfNoOtherCluster() {
    Replicas replicas = Healthy();
    replicas[0].status->clear_cluster_id();
    replicas[0].status->clear_members();
    replicas[0].status->set_role(v1::ReplicaStatus::LEARNER);
    replicas[0].status->set_applied(0);
    QVERIFY(OnlyAdvice(replicas, "nodemanager-1 has no vote yet"));
  }

  void Election_SaysToLookAgain() {
    Replicas replicas = Healthy();
    replicas[1].status->set_role(v1::ReplicaStatus::CANDIDATE);
    QVERIFY(OnlyAdvice(replicas, "look again"));
  }

  void TwoLeaders_TheHigherRoundCounts() {
    Replicas replicas = Healthy();
    replicas[0].status->set_role(v1::ReplicaStatus::LEADER);
    replicas[0].status->set_round(3);
    QCOMPARE(FindLeader(replicas)->name(), std::string("nodemanager-2"));
  }

  void Trouble_IsNamed_data() {
    QTest::addColumn<int>("trouble");
    QTest::addColumn<QString>("says");
    QTest::newRow("even") << 0 << "4 voters tolerate";
    QTest::newRow("drift") << 1 << "nodemanager-3: its clock";
    QTest::newRow("hashes") << 2 << "nodemanager-1 and nodemanager-2 differ at slot 10";
    QTest::newRow("other cluster") << 3 << "nodemanager-3 (10.0.0.3:7000) is of cluster 'navy'";
    QTest::newRow("copied folder") << 4 << "10.0.0.2:7000 and 10.0.0.3:7000 run on copies";
    QTest::newRow("disk") << 5 << "nodemanager-1: its disk refuses writes (full)";
    QTest::newRow("old program") << 6 << "nodemanager-1: its program is too old";
    QTest::newRow("learner") << 7 << "nodemanager-1 has no vote yet";
    QTest::newRow("no seat") << 8 << "onepiece cluster add nodemanager-1 --address 10.0.0.1:7000";
    QTest::newRow("corrupt") << 10 << "nodemanager-1 is corrupt and takes no part (after slot 64";
    QTest::newRow("behind") << 11 << "nodemanager-1 is catching up: 1000 slots";
    QTest::newRow("vacant") << 9 << "start a NodeManager of this name at 10.0.0.1:7000";
  }
  void Trouble_IsNamed() {
    QFETCH(int, trouble);
    QFETCH(QString, says);
    Replicas replicas = Healthy();
    v1::ReplicaStatus& first = *replicas[0].status;
    v1::ReplicaStatus& leader = *replicas[1].status;
    v1::ReplicaStatus& third = *replicas[2].status;
    switch (trouble) {
      case 0:
        leader.mutable_members()->add_warnings("4 voters tolerate no more failures than 3");
        break;
      case 1: {
        auto& peer = *leader.add_progress();
        peer.set_name("nodemanager-3");
        peer.set_drifts(true);
        break;
      }
      case 2:
        first.set_state_hash(1);
        third.set_applied(9);  // Hashes of different slots cannot be compared.
        third.set_state_hash(2);
        break;
      case 3:
        third.set_cluster_id("navy");
        third.set_state_hash(2);
        break;
      case 4:
        third.set_replica(leader.replica());
        break;
      case 5:
        first.set_health(v1::ReplicaStatus::DISK_FAILED);
        first.set_health_detail("full");
        break;
      case 6:
        first.set_health(v1::ReplicaStatus::NEWER_VERSION);
        break;
      case 7:
        first.set_role(v1::ReplicaStatus::LEARNER);
        break;
      case 8:
        first.set_role(v1::ReplicaStatus::LEARNER);
        leader.mutable_members()->mutable_seats(0)->set_name("nodemanager-4");
        break;
      case 10:
        first.set_health(v1::ReplicaStatus::CORRUPT);
        first.set_health_detail("after slot 64");
        break;
      case 11:
        first.set_health(v1::ReplicaStatus::CATCHING_UP);
        first.set_health_detail("1000 slots behind the leader");
        break;
      default:
        replicas[0].status = absl::UnavailableError("refused");
        leader.mutable_members()->mutable_seats(0)->set_replica(0);
        leader.mutable_members()->mutable_seats(0)->set_address("10.0.0.1:7000");
    }
    QVERIFY(OnlyAdvice(replicas, says.toStdString()));
  }
};

}  // namespace onepiece::client

ONEPIECE_TEST(onepiece::client::ReplicasTest)
#include "replicas_test.moc"
