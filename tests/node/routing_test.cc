#include "cluster/node/routing.h"

#include <QtTest>
#include <map>

#include "tests/test_main.h"

namespace onepiece::node {
namespace {

v1::Endpoint MakeEndpoint(const std::string& node_id, std::uint64_t incarnation = 1) {
  v1::Endpoint endpoint;
  endpoint.set_node_id(node_id);
  endpoint.set_incarnation(incarnation);
  endpoint.set_address("127.0.0.1:1");
  return endpoint;
}

Routing WithDatabases(const std::vector<std::string>& node_ids) {
  v1::RoutingTable table;
  for (const std::string& id : node_ids) *table.add_databases() = MakeEndpoint(id);
  return Routing(table);
}

Routing WithVideoWorkflow() {
  v1::RoutingTable table;
  table.set_epoch(7);
  v1::Workflow& workflow = *table.add_workflows();
  workflow.set_app_id("video");
  for (const char* stage : {"encode", "diffuse", "decode"}) workflow.add_stages()->set_stage(stage);
  v1::Route& route = *table.add_routes();
  route.set_app_id("video");
  route.set_stage("diffuse");
  *route.add_instances() = MakeEndpoint("i2");
  *route.add_instances() = MakeEndpoint("i1");
  *table.add_alive() = MakeEndpoint("i1", 5);
  return Routing(table);
}

}  // namespace

class RoutingTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Default_KnowsNobody() {
    const Routing routing;
    QCOMPARE(routing.epoch(), std::uint64_t{0});
    QVERIFY(routing.FindWorkflow("video") == nullptr);
    QVERIFY(routing.Instances("video", "encode").empty());
    QVERIFY(!routing.IsAlive("i1", 0));
    QVERIFY(routing.DatabasesFor(base::Uid::GenerateRandom()).empty());
  }

  void GraphOf_IsTheApplicationsOrNone() {
    const Routing routing = WithVideoWorkflow();
    QCOMPARE(routing.GraphOf("video").Successors("encode").size(), std::size_t{1});
    QCOMPARE(routing.GraphOf("video").Successors("encode")[0], std::string("diffuse"));
    QVERIFY(routing.GraphOf("video").Successors("paint").empty());
    QVERIFY(routing.GraphOf("audio").Entrances().empty());
  }

  void MeetingPoint_IsTheSameForEverybodyAndMovesOnlyWithItsInstance() {
    const auto with = [](const std::vector<std::string>& node_ids) {
      v1::RoutingTable table;
      v1::Route& route = *table.add_routes();
      route.set_app_id("video");
      route.set_stage("diffuse");
      for (const std::string& id : node_ids) *route.add_instances() = MakeEndpoint(id);
      return Routing(table);
    };
    const Routing three = with({"i1", "i2", "i3"});
    const Routing shuffled = with({"i3", "i1", "i2"});
    const Routing two = with({"i3", "i1"});
    std::map<std::string, int> chosen;
    for (int i = 0; i < 900; ++i) {
      const base::Uid uid = base::Uid::GenerateRandom();
      const std::string point = three.MeetingPoint("video", "diffuse", uid)->node_id();
      ++chosen[point];
      QCOMPARE(shuffled.MeetingPoint("video", "diffuse", uid)->node_id(), point);
      const std::string later = two.MeetingPoint("video", "diffuse", uid)->node_id();
      if (point != "i2") QCOMPARE(later, point);
      // A node that leaves knows where the others will look.
      QCOMPARE(three.MeetingPoint("video", "diffuse", uid, "i2")->node_id(), later);
    }
    for (const auto& [node_id, count] : chosen) QVERIFY2(count > 200, node_id.c_str());
    QCOMPARE(chosen.size(), std::size_t{3});
    QVERIFY(!three.MeetingPoint("video", "encode", base::Uid()).has_value());
    QVERIFY(!with({"i1"}).MeetingPoint("video", "diffuse", base::Uid(), "i1").has_value());
  }

  void StageIndex_IsThePositionOrNothing() {
    const Routing routing = WithVideoWorkflow();
    QCOMPARE(routing.StageIndex("video", "decode"), std::optional<int>(2));
    QVERIFY(!routing.StageIndex("video", "paint").has_value());
    QVERIFY(!routing.StageIndex("audio", "decode").has_value());
  }

