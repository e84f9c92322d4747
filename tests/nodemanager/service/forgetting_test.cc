#include "nodemanager/service/forgetting.h"

#include <QtTest>

#include "absl/strings/str_cat.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

constexpr base::Duration kForgetAfter = std::chrono::hours(24);

base::MonotonicTime At(base::Duration time) { return base::MonotonicTime(time); }

void Change(StateMachine& state, const v1::Command& command, std::uint32_t version = 3) {
  if (state.Apply(state.applied_index() + 1, command, version).code() != 0)
    qFatal("a command is refused");
}

void AddDead(StateMachine& state, v1::Node node, std::uint32_t version = 3) {
  Change(state, RegisterCommand(node), version);
  Change(state, EndCommand(node.node_id(), node.incarnation()), version);
}

}  // namespace

class ForgettingTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void DeadNode_IsForgottenAfterItsTime() {
    StateMachine state;
    Change(state, RegisterCommand(MakeNode("alive", v1::PROXY)));
    AddDead(state, MakeNode("p", v1::PROXY, 5));
    Forgetting forgetting(kForgetAfter);
    QVERIFY(forgetting.Due(state, At(std::chrono::hours(1))).empty());
    QVERIFY(forgetting.Due(state, At(std::chrono::hours(25) - std::chrono::seconds(1))).empty());
    const auto due = forgetting.Due(state, At(std::chrono::hours(25)));
    QCOMPARE(due.size(), std::size_t{1});
    QCOMPARE(due[0].node_id(), std::string("p"));
    QCOMPARE(due[0].incarnation(), std::uint64_t{5});
    Change(state, [&] {
      v1::Command command;
      *command.mutable_remove_node() = due[0];
      return command;
    }());
    QVERIFY(!state.nodes().contains("p"));
    QVERIFY(forgetting.Due(state, At(std::chrono::hours(60))).empty());
  }

  void NodeThatCameBack_BeginsAnew() {
    StateMachine state;
    AddDead(state, MakeNode("p", v1::PROXY, 5));
    Forgetting forgetting(kForgetAfter);
    QVERIFY(forgetting.Due(state, At(base::Duration{})).empty());
    // It was alive again for a moment, which this leader may not even have seen.
    AddDead(state, MakeNode("p", v1::PROXY, 6));
    QVERIFY(forgetting.Due(state, At(kForgetAfter)).empty());
    QCOMPARE(forgetting.Due(state, At(2 * kForgetAfter)).size(), std::size_t{1});
    // So does the time of a leader that is new.
    forgetting.Clear();
    QVERIFY(forgetting.Due(state, At(3 * kForgetAfter)).empty());
  }

  void EphemeralNode_IsForgottenAtOnce() {
    StateMachine state;
    for (const char* value : {"true", "false"}) {
      v1::Node node = MakeNode(absl::StrCat("says-", value), v1::INSTANCE);
      (*node.mutable_labels())[kEphemeralLabel] = value;
      Change(state, RegisterCommand(node));
    }
    Forgetting forgetting(kForgetAfter);
    QVERIFY(forgetting.Due(state, At(base::Duration{})).empty());
    for (const char* id : {"says-true", "says-false"}) Change(state, EndCommand(id));
    const auto due = forgetting.Due(state, At(std::chrono::seconds(1)));
    QCOMPARE(due.size(), std::size_t{1});
    QCOMPARE(due[0].node_id(), std::string("says-true"));
  }

  void OldLevel_KnowsNoForgetting() {
    StateMachine state;
    AddDead(state, MakeNode("p", v1::PROXY), 2);
    Forgetting forgetting(base::Duration{});
    QVERIFY(forgetting.Due(state, At(kForgetAfter)).empty());
  }

  void ManyNodes_GoInParts_TheLongestDeadFirst() {
    StateMachine state;
    AddDead(state, MakeNode("z-first", v1::PROXY));
    Forgetting forgetting(std::chrono::seconds(1));
    QVERIFY(forgetting.Due(state, At(base::Duration{})).empty());
    for (std::size_t i = 0; i < Forgetting::kAtOnce; ++i)
      AddDead(state, MakeNode(absl::StrCat("p-", i), v1::PROXY));
    QCOMPARE(forgetting.Due(state, At(std::chrono::seconds(1))).size(), std::size_t{1});
    const auto due = forgetting.Due(state, At(std::chrono::seconds(2)));
    QCOMPARE(due.size(), Forgetting::kAtOnce);
    QCOMPARE(due[0].node_id(), std::string("z-first"));
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::ForgettingTest)
#include "forgetting_test.moc"
