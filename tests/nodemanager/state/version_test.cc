// What version 3 of the commands brought: nodes that are forgotten, and a feature level that stays
// until it is raised.
#include <QtTest>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nodemanager/state/state_machine.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

v1::CommandResult ApplyAt(StateMachine& machine, const v1::Command& command,
                          std::uint32_t version) {
  return machine.Apply(machine.applied_index() + 1, command, version);
}

v1::Command RemoveCommand(const std::string& id, std::uint64_t incarnation = 0) {
  v1::Command command;
  command.mutable_remove_node()->set_node_id(id);
  command.mutable_remove_node()->set_incarnation(incarnation);
  command.mutable_remove_node()->set_actor("operator:ann");
  command.mutable_remove_node()->set_reason("sold");
  return command;
}

v1::Command RaiseCommand(std::uint32_t level) {
  v1::Command command;
  command.mutable_raise_feature_level()->set_level(level);
  command.mutable_raise_feature_level()->set_actor("operator:ann");
  return command;
}

v1::Command DeleteCommand(const std::string& app_id) {
  v1::Command command;
  command.set_delete_workflow(app_id);
  return command;
}

StateMachine Restored(const StateMachine& machine) {
  StateMachine restored;
  if (!restored.Restore(machine.Serialize()).ok()) qFatal("a state cannot be restored");
  return restored;
}

}  // namespace

class VersionTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void RemoveNode_ForgetsADeadNode() {
    StateMachine machine;
    QCOMPARE(ApplyAt(machine, RemoveCommand("p"), 3).reason(), std::string("NODE_UNKNOWN"));
    ApplyAt(machine, RegisterCommand(MakeNode("p", v1::PROXY, 7)), 3);
    const v1::CommandResult alive = ApplyAt(machine, RemoveCommand("p"), 3);
    QCOMPARE(alive.reason(), std::string("NODE_ALIVE"));
    QVERIFY(alive.message().find("stop its process") != std::string::npos);
    ApplyAt(machine, EndCommand("p", 7), 3);
    const std::uint64_t revision = machine.revision(), plan_revision = machine.plan_revision();
    QCOMPARE(ApplyAt(machine, RemoveCommand("p"), 3).code(), 0);
    QVERIFY(!machine.nodes().contains("p"));
    QVERIFY(machine.revision() > revision && machine.plan_revision() > plan_revision);
    // No event tells watchers of it.
    QCOMPARE(machine.history_floor(), machine.revision());
    QCOMPARE(machine.audit().back().action(), std::string("remove_node"));
    QCOMPARE(machine.audit().back().detail(), std::string("operator:ann: sold"));
  }

  void RemoveNode_OfAnIncarnationMeansNoOther() {
    StateMachine machine;
    ApplyAt(machine, RegisterCommand(MakeNode("p", v1::PROXY, 7)), 3);
    const std::uint64_t revision = machine.revision();
    for (const std::uint64_t incarnation : {6, 7, 8})
      QCOMPARE(ApplyAt(machine, RemoveCommand("p", incarnation), 3).code(), 0);
    QCOMPARE(ApplyAt(machine, RemoveCommand("nobody", 1), 3).code(), 0);
    QCOMPARE(machine.revision(), revision);
    QVERIFY(machine.nodes().contains("p"));
    ApplyAt(machine, EndCommand("p", 7), 3);
    QCOMPARE(ApplyAt(machine, RemoveCommand("p", 6), 3).code(), 0);
    QVERIFY(machine.nodes().contains("p"));
    QCOMPARE(ApplyAt(machine, RemoveCommand("p", 7), 3).code(), 0);
    QVERIFY(!machine.nodes().contains("p"));
  }

  // Its work is done elsewhere. Whoever comes back must be told apart from it.
  void ForgottenIncarnation_DoesNotComeBack() {
    StateMachine machine;
    ApplyAt(machine, RegisterCommand(MakeNode("p", v1::PROXY, 7)), 3);
    ApplyAt(machine, EndCommand("p", 7), 3);
    ApplyAt(machine, RemoveCommand("p", 7), 3);
    machine = Restored(machine);
    QCOMPARE(machine.forgotten_incarnation(), std::uint64_t{7});
    for (const std::uint64_t incarnation : {6, 7}) {
      const auto result =
          ApplyAt(machine, RegisterCommand(MakeNode("p", v1::PROXY, incarnation)), 3);
      QCOMPARE(result.reason(), std::string("STALE_INCARNATION"));
    }
    QCOMPARE(ApplyAt(machine, RegisterCommand(MakeNode("p", v1::PROXY, 8)), 3).code(), 0);
  }

  void Level_StaysUntilItIsRaised() {
    StateMachine machine;
    // A group that begins takes the newest level.
    QCOMPARE(machine.VersionLimit(RegisterCommand(MakeNode("p", v1::PROXY))),
             StateMachine::kAnyVersion);
    ApplyAt(machine, RegisterCommand(MakeNode("p", v1::PROXY)), 2);
    QCOMPARE(machine.feature_level(), 2u);
    QCOMPARE(machine.VersionLimit(RegisterCommand(MakeNode("q", v1::PROXY))), 2u);
    QCOMPARE(machine.VersionLimit(RemoveCommand("p")), 2u);
    QCOMPARE(machine.VersionLimit(RaiseCommand(3)), 3u);
    const std::uint64_t revision = machine.revision();
    QCOMPARE(ApplyAt(machine, RaiseCommand(3), 3).code(), 0);
    QCOMPARE(machine.feature_level(), 3u);
    QVERIFY(machine.revision() > revision);
    QCOMPARE(machine.history_floor(), machine.revision());
    QCOMPARE(machine.audit().back().action(), std::string("raise_feature_level"));
    // A leader that has not heard the others yet proposes under an older version.
    ApplyAt(machine, EndCommand("p"), 1);
    QCOMPARE(Restored(machine).feature_level(), 3u);
    QCOMPARE(machine.VersionLimit(RemoveCommand("p")), 3u);
  }

  void Description_IsComparedWholeFromVersion3() {
    StateMachine machine;
    v1::Node node = MakeNode("p", v1::PROXY);
    ApplyAt(machine, RegisterCommand(node), 2);
    node.set_zone("rack-1");
    ApplyAt(machine, RegisterCommand(node), 2);
    // Programs of version 2 do not see a difference, and all replicas must do the same.
    QCOMPARE(machine.nodes().at("p").node().zone(), std::string());
    const std::vector<std::function<void()>> changes = {
        [&] { node.set_version("1"); }, [&] { node.set_build("b"); }, [&] { node.set_host("h"); },
        [&] { (*node.mutable_labels())["a"] = "b"; },
        [&] { node.add_devices()->set_device("cuda:0"); }};
    ApplyAt(machine, RegisterCommand(node), 3);
    QCOMPARE(machine.nodes().at("p").node().zone(), std::string("rack-1"));
    for (const auto& change : changes) {
      change();
      const std::uint64_t revision = machine.revision();
      ApplyAt(machine, RegisterCommand(node), 3);
      QVERIFY(machine.revision() > revision);
      const std::uint64_t after = machine.revision();
      ApplyAt(machine, RegisterCommand(node), 3);
      QCOMPARE(machine.revision(), after);
    }
    QCOMPARE(machine.nodes().at("p").node().devices(0).device(), std::string("cuda:0"));
  }

  // Workflow files would otherwise bring nothing into a cluster that has forgotten a node.
  void ForgottenNode_IsNoForgottenDeletion() {
    StateMachine machine;
    ApplyAt(machine, RegisterCommand(MakeNode("p", v1::PROXY)), 3);
    ApplyAt(machine, EndCommand("p"), 3);
    ApplyAt(machine, RemoveCommand("p"), 3);
    QVERIFY(machine.history_floor() > 0);
    QVERIFY(!machine.forgot_deletions());
    for (std::size_t i = 0; i <= StateMachine::kMaxDeletions; ++i) {
      QVERIFY(!machine.forgot_deletions());
      const std::string app_id = absl::StrCat("app-", i);
      ApplyAt(machine, WorkflowCommand(MakeWorkflow(app_id, {"a"})), 3);
      ApplyAt(machine, DeleteCommand(app_id), 3);
    }
    QVERIFY(machine.forgot_deletions());
    QVERIFY(Restored(machine).forgot_deletions());
  }

  // Nodes of an earlier release order databases by their names alone.
  void Hosts_AreToldFromVersion4() {
    StateMachine machine;
    v1::Node node = MakeNode("d", v1::DATABASE);
    node.set_host("h");
    node.set_zone("z");
    ApplyAt(machine, RegisterCommand(node), 3);
    ApplyAt(machine, RegisterCommand(MakeNode("p", v1::PROXY)), 3);
    for (const char* id : {"d", "p"}) ApplyAt(machine, StateCommand(id, v1::Node::READY), 3);
    const v1::RoutingTable before = machine.Routing("default");
    QCOMPARE(before.databases_size(), 1);
    QVERIFY(before.databases(0).host().empty() && before.databases(0).zone().empty());
    ApplyAt(machine, RaiseCommand(4), 4);
    const v1::RoutingTable after = machine.Routing("default");
    QCOMPARE(after.databases(0).host(), std::string("h"));
    QCOMPARE(after.databases(0).zone(), std::string("z"));
    QVERIFY(after.proxies(0).host().empty() && after.alive(0).host().empty());
    // Everybody gets the other table.
    QVERIFY(after.epoch() > before.epoch());
    // So it is when the same process moves.
    node.set_host("h2");
    ApplyAt(machine, RegisterCommand(node), 4);
    ApplyAt(machine, StateCommand("d", v1::Node::READY), 4);
    QCOMPARE(machine.Routing("default").databases(0).host(), std::string("h2"));
    QVERIFY(machine.Routing("default").epoch() > after.epoch());
  }

  // Replicas of two releases compare hashes, and the older ones know no author.
  void Author_OfAWorkflowIsKeptFromVersion4() {
    const auto detail = [](std::uint32_t version) {
      StateMachine machine;
      v1::Command command = WorkflowCommand(MakeWorkflow("app", {"a"}));
      command.set_actor("operator:ann");
      ApplyAt(machine, command, version);
      return machine.audit().back().detail();
    };
    QCOMPARE(detail(3), std::string());
    QCOMPARE(detail(4), std::string("operator:ann"));
  }

  void HistoryOfVersion2_MayLackDeletions() {
    StateMachine machine;
    for (std::size_t i = 0; i <= StateMachine::kMaxDeletions; ++i) {
      const std::string app_id = absl::StrCat("app-", i);
      ApplyAt(machine, WorkflowCommand(MakeWorkflow(app_id, {"a"})), 2);
      ApplyAt(machine, DeleteCommand(app_id), 2);
    }
    QVERIFY(machine.forgot_deletions());
    ApplyAt(machine, RaiseCommand(3), 3);
    QVERIFY(machine.forgot_deletions());
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::VersionTest)
#include "version_test.moc"
