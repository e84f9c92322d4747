#include "cluster/client/cluster_notes.h"

#include <QtTest>

#include "tests/test_main.h"

namespace onepiece::client {
namespace {

v1::Node& AddNode(v1::Cluster& cluster, const std::string& id, v1::Role role,
                  const std::string& set = "default") {
  v1::Node& node = *cluster.add_nodes();
  node.set_node_id(id);
  node.set_role(role);
  node.set_state(v1::Node::READY);
  node.set_workflow_set(set);
  return node;
}

v1::Node& AddServing(v1::Cluster& cluster, const std::string& stage,
                     const std::string& set = "default") {
  v1::Node& node = AddNode(cluster, set + "-" + stage, v1::INSTANCE, set);
  node.mutable_assignment()->mutable_stage()->set_stage(stage);
  node.mutable_assignment()->add_app_ids("app");
  return node;
}

// One set with a proxy, and an application of two stages.
v1::Cluster OneSet() {
  v1::Cluster cluster;
  v1::Workflow& workflow = *cluster.add_workflows();
  workflow.set_app_id("app");
  workflow.add_stages()->set_stage("encode");
  workflow.add_stages()->set_stage("decode");
  AddNode(cluster, "proxy", v1::PROXY);
  return cluster;
}

QStringList Unserved(const v1::Cluster& cluster) {
  QStringList stages;
  for (const UnservedStage& stage : UnservedStages(cluster))
    stages << QString::fromStdString(stage.workflow_set + "/" + stage.app_id + "/" + stage.stage);
  return stages;
}

}  // namespace

class ClusterNotesTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void UnservedStage_IsNamed() {
    v1::Cluster cluster = OneSet();
    QCOMPARE(Unserved(cluster), QStringList({"default/app/encode", "default/app/decode"}));
    AddServing(cluster, "encode");
    QCOMPARE(Unserved(cluster), QStringList({"default/app/decode"}));
    QCOMPARE(NotesOn(cluster),
             std::vector<std::string>{"no instance serves stage decode of application app"});
    v1::Node& decode = AddServing(cluster, "decode");
    QVERIFY(Unserved(cluster).isEmpty());
    QVERIFY(NotesOn(cluster).empty());
    decode.mutable_assignment()->set_draining(true);
    QCOMPARE(Unserved(cluster).size(), 1);
    decode.mutable_assignment()->set_draining(false);
    decode.set_state(v1::Node::STARTING);
    QCOMPARE(Unserved(cluster).size(), 1);
    decode.set_state(v1::Node::READY);
    decode.mutable_assignment()->set_app_ids(0, "other");
    QCOMPARE(Unserved(cluster).size(), 1);
  }

  void ApplicationOfAnotherSet_IsServed() {
    v1::Cluster cluster = OneSet();
    AddServing(cluster, "encode");
    AddNode(cluster, "far-proxy", v1::PROXY, "far");
    AddServing(cluster, "decode", "far");
    // Neither set serves it alone: no message goes from one set to another.
    QCOMPARE(Unserved(cluster), QStringList({"default/app/decode", "far/app/encode"}));
    QCOMPARE(NotesOn(cluster)[1],
             std::string("no instance serves stage encode of application app in set far"));
    AddServing(cluster, "encode", "far");
    QVERIFY(Unserved(cluster).isEmpty());
  }

  void Versions_AreNamedWhenTheyDiffer() {
    v1::Cluster cluster;
    for (int i = 0; i < 7; ++i)
      AddNode(cluster, "n" + std::to_string(i), v1::DATABASE).set_version("0.1.0");
    QVERIFY(NotesOn(cluster).empty());
    v1::Node& old = AddNode(cluster, "old", v1::DATABASE);
    QCOMPARE(NotesOn(cluster),
             std::vector<std::string>{"nodes run different versions (unknown: old; 0.1.0: n0, n1, "
                                      "n2, n3, n4 and 2 more)"});
    old.set_state(v1::Node::DEAD);
    QVERIFY(NotesOn(cluster).empty());
  }

  void FeatureLevel_MayBeRaised() {
    v1::Cluster cluster;
    cluster.set_feature_level(2);
    cluster.set_available_feature_level(2);
    QVERIFY(NotesOn(cluster).empty());
    cluster.set_available_feature_level(3);
    QVERIFY(NotesOn(cluster)[0].find("onepiece cluster upgrade") != std::string::npos);
    // A new leader has not heard the others yet.
    cluster.set_available_feature_level(1);
    QVERIFY(NotesOn(cluster).empty());
  }
};

}  // namespace onepiece::client

ONEPIECE_TEST(onepiece::client::ClusterNotesTest)
#include "cluster_notes_test.moc"