  void Instances_AreSortedByNodeId() {
    const Routing routing = WithVideoWorkflow();
    const std::span<const v1::Endpoint> instances = routing.Instances("video", "diffuse");
    QCOMPARE(instances.size(), std::size_t{2});
    QCOMPARE(instances[0].node_id(), std::string("i1"));
    QCOMPARE(instances[1].node_id(), std::string("i2"));
    QVERIFY(routing.Instances("video", "encode").empty());
  }

  void IsAlive_MeansThisIncarnationOnly() {
    const Routing routing = WithVideoWorkflow();
    QVERIFY(routing.IsAlive("i1", 5));
    QVERIFY(!routing.IsAlive("i1", 4));
    QVERIFY(!routing.IsAlive("i1", 6));
    QVERIFY(!routing.IsAlive("i2", 5));
  }

  void IsOver_OnlyWhenTheTableShowsIt() {
    const Routing routing = WithVideoWorkflow();
    QVERIFY(!routing.IsOver("i1", 5, 7, ""));
    QVERIFY(routing.IsOver("i1", 4, 7, ""));
    QVERIFY(!routing.IsOver("i1", 6, 7, ""));  // Restarted since the table was made.
    QVERIFY(routing.IsOver("nobody", 1, 7, ""));
    QVERIFY(routing.IsOver("nobody", 1, 6, ""));
  }

  void IsOver_ATableThatCannotKnow_ShowsNothing() {
    const Routing routing = WithVideoWorkflow();
    QVERIFY(!routing.IsOver("nobody", 1, 8, ""));       // It came after this table.
    QVERIFY(!routing.IsOver("nobody", 1, 6, "other"));  // It was of another workflow set.
    QVERIFY(!Routing().IsOver("nobody", 1, 0, ""));
    // A later incarnation shows it, whatever else the table knows.
    QVERIFY(routing.IsOver("i1", 4, 8, "other"));
  }

  // The weights place the records of running clusters. A build with other weights would not find
  // them.
  void RendezvousWeight_IsWhatItAlwaysWas() {
    const base::Uid uid = *base::Uid::Parse("00112233-4455-6677-8899-aabbccddeeff");
    QCOMPARE(RendezvousWeight(uid, "db-0"), std::uint64_t{0xfdae1ea0071bf4eb});
    QCOMPARE(RendezvousWeight(uid, "db-1"), std::uint64_t{0xd45d89aec13fc7b3});
    QCOMPARE(RendezvousWeight(base::Uid(), ""), std::uint64_t{0x68752350ae1d483f});
  }

  void DatabasesFor_SpreadsEvenly() {
    const Routing routing = WithDatabases({"db-0", "db-1", "db-2", "db-3"});
    std::map<std::string, int> first;
    for (int i = 0; i < 4000; ++i)
      ++first[routing.DatabasesFor(base::Uid::GenerateRandom())[0].node_id()];
    QCOMPARE(first.size(), std::size_t{4});
    // Binomial with mean 1000 and sigma 27: seven sigma either way.
    for (const auto& [node_id, count] : first)
      QVERIFY2(count > 800 && count < 1200, node_id.c_str());
  }

  void DatabasesFor_MovesOnlyTheJobsOfTheNodeThatLeft() {
    const Routing before = WithDatabases({"db-0", "db-1", "db-2"});
    const Routing after = WithDatabases({"db-2", "db-0"});
    for (int i = 0; i < 500; ++i) {
      const base::Uid uid = base::Uid::GenerateRandom();
      std::vector<v1::Endpoint> expected = before.DatabasesFor(uid);
      std::erase_if(expected, [](const v1::Endpoint& node) { return node.node_id() == "db-1"; });
      const std::vector<v1::Endpoint> actual = after.DatabasesFor(uid);
      QCOMPARE(actual.size(), expected.size());
      QCOMPARE(actual[0].node_id(), expected[0].node_id());
      QCOMPARE(actual[1].node_id(), expected[1].node_id());
    }
  }
};

}  // namespace onepiece::node

ONEPIECE_TEST(onepiece::node::RoutingTest)
#include "routing_test.moc"
