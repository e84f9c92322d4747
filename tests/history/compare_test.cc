// Tests the differences that are found between two snapshots.
#include "cluster/history/compare.h"

#include <QtTest>

#include "tests/history/snapshots.h"
#include "tests/test_main.h"

namespace onepiece::history {
namespace {

QStringList Rows(const session::Snapshot& a, const session::Snapshot& b) {
  QStringList rows;
  for (const Difference& row : Compare(a, b)) {
    rows << QString::fromStdString(row.entity + ", " + row.what + ": " + row.before + " -> " +
                                   row.after) +
                (row.change ? QString(" (%1)").arg(*row.change) : QString());
  }
  return rows;
}

}  // namespace

class CompareTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void TheSame_HasNoRows() {
    const session::Snapshot one = SnapshotAt(3);
    QCOMPARE(Rows(one, one), QStringList());
    QCOMPARE(Rows(one, SnapshotAt(3)), QStringList());  // Equal values behind other pointers.
    QCOMPARE(Rows(session::Snapshot(), session::Snapshot()), QStringList());
  }

  void EveryPart_HasItsRows() {
    session::Snapshot a = SnapshotAt(0), b = SnapshotAt(0);
    v1::Cluster cluster = *a.cluster.value;
    cluster.mutable_nodes(0)->set_state(v1::Node::DEAD);
    cluster.mutable_nodes(0)->set_incarnation(5);
    cluster.mutable_nodes(0)->mutable_load()->set_utilization(0.254);
    cluster.mutable_nodes(1)->mutable_placement()->set_pool("vae/wan/tiny");
    cluster.mutable_nodes(1)->mutable_assignment()->mutable_stage()->set_stage("vae_decode");
    cluster.mutable_nodes(1)->mutable_assignment()->add_app_ids("wan");
    cluster.mutable_nodes(1)->set_activity(v1::DRAINING);
    cluster.mutable_nodes()->DeleteSubrange(2, 1);
    *cluster.add_nodes() = InstanceAt(7, 0);
    v1::Workflow& workflow = *cluster.add_workflows();
    workflow.set_app_id("zoro");
    workflow.add_stages()->set_stage("cut");
    b.cluster = PartOf(cluster, 1);
    v1::Elasticity elasticity = *a.elasticity.value;
    elasticity.mutable_pools(0)->set_instances(5);
    elasticity.mutable_pools(1)->set_utilization(0.5);
    b.elasticity = PartOf(elasticity, 1);
    session::Rings rings = *a.rings.value;
    rings[0].health.set_used_slots(rings[0].health.used_slots() + 4);
    rings[1].error = "did not answer";
    b.rings = PartOf(rings, 1);
    session::JobList jobs = *a.jobs.value;
    jobs.jobs[1].job = JobAt(1, v1::Job::FAILED);
    b.jobs = PartOf(jobs, 1);
    v1::ListPlansResponse plans = *a.plans.value;
    plans.mutable_plans(0)->set_state(v1::Plan::DONE);
    b.plans = PartOf(plans, 1);
    session::Alerts alerts = *a.alerts.value;
    alerts[0].state = session::Alert::State::kResolved;
    b.alerts = PartOf(alerts, 1);
    const QStringList rows = Rows(a, b);
    const QString incarnation = QString::number(0x9000'0000'0000'0001);
    QCOMPARE(rows.mid(0, 8),
             (QStringList{"node/instance-0, state: READY -> DEAD",
                          "node/instance-0, incarnation: " + incarnation + " -> 5",
                          "node/instance-0, utilization: 50 % -> 25 % (-25)",
                          "node/instance-1, activity: SERVING -> DRAINING",
                          "node/instance-1, stage: none -> vae_decode",
                          "node/instance-1, applications: none -> wan",
                          "node/instance-1, pool: diffusion/wan/tiny -> vae/wan/tiny",
                          "node/instance-2, state: READY -> "}));
    const QString before = QString::number(a.rings.value->at(0).health.used_slots());
    const QString after = QString::number(a.rings.value->at(0).health.used_slots() + 4);
    QCOMPARE(rows.mid(8),
             (QStringList{"node/instance-7, state:  -> READY", "app/zoro, stages:  -> cut",
                          "pool//encode/wan/tiny, utilization: unknown -> 50 %",
                          "pool/default/diffusion/wan/tiny, instances: 3 -> 5 (2)",

                          "ring/instance-0, used slots: " + before + " -> " + after + " (4)",
                          "ring/instance-1, answer: answers -> did not answer",
                          "jobs, running: 1 -> 0 (-1)", "jobs, failed: 0 -> 1 (1)",
                          "plan/7f01, state: RUNNING -> DONE",
                          "alert/ring-stuck/ring/instance-1, state: firing -> resolved"}));
    // In the other direction, everything that came goes.
    QVERIFY(Rows(b, a).contains("node/instance-7, state: READY -> "));
    QVERIFY(Rows(b, a).contains("jobs, running: 0 -> 1 (1)"));
  }

  // An unknown value is neither gone nor 0.
  void WhatIsNotKnown_IsNotGone() {
    session::Snapshot a = SnapshotAt(0), b = SnapshotAt(0);
    b.cluster = {};
    b.rings.value = nullptr;
    QCOMPARE(Rows(a, b),
             (QStringList{"cluster, nodes: known -> unknown", "cluster, rings: known -> unknown"}));
    QCOMPARE(Rows(b, a),
             (QStringList{"cluster, nodes: unknown -> known", "cluster, rings: unknown -> known"}));
  }

  void CountsOfPartialLists_AreBounds() {
    session::Snapshot a = SnapshotAt(0), b = SnapshotAt(0);
    session::JobList jobs = *a.jobs.value;
    jobs.truncated = true;
    jobs.jobs.push_back({JobAt(-1, v1::Job::SUCCEEDED), session::Certainty::kKnown});
    jobs.jobs[1].certainty = session::Certainty::kUnknownAtEnd;
    b.jobs = PartOf(jobs, 1);
    QCOMPARE(Rows(a, b),
             (QStringList{"jobs, running: 1 -> 0 (-1)", "jobs, succeeded: 1 -> at least 2",
                          "jobs, failed: 0 -> at least 0", "jobs, cancelled: 0 -> at least 0",
                          "jobs, expired: 0 -> at least 0",
                          "jobs, unknown at the recording's end: 0 -> 1 (1)"}));
  }

  void NamesOfStrangers_AreCutAndMadeUtf8() {
    session::Snapshot a = SnapshotAt(0), b = SnapshotAt(0);
    session::Rings rings = *a.rings.value;
    rings[0].error = std::string(100'000, '\xff');
    session::RingEntry ring = rings[1];
    ring.node_id = std::string(10'000, 'n');
    rings.push_back(ring);
    rings.push_back(ring);  // The same name twice.
    b.rings = PartOf(rings, 1);
    const auto rows = Compare(a, b);
    QCOMPARE(rows.size(), std::size_t{2});
    for (const Difference& row : rows) {
      QVERIFY(row.entity.size() + row.before.size() + row.after.size() < 1000);
      QVERIFY(row.after.find('\xff') == std::string::npos);
    }
  }
};

}  // namespace onepiece::history

ONEPIECE_TEST(onepiece::history::CompareTest)
#include "compare_test.moc"
