// Tests what `onepiece apply --wait` waits for.
#include "cluster/cli/settling.h"

#include <QtTest>

#include "tests/test_main.h"

namespace onepiece::cli {
namespace {

constexpr std::uint64_t kRevision = 3;

/// Returns a cluster with one application, which an instance serves as the configuration says.
v1::Cluster Settled() {
  v1::Cluster cluster;
  cluster.set_config_revision(kRevision);
  v1::Workflow& workflow = *cluster.add_workflows();
  workflow.set_app_id("film");
  v1::StageSpec& stage = *workflow.add_stages();
  stage.set_stage("encode");
  stage.set_plugin("wan");
  stage.set_model("tiny");
  v1::Node& proxy = *cluster.add_nodes();
  proxy.set_role(v1::PROXY);
  proxy.set_state(v1::Node::READY);
  proxy.set_workflow_set("default");
  v1::Node& instance = *cluster.add_nodes();
  instance.set_node_id("instance-1");
  instance.set_role(v1::INSTANCE);
  instance.set_state(v1::Node::READY);
  instance.set_workflow_set("default");
  instance.set_activity(v1::SERVING);
  v1::Assignment& assignment = *instance.mutable_assignment();
  *assignment.mutable_stage() = stage;
  assignment.add_app_ids("film");
  assignment.add_models("tiny");
  return cluster;
}

QStringList Missing(const v1::Cluster& cluster, const v1::Elasticity& elasticity = {}) {
  QStringList missing;
  for (const std::string& one : WhatIsMissing(cluster, elasticity, kRevision))
    missing << QString::fromStdString(one);
  return missing;
}

}  // namespace

class SettlingTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Settled_MissesNothing() {
    v1::Cluster cluster = Settled();
    QCOMPARE(Missing(cluster), QStringList());
    v1::Node& idle = *cluster.add_nodes();
    idle.set_role(v1::INSTANCE);
    idle.set_state(v1::Node::READY);
    idle.set_activity(v1::IDLE);
    QCOMPARE(Missing(cluster), QStringList());
    cluster.mutable_workflows(0)->mutable_stages(0)->set_device("cuda");  // Of the pool.
    QCOMPARE(Missing(cluster), QStringList());
    cluster.set_config_revision(kRevision + 1);
    QCOMPARE(Missing(cluster), QStringList());
  }

  void Revision_MustBeThere() {
    v1::Cluster cluster = Settled();
    cluster.set_config_revision(kRevision - 1);
    QCOMPARE(Missing(cluster), QStringList{"the cluster has revision 2 of the configuration"});
  }

  void Stages_MustBeServed() {
    v1::Cluster cluster = Settled();
    cluster.mutable_workflows(0)->add_stages()->set_stage("decode");
    QCOMPARE(Missing(cluster), QStringList{"no instance serves stage decode of application film"});
  }

  void Plans_MustHaveSettled() {
    v1::Elasticity elasticity;
    v1::Plan& plan = *elasticity.add_plans();
    plan.set_plan_id("plan-7");
    plan.set_state(v1::Plan::RUNNING);
    QCOMPARE(Missing(Settled(), elasticity), QStringList{"plan plan-7 is RUNNING"});
    plan.set_state(v1::Plan::UNCONFIRMED);  // It moves nothing.
    QCOMPARE(Missing(Settled(), elasticity), QStringList());
  }

  void Instances_MustDoWhatTheyAreAssigned_data() {
    QTest::addColumn<int>("activity");
    QTest::addColumn<QString>("missing");
    QTest::newRow("loading") << int(v1::LOADING) << "instance-1 loads encode";
    QTest::newRow("draining") << int(v1::DRAINING) << "instance-1 drains";
    QTest::newRow("not begun") << int(v1::IDLE) << "instance-1 has not begun encode";
    QTest::newRow("quarantined") << int(v1::QUARANTINED)
                                 << "instance-1 could not load encode: no memory";
    QTest::newRow("stuck serves") << int(v1::STUCK) << "";
  }
  void Instances_MustDoWhatTheyAreAssigned() {
    QFETCH(int, activity);
    QFETCH(QString, missing);
    v1::Cluster cluster = Settled();
    cluster.mutable_nodes(1)->set_activity(static_cast<v1::Activity>(activity));
    cluster.mutable_nodes(1)->set_detail("no memory");
    QCOMPARE(Missing(cluster).join("; "), missing);
    cluster.mutable_nodes(1)->set_state(v1::Node::DEAD);  // Nobody waits for the dead.
    QCOMPARE(Missing(cluster), QStringList{"no instance serves stage encode of application film"});
  }

  // The leader assigns a moment after the configuration has changed.
  void Assignments_OfTheConfigurationBefore_AreNotServed() {
    const QStringList still = {"instance-1 still serves encode as it was"};
    v1::Cluster cluster = Settled();
    cluster.mutable_workflows(0)->mutable_stages(0)->set_threads(2);
    QCOMPARE(Missing(cluster), still);
    cluster = Settled();
    cluster.mutable_workflows(0)->mutable_stages(0)->set_pool("tiny");  // The pool is the same.
    cluster.mutable_workflows(0)->mutable_stages(0)->set_model("large");
    QCOMPARE(Missing(cluster), still);
    cluster = Settled();
    cluster.mutable_workflows()->Clear();
    QCOMPARE(Missing(cluster), still);
  }
};

}  // namespace onepiece::cli

ONEPIECE_TEST(onepiece::cli::SettlingTest)
#include "settling_test.moc"
