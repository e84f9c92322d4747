// Tests plans, holds and limits in the state machine, and states and commands from before it knew
// any.
#include "nodemanager/state/plan_state.h"

#include <QtTest>
#include <functional>

#include "absl/strings/str_cat.h"
#include "nodemanager/state/state_machine.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using std::string;

// These functions write protobuf's wire format by hand, so that the bytes of version 1 do not
// change with today's messages.
string Varint(std::uint64_t value) {
  string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}
string Number(std::uint64_t field, std::uint64_t value) {
  return Varint(field << 3) + Varint(value);
}
string Bytes(std::uint64_t field, const string& value) {
  return Varint(field << 3 | 2) + Varint(value.size()) + value;
}

constexpr std::uint64_t kRequestCrc = 12345;

// A snapshot as a program of version 1 wrote it. It holds an instance that serves "a" of "app", a
// deleted workflow, an audit entry and a remembered request.
string SnapshotOfVersion1() {
  const string stage = Bytes(1, "a") + Bytes(2, "wan") + Bytes(3, "tiny");
  const string assignment = Number(1, 4) + Bytes(2, stage) + Bytes(3, "app") + Bytes(4, "tiny");
  const string node = Bytes(1, "nodes/i") + Bytes(2, "i") + Number(3, 3) + Number(4, 7) +
                      Bytes(5, "127.0.0.1:5000") + Number(7, 42) + Bytes(8, "default") +
                      Number(9, 2) + Bytes(11, assignment);
  const string workflow = Bytes(1, "workflows/app") + Bytes(2, "app");
  const string result = Number(4, 9) + Number(5, 4);
  return Number(1, 1) + Number(2, 20) + Bytes(3, "cluster") + Bytes(4, "secret") + Number(5, 9) +
         Number(6, 5) + Bytes(7, Bytes(1, node) + Number(2, 8) + Number(3, 4)) +
         Bytes(9, Bytes(1, "gone") + Number(2, 6)) + Number(10, 2) +
         Bytes(11, Number(1, 9) + Number(2, 1000) + Bytes(3, "assign") + Bytes(4, "i") +
                       Bytes(5, "a")) +
         Bytes(12, Bytes(1, "id-1") + Number(2, kRequestCrc) + Bytes(3, result) + Number(4, 1000));
}

v1::Command HoldCommand(bool active, std::int64_t until_unix_ms = 0) {
  v1::Command command;
  v1::Hold& hold = *command.mutable_set_hold();
  hold.set_active(active);
  hold.set_until_unix_ms(until_unix_ms);
  hold.set_actor("operator:ann");
  hold.set_reason("a fair");
  return command;
}

v1::Plan MakePlan(const string& plan_id, const std::vector<string>& nodes) {
  v1::Plan plan;
  plan.set_plan_id(plan_id);
  plan.set_actor("operator:ann");
  plan.set_reason("because");
  for (const string& id : nodes) {
    v1::Move& move = *plan.add_moves();
    move.set_node_id(id);
    move.mutable_to()->set_pool("b/wan/tiny");
  }
  return plan;
}

// A state machine with instances i0, i1, … and one node of every other role.
struct World {
  StateMachine machine;
  std::int64_t now_ms = 5000;

  explicit World(int instances = 3) {
    for (int i = 0; i < instances; ++i)
      Do(RegisterCommand(MakeNode(absl::StrCat("i", i), v1::INSTANCE)));
    Do(RegisterCommand(MakeNode("proxy", v1::PROXY)));
    Do(RegisterCommand(MakeNode("database", v1::DATABASE)));
  }
  v1::CommandResult Apply(v1::Command command, std::uint32_t version = kCommandVersion) {
    command.set_time_unix_ms(now_ms);
    return machine.Apply(machine.applied_index() + 1, command, version);
  }
  // Returns the reason of the refusal, or nothing when the command took effect.
  string Do(const v1::Command& command) { return Apply(command).reason(); }
  string Start(const v1::Plan& plan) { return Do(StartPlanCommand(plan)); }
  string Advance(const string& plan_id, const string& node_id,
                 const std::vector<v1::Move::Phase>& phases) {
    for (std::size_t i = 1; i < phases.size(); ++i) {
      const string reason = Do(AdvanceCommand(plan_id, node_id, phases[i - 1], phases[i]));
      if (!reason.empty()) return reason;
    }
    return "";
  }
  string Finish(const string& plan_id, const string& node_id) {
    return Advance(plan_id, node_id, {v1::Move::PENDING, v1::Move::SWITCHING, v1::Move::DONE});
  }
  [[nodiscard]] const v1::Plan& Plan(const string& plan_id) const {
    return *FindPlan(machine.plans(), plan_id);
  }
  [[nodiscard]] QString LastAudit() const {
    const v1::AuditEntry& entry = machine.audit().back();
    return QString::fromStdString(absl::StrCat(entry.time_unix_ms(), " ", entry.action(), " ",
                                               entry.subject(), ": ", entry.detail()));
  }
  // The state without applied_index and the remembered requests.
  [[nodiscard]] string Content() const {
    v1::NodeManagerState state;
    state.ParseFromString(machine.Serialize());
    state.clear_applied_index();
    state.clear_requests();
    return state.SerializeAsString();
  }
};

}  // namespace

class PlanStateTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Restore_TakesAndGivesBackASnapshotOfVersion1() {
    StateMachine machine;
    QVERIFY(machine.Restore(SnapshotOfVersion1()).ok());
    QCOMPARE(machine.applied_index(), std::uint64_t{20});
    QCOMPARE(machine.cluster_id(), string("cluster"));
    QCOMPARE(machine.revision(), std::uint64_t{9});
    QCOMPARE(machine.epoch(), std::uint64_t{5});
    QCOMPARE(machine.history_floor(), std::uint64_t{2});
    QCOMPARE(machine.plan_revision(), std::uint64_t{0});
    QVERIFY(machine.plans().empty() && machine.pool_limits().empty() && !machine.hold().active());
    const v1::NodeRecord& record = machine.nodes().at("i");
    QCOMPARE(record.node().incarnation(), std::uint64_t{7});
    QCOMPARE(DescribedSet(record), string("default"));
    QVERIFY(!record.node().has_placement());
    QCOMPARE(ServedApps(record).size(), 1);
    QCOMPARE(machine.audit().front().action(), string("assign"));
    // This program writes the very same bytes, so a replica of version 1 can read them.
    QCOMPARE(QByteArray::fromStdString(machine.Serialize()),
             QByteArray::fromStdString(SnapshotOfVersion1()));
    v1::Command again = RegisterCommand(MakeNode("other", v1::PROXY), "id-1");
    QCOMPARE(machine.Apply(21, again, 1).reason(), string("REQUEST_ID_REUSED"));
    // The first command of version 2 begins to count the plan revision.
    QCOMPARE(machine.Apply(22, WorkflowCommand(MakeWorkflow("app", {"a"})), 1).code(), 0);
    QCOMPARE(machine.plan_revision(), std::uint64_t{0});
    QCOMPARE(machine.Apply(23, HoldCommand(true), 2).code(), 0);
    QCOMPARE(machine.plan_revision(), std::uint64_t{2});
    QCOMPARE(machine.Routing("default").routes(0).instances_size(), 1);
    v1::NodeManagerState state;
    QVERIFY(state.ParseFromString(machine.Serialize()));
    QCOMPARE(state.version(), std::uint32_t{2});
    StateMachine restored;
    QVERIFY(restored.Restore(machine.Serialize()).ok());
    QCOMPARE(restored.Serialize(), machine.Serialize());
  }

  void Restore_RefusesOtherVersionsAndKeepsTheState() {
    World world;
    const string before = world.machine.Serialize();
    v1::NodeManagerState state;
    QVERIFY(state.ParseFromString(before));
    for (const std::uint32_t version : {0U, kCommandVersion + 1}) {
      state.set_version(version);
      const absl::Status status = world.machine.Restore(state.SerializeAsString());
      QCOMPARE(base::GetReason(status).reason,
               string(version == 0 ? "BAD_SNAPSHOT" : "NEWER_VERSION"));
    }
    QCOMPARE(world.machine.Serialize(), before);
  }

  // Programs of version 1 know neither drained nor load_failed. For them a report that differs in
  // these only says nothing new and changes nothing.
  void Version1_ReportsMeanWhatTheyDidUntilTheFirstCommandOfVersion2() {
    World world(0);
    world.machine = StateMachine();
    world.Apply(RegisterCommand(MakeNode("i", v1::INSTANCE)), 1);
    v1::Command assign;
    assign.mutable_assign()->set_base_revision(world.machine.revision());
    v1::NodeAssignment& assignment = *assign.mutable_assign()->add_assignments();
    assignment.set_node_id("i");
    assignment.set_incarnation(1);
    assignment.mutable_stage()->set_stage("a");
    assignment.add_app_ids("app");
    const std::uint64_t epoch = world.Apply(assign, 1).epoch();
    v1::Command report = StateCommand("i", v1::Node::STARTING, epoch);
    report.mutable_set_node_state()->set_load_failed(true);
    report.mutable_set_node_state()->set_detail("no such model");
    world.Apply(report, 1);
    const std::uint64_t revision = world.machine.revision();
    const v1::NodeRecord& record = world.machine.nodes().at("i");
    QCOMPARE(record.node().detail(), string("no such model"));
    QVERIFY(!record.load_failed());
    QVERIFY(world.machine.IsKnown(record, report.set_node_state()));
    world.Apply(report, 1);
    QCOMPARE(world.machine.revision(), revision);
    world.Apply(HoldCommand(false), 2);
    QVERIFY(!world.machine.IsKnown(record, report.set_node_state()));
    // A later leader with an older voter proposes commands of version 1 again. They keep the
    // meaning of version 2.
    world.Apply(report, 1);
    QVERIFY(record.load_failed());
    QVERIFY(world.machine.IsKnown(record, report.set_node_state()));
    QVERIFY(world.machine.plan_revision() > 0);
  }

  void VersionOf_NamesWhatOldReplicasMayNotKnow() {
    QCOMPARE(VersionOf(RegisterCommand(MakeNode("i", v1::INSTANCE))), 1U);
    QCOMPARE(VersionOf(v1::Command()), 1U);
    for (const v1::Command& command :
         {HoldCommand(true), LimitsCommand("default", "a", 1, 2), StartPlanCommand({}),
          DecideCommand("p", v1::DecidePlan::CONFIRM),
          AdvanceCommand("p", "i", v1::Move::PENDING, v1::Move::DRAINING)})
      QCOMPARE(VersionOf(command), 2U);
  }

  // What moves of a plan came back alone leaves the others and the plan's end as they are.
  void AdvanceMove_TakesOneMoveBackSinceVersion3() {
    using Move = v1::Move;
    for (const std::uint32_t version : {2U, 3U}) {
      World world;
      const auto advance = [&](const char* id, Move::Phase from, Move::Phase to) {
        return world.Apply(AdvanceCommand("p", id, from, to), version).reason();
      };
      StateMachine& machine = world.machine;
      machine = StateMachine();
      for (const char* id : {"i0", "i1", "i2"})
        world.Apply(RegisterCommand(MakeNode(id, v1::INSTANCE)), version);
      QCOMPARE(world.Apply(StartPlanCommand(MakePlan("p", {"i0", "i1", "i2"})), version).reason(),
               string());
      QCOMPARE(advance("i0", Move::PENDING, Move::SWITCHING), string());
      const string refused = version == 2 ? "BAD_PHASE" : "";
      QCOMPARE(advance("i0", Move::SWITCHING, Move::REVERTING), refused);
      QCOMPARE(advance("i2", Move::PENDING, Move::REVERTED), refused);
      if (version == 2) continue;
      QCOMPARE(machine.nodes().at("i0").node().placement().pool(), string());
      QCOMPARE(world.Plan("p").state(), v1::Plan::RUNNING);
      QCOMPARE(advance("i1", Move::PENDING, Move::DRAINING), string());
      QCOMPARE(advance("i0", Move::REVERTING, Move::REVERTED), string());
      QCOMPARE(world.Plan("p").state(), v1::Plan::RUNNING);
      QCOMPARE(advance("i1", Move::DRAINING, Move::SWITCHING), string());
      QCOMPARE(advance("i1", Move::SWITCHING, Move::DONE), string());
      QCOMPARE(world.Plan("p").state(), v1::Plan::DONE);
    }
  }

  void StateOf_FollowsFromThePhases() {
    using Move = v1::Move;
    using Plan = v1::Plan;
    const auto state = [](const std::vector<Move::Phase>& phases) {
      v1::Plan plan;
      for (const Move::Phase phase : phases) plan.add_moves()->set_phase(phase);
      return StateOf(plan);
    };
    QCOMPARE(state({Move::DONE, Move::REVERTED}), Plan::DONE);
    QCOMPARE(state({Move::DONE, Move::REVERTING}), Plan::RUNNING);
    QCOMPARE(state({Move::PENDING, Move::REVERTED}), Plan::RUNNING);
    QCOMPARE(state({Move::DRAINING, Move::REVERTING}), Plan::RUNNING);
    QCOMPARE(state({Move::REVERTED, Move::REVERTING}), Plan::REVERTING);
    QCOMPARE(state({Move::REVERTED, Move::REVERTED}), Plan::REVERTED);
    QCOMPARE(state({Move::DONE, Move::REVERTED, Move::FAILED}), Plan::FAILED);
  }

  void Plans_TheOldestThatHasEndedIsForgotten() {
    World world;
    QCOMPARE(world.Start(MakePlan("runs", {"i0"})), string());
    const int count = static_cast<int>(StateMachine::kMaxPlans) + 50;
    for (int i = 0; i < count; ++i) {
      const string id = absl::StrCat("p-", i);
      QCOMPARE(world.Start(MakePlan(id, {"i1"})), string());
      QCOMPARE(world.Do(DecideCommand(id, v1::DecidePlan::REVERT)), string());
      QVERIFY(world.machine.plans().size() <= StateMachine::kMaxPlans);
    }
    QCOMPARE(world.machine.plans().size(), StateMachine::kMaxPlans);
    QCOMPARE(world.machine.plans().front().plan_id(), string("runs"));
    QCOMPARE(world.machine.plans()[1].plan_id(), string("p-51"));
    QCOMPARE(world.machine.plans().back().plan_id(), absl::StrCat("p-", count - 1));
    v1::Plan undo = MakePlan("undo", {"i1"});
    undo.set_undo_of("p-0");
    QCOMPARE(world.Start(undo), string("PLAN_UNKNOWN"));
    undo.set_undo_of("p-51");
    QCOMPARE(world.Start(undo), string());
    // Once it has ended, it is the oldest plan that may be forgotten.
    QCOMPARE(world.Do(DecideCommand("runs", v1::DecidePlan::REVERT)), string());
    QCOMPARE(world.Start(MakePlan("one more", {"i2"})), string());
    QVERIFY(FindPlan(world.machine.plans(), "runs") == nullptr);
    QCOMPARE(world.machine.plans().size(), StateMachine::kMaxPlans);
  }

  void StartPlan_RefusesMorePlansAtATimeThanThereMayBe() {
    const int most = static_cast<int>(StateMachine::kMaxRunningPlans);
    World world(most + 1);
    for (int i = 0; i < most; ++i)
      QCOMPARE(world.Start(MakePlan(absl::StrCat("p-", i), {absl::StrCat("i", i)})), string());
    const v1::Plan more = MakePlan("more", {absl::StrCat("i", most)});
    QCOMPARE(world.Start(more), string("TOO_MANY_PLANS"));
    QCOMPARE(world.Finish("p-3", "i3"), string());
    QCOMPARE(world.Start(more), string());
  }

  void StartPlan_BoundsItsSize() {
    World world(kMaxMoves + 1);
    std::vector<string> nodes;
    for (int i = 0; i < kMaxMoves; ++i) nodes.push_back(absl::StrCat("i", i));
    const string before = world.Content();
    nodes.push_back(absl::StrCat("i", kMaxMoves));
    QCOMPARE(world.Start(MakePlan("p", nodes)), string("TOO_MANY_MOVES"));
    nodes.pop_back();
    v1::Plan plan = MakePlan("p", nodes);
    plan.mutable_prediction()->set_basis(string(kMaxPlanBytes, 'x'));
    QCOMPARE(world.Start(plan), string("PLAN_TOO_LARGE"));
    plan.mutable_prediction()->set_basis(string(kMaxPlanBytes - 2000, 'x'));
    v1::Plan wordy = plan;
    wordy.set_reason(string(kMaxPlanTextBytes + 1, 'x'));
    QCOMPARE(world.Start(wordy), string("TEXT_TOO_LONG"));
    wordy = plan;
    wordy.set_actor(string(kMaxPlanTextBytes + 1, 'x'));
    QCOMPARE(world.Start(wordy), string("TEXT_TOO_LONG"));
    wordy = plan;
    wordy.set_plan_id(string(kMaxPlanTextBytes + 1, 'x'));
    QCOMPARE(world.Start(wordy), string("TEXT_TOO_LONG"));
    QCOMPARE(world.Start(MakePlan("p", {})), string("NO_MOVES"));
    QCOMPARE(world.Start(MakePlan("p", {"i0", "i0"})), string("NODE_TWICE"));
    QCOMPARE(world.Content(), before);
    QCOMPARE(world.Start(plan), string());
    QCOMPARE(world.Plan("p").moves_size(), kMaxMoves);
    v1::Command advance = AdvanceCommand("p", "i0", v1::Move::PENDING, v1::Move::DRAINING);
    advance.mutable_advance_move()->set_detail(string(kMaxPlanTextBytes + 1, 'x'));
    QCOMPARE(world.Do(advance), string("TEXT_TOO_LONG"));
  }

  void StartPlan_RefusesWhatCannotMove_data() {
    QTest::addColumn<QString>("node");
    QTest::addColumn<QString>("reason");
    QTest::newRow("a database") << "database"
                                << "NOT_AN_INSTANCE";
    QTest::newRow("a proxy") << "proxy"
                             << "NOT_AN_INSTANCE";
    QTest::newRow("a dead one") << "dead"
                                << "NODE_DEAD";
    QTest::newRow("an unknown one") << "nobody"
                                    << "NODE_UNKNOWN";
    QTest::newRow("one that moves") << "i0"
                                    << "NODE_MOVING";
    QTest::newRow("one that has moved since") << "i1"
                                              << "STALE_REVISION";
    QTest::newRow("none that is wrong") << "i2"
                                        << "";
  }
  void StartPlan_RefusesWhatCannotMove() {
    QFETCH(QString, node);
    QFETCH(QString, reason);
    World world;
    world.Do(RegisterCommand(MakeNode("dead", v1::INSTANCE)));
    world.Do(EndCommand("dead"));
    QCOMPARE(world.Start(MakePlan("first", {"i0"})), string());
    QCOMPARE(world.Start(MakePlan("second", {"i1"})), string());
    QCOMPARE(world.Finish("second", "i1"), string());
    const string before = world.Content();
    // A plan starts whole or not at all. An instance that could move is a part of it.
    world.Do(RegisterCommand(MakeNode("free", v1::INSTANCE)));
    const string with_free = world.Content();
    QVERIFY(with_free != before);
    QCOMPARE(QString::fromStdString(world.Start(MakePlan("p", {"free", node.toStdString()}))),
             reason);
    QCOMPARE(world.Content() == with_free, !reason.isEmpty());
  }

  void StartPlan_ChecksWhatItIsMadeFor() {
    World world;
    v1::Plan plan = MakePlan("p", {"i0"});
    plan.set_base_revision(world.machine.plan_revision() + 1);
    QCOMPARE(world.Start(plan), string("STALE_REVISION"));
    plan.set_base_revision(world.machine.plan_revision());
    QCOMPARE(world.Start(plan), string());
    QCOMPARE(world.Start(MakePlan("p", {"i1"})), string("PLAN_EXISTS"));
    v1::Plan unnamed = MakePlan("", {"i1"});
    unnamed.set_state(v1::Plan::DONE);
    unnamed.set_end_unix_ms(7);
    unnamed.set_undone_by("somebody");
    unnamed.mutable_moves(0)->set_phase(v1::Move::DONE);
    unnamed.mutable_moves(0)->set_incarnation(99);
    const v1::CommandResult result = world.Apply(StartPlanCommand(unnamed));
    const v1::Plan& made = world.Plan(absl::StrCat("plan-", result.revision()));
    QCOMPARE(made.state(), v1::Plan::RUNNING);
    QCOMPARE(made.moves(0).phase(), v1::Move::PENDING);
    QCOMPARE(made.moves(0).incarnation(), std::uint64_t{1});
    QCOMPARE(made.create_unix_ms(), world.now_ms);
    QVERIFY(made.end_unix_ms() == 0 && made.undone_by().empty());
  }

  // The time for the confirmation begins when the moves are done.
  void StartPlan_ConfirmationIsPutOffUntilItsMovesAreDone() {
    World world;
    v1::Plan plan = MakePlan("p", {"i0"});
    plan.set_confirm_by_unix_ms(world.now_ms + 1000);
    QCOMPARE(world.Start(plan), string());
    world.now_ms += 7000;
    QCOMPARE(world.Finish("p", "i0"), string());
    QCOMPARE(world.Plan("p").state(), v1::Plan::UNCONFIRMED);
    QCOMPARE(world.Plan("p").confirm_by_unix_ms(), world.now_ms + 1000);
    QCOMPARE(world.Plan("p").end_unix_ms(), 0);
    // A deadline in the past still makes the plan wait for a confirmation.
    plan = MakePlan("late", {"i1"});
    plan.set_confirm_by_unix_ms(1);
    QCOMPARE(world.Start(plan), string());
    QCOMPARE(world.Plan("late").confirm_by_unix_ms(), world.now_ms + 1);
  }

  void Advance_GoesStepByStep() {
    World world;
    QCOMPARE(world.Start(MakePlan("p", {"i0"})), string());
    QCOMPARE(world.Advance("x", "i0", {v1::Move::PENDING, v1::Move::DRAINING}),
             string("PLAN_UNKNOWN"));
    QCOMPARE(world.Advance("p", "i1", {v1::Move::PENDING, v1::Move::DRAINING}),
             string("MOVE_UNKNOWN"));
    QCOMPARE(world.Advance("p", "i0", {v1::Move::PENDING, v1::Move::DONE}), string("BAD_PHASE"));
    QCOMPARE(world.Advance("p", "i0", {v1::Move::SWITCHING, v1::Move::REVERTED}),
             string("BAD_PHASE"));
    // The move is in another phase. The command has no effect, and is no error.
    const string before = world.Content();
    QCOMPARE(world.Advance("p", "i0", {v1::Move::SWITCHING, v1::Move::DONE}), string());
    QCOMPARE(world.Content(), before);
    const std::uint64_t epoch = world.machine.epoch();
    QCOMPARE(world.Advance("p", "i0", {v1::Move::PENDING, v1::Move::DRAINING}), string());
    const v1::Node& node = world.machine.nodes().at("i0").node();
    QVERIFY(node.assignment().draining());
    QCOMPARE(node.assignment().epoch(), epoch + 1);
    QVERIFY(!node.has_placement());
    QCOMPARE(world.Advance("p", "i0", {v1::Move::DRAINING, v1::Move::SWITCHING}), string());
    QCOMPARE(node.placement().pool(), string("b/wan/tiny"));
    QCOMPARE(world.Plan("p").state(), v1::Plan::RUNNING);
    QCOMPARE(world.Advance("p", "i0", {v1::Move::SWITCHING, v1::Move::DONE}), string());
    QCOMPARE(world.Plan("p").state(), v1::Plan::DONE);
    QCOMPARE(world.Plan("p").end_unix_ms(), world.now_ms);
  }

  void Decide_InEveryState_data() {
    QTest::addColumn<int>("state");
    QTest::addColumn<bool>("may_confirm");
    QTest::addColumn<bool>("may_revert");
    QTest::newRow("RUNNING") << int{v1::Plan::RUNNING} << false << true;
    QTest::newRow("UNCONFIRMED") << int{v1::Plan::UNCONFIRMED} << true << true;
    QTest::newRow("DONE") << int{v1::Plan::DONE} << false << false;
    QTest::newRow("REVERTING") << int{v1::Plan::REVERTING} << false << false;
    QTest::newRow("REVERTED") << int{v1::Plan::REVERTED} << false << false;
    QTest::newRow("FAILED") << int{v1::Plan::FAILED} << false << false;
  }
  void Decide_InEveryState() {
    QFETCH(int, state);
    QFETCH(bool, may_confirm);
    QFETCH(bool, may_revert);
    for (const bool confirm : {true, false}) {
      World world;
      v1::Plan plan = MakePlan("p", {"i0"});
      if (state == v1::Plan::UNCONFIRMED) plan.set_confirm_by_unix_ms(world.now_ms + 1000);
      QCOMPARE(world.Start(plan), string());
      if (state == v1::Plan::DONE || state == v1::Plan::UNCONFIRMED) world.Finish("p", "i0");
      const bool back = state == v1::Plan::REVERTED || state == v1::Plan::FAILED;
      if (back || state == v1::Plan::REVERTING) {
        world.Advance("p", "i0", {v1::Move::PENDING, v1::Move::DRAINING});
        world.Do(DecideCommand("p", v1::DecidePlan::REVERT));
      }
      if (back)
        world.Advance("p", "i0",
                      {v1::Move::REVERTING,
                       state == v1::Plan::FAILED ? v1::Move::FAILED : v1::Move::REVERTED});
      QCOMPARE(int{world.Plan("p").state()}, state);
      const string before = world.Content();
      const string reason =
          world.Do(DecideCommand("p", confirm ? v1::DecidePlan::CONFIRM : v1::DecidePlan::REVERT));
      const bool may = confirm ? may_confirm : may_revert;
      QCOMPARE(reason, string(may ? "" : "PLAN_STATE"));
      QCOMPARE(world.Content() == before, !may);
      if (!may) continue;
      // A move that has not begun is back at once.
      QCOMPARE(world.Plan("p").state(), confirm                      ? v1::Plan::DONE
                                        : state == v1::Plan::RUNNING ? v1::Plan::REVERTED
                                                                     : v1::Plan::REVERTING);
      QCOMPARE(world.Plan("p").confirm_by_unix_ms() == 0, confirm || state == v1::Plan::RUNNING);
    }
    World world;
    QCOMPARE(world.Do(DecideCommand("x", v1::DecidePlan::REVERT)), string("PLAN_UNKNOWN"));
    QCOMPARE(world.Start(MakePlan("p", {"i0"})), string());
    QCOMPARE(world.Do(DecideCommand("p", v1::DecidePlan::DECISION_UNSPECIFIED)),
             string("BAD_DECISION"));
  }

  void Audit_SaysWhoAndWhy() {
    World world;
    v1::Plan plan = MakePlan("p", {"i0"});
    plan.set_confirm_by_unix_ms(world.now_ms + 1000);
    world.Start(plan);
    QCOMPARE(world.LastAudit(), QString("5000 start_plan p: operator:ann: because"));
    v1::Command advance = AdvanceCommand("p", "i0", v1::Move::PENDING, v1::Move::DRAINING);
    world.Do(advance);
    QCOMPARE(world.LastAudit(), QString("5000 advance_move p: i0 DRAINING"));
    advance = AdvanceCommand("p", "i0", v1::Move::DRAINING, v1::Move::SWITCHING);
    advance.mutable_advance_move()->set_detail("it has died");
    world.Do(advance);
    QCOMPARE(world.LastAudit(), QString("5000 advance_move p: i0 SWITCHING: it has died"));
    world.Advance("p", "i0", {v1::Move::SWITCHING, v1::Move::DONE});
    world.now_ms = 6000;
    world.Do(DecideCommand("p", v1::DecidePlan::CONFIRM));
    QCOMPARE(world.LastAudit(), QString("6000 end_plan p: DONE"));
    const v1::AuditEntry& confirmed = world.machine.audit()[world.machine.audit().size() - 2];
    QCOMPARE(confirmed.action() + " " + confirmed.subject() + ": " + confirmed.detail(),
             string("confirm_plan p: operator:ann: because"));
    world.Start(MakePlan("q", {"i1"}));
    world.Advance("q", "i1", {v1::Move::PENDING, v1::Move::DRAINING});
    v1::Command revert = DecideCommand("q", v1::DecidePlan::REVERT);
    revert.mutable_decide_plan()->set_actor("timer");
    revert.mutable_decide_plan()->clear_reason();
    world.Do(revert);
    QCOMPARE(world.LastAudit(), QString("6000 revert_plan q: timer"));
    world.Do(HoldCommand(true, 9000));
    QCOMPARE(world.LastAudit(), QString("6000 set_hold on: operator:ann: a fair"));
    world.Do(HoldCommand(false));
    QCOMPARE(world.LastAudit(), QString("6000 set_hold off: operator:ann: a fair"));
    world.Do(LimitsCommand("default", "a/wan/tiny", 1, 3));
    QCOMPARE(world.LastAudit(),
             QString("6000 set_pool_limits default a/wan/tiny: 1 to 3, operator:ann"));
  }

  void Hold_StaysAsItWasSetUntilItIsReplaced() {
    World world;
    const std::uint64_t revision = world.machine.plan_revision();
    QCOMPARE(world.Do(HoldCommand(true, 9000)), string());
    QVERIFY(world.machine.hold().active());
    QCOMPARE(world.machine.hold().until_unix_ms(), 9000);
    QCOMPARE(world.machine.plan_revision(), revision + 1);
    // The state machine has no clock, so it does not end a hold.
    world.now_ms = 10'000;
    world.Do(RegisterCommand(MakeNode("late", v1::INSTANCE)));
    QVERIFY(world.machine.hold().active());
    v1::Command wordy = HoldCommand(false);
    wordy.mutable_set_hold()->set_reason(string(kMaxPlanTextBytes + 1, 'x'));
    QCOMPARE(world.Do(wordy), string("TEXT_TOO_LONG"));
    QVERIFY(world.machine.hold().active());
    QCOMPARE(world.Do(HoldCommand(false)), string());
    QVERIFY(!world.machine.hold().active());
    QCOMPARE(world.machine.hold().until_unix_ms(), 0);
    StateMachine restored;
    QVERIFY(restored.Restore(world.machine.Serialize()).ok());
    QCOMPARE(restored.Serialize(), world.machine.Serialize());
  }

  void Limits_AreCheckedReplacedAndTakenBack() {
    World world;
    const auto limit = [&](const string& pool, int least, int most) {
      return world.Do(LimitsCommand("default", pool, least, most));
    };
    const string before = world.Content();
    QCOMPARE(limit("", 1, 2), string("BAD_LIMITS"));
    QCOMPARE(limit("a", 3, 2), string("BAD_LIMITS"));
    QCOMPARE(limit("a", -1, 2), string("BAD_LIMITS"));
    QCOMPARE(limit("a", 0, -1), string("BAD_LIMITS"));
    QCOMPARE(limit(string(kMaxPlanTextBytes + 1, 'x'), 1, 2), string("TEXT_TOO_LONG"));
    QCOMPARE(world.Content(), before);
    QCOMPARE(limit("a", 3, 0), string());  // No maximum.
    QCOMPARE(limit("a", 2, 2), string());
    QCOMPARE(world.machine.pool_limits().size(), std::size_t{1});
    QCOMPARE(world.machine.pool_limits().at({"default", "a"}).min_instances(), 2);
    QCOMPARE(limit("a", 0, 0), string());
    QVERIFY(world.machine.pool_limits().empty());
    for (std::size_t i = 0; i < StateMachine::kMaxPoolLimits; ++i)
      QCOMPARE(limit(absl::StrCat("pool-", i), 1, 1), string());
    QCOMPARE(limit("a", 1, 1), string("TOO_MANY_LIMITS"));
    QCOMPARE(limit("pool-7", 2, 3), string());
    QCOMPARE(limit("pool-8", 0, 0), string());
    QCOMPARE(limit("a", 1, 1), string());
    StateMachine restored;
    QVERIFY(restored.Restore(world.machine.Serialize()).ok());
    QCOMPARE(restored.Serialize(), world.machine.Serialize());
  }

  void Requests_OfPlansHaveOneEffect() {
    World world;
    const v1::Command start = StartPlanCommand(MakePlan("", {"i0"}), "start");
    const v1::CommandResult started = world.Apply(start);
    QCOMPARE(started.reason(), string());
    const string plan_id = absl::StrCat("plan-", started.revision());
    v1::Command advance = AdvanceCommand(plan_id, "i0", v1::Move::PENDING, v1::Move::SWITCHING);
    advance.set_request_id("advance");
    v1::Command revert = DecideCommand(plan_id, v1::DecidePlan::REVERT);
    revert.set_request_id("revert");
    v1::Command hold = HoldCommand(true);
    hold.set_request_id("hold");
    v1::Command limits = LimitsCommand("default", "a", 1, 2);
    limits.set_request_id("limits");
    const std::vector<v1::Command> commands = {start, advance, revert, hold, limits};
    std::vector<string> results = {started.SerializeAsString()};
    for (std::size_t i = 1; i < commands.size(); ++i)
      results.push_back(world.Apply(commands[i]).SerializeAsString());
    QCOMPARE(world.Plan(plan_id).state(), v1::Plan::REVERTING);
    const string before = world.Content();
    for (std::size_t i = 0; i < commands.size(); ++i)
      QCOMPARE(world.Apply(commands[i]).SerializeAsString(), results[i]);
    QCOMPARE(world.Content(), before);
    QCOMPARE(world.Do(StartPlanCommand(MakePlan("", {"i1"}), "start")),
             string("REQUEST_ID_REUSED"));
    // A refusal is remembered too, and repeated even when the command would succeed by now.
    const v1::Command early = StartPlanCommand(MakePlan("early", {"new"}), "early");
    QCOMPARE(world.Do(early), string("NODE_UNKNOWN"));
    world.Do(RegisterCommand(MakeNode("new", v1::INSTANCE)));
    QCOMPARE(world.Do(early), string("NODE_UNKNOWN"));
  }

  // A node says which set its configuration names. Plans may have put it elsewhere.
  void Register_KeepsTheSetThatAPlanHasGivenIt() {
    World world;
    v1::Plan plan = MakePlan("p", {"i0"});
    plan.mutable_moves(0)->mutable_to()->set_workflow_set("far");
    QCOMPARE(world.Start(plan), string());
    QCOMPARE(world.Finish("p", "i0"), string());
    const v1::NodeRecord& record = world.machine.nodes().at("i0");
    QCOMPARE(record.node().workflow_set(), string("far"));
    QCOMPARE(DescribedSet(record), string("default"));
    // The same incarnation registers again, as a node does that got no answer.
    const string before = world.Content();
    QCOMPARE(world.Do(RegisterCommand(MakeNode("i0", v1::INSTANCE))), string());
    QCOMPARE(world.Content(), before);
    // The same incarnation registers with another address.
    v1::Node moved = MakeNode("i0", v1::INSTANCE);
    moved.set_address("127.0.0.1:6000");
    QCOMPARE(world.Do(RegisterCommand(moved)), string());
    QCOMPARE(record.node().address(), string("127.0.0.1:6000"));
    QCOMPARE(record.node().workflow_set(), string("far"));
    // A new incarnation asks for a placement, but only plans decide about placements.
    v1::Node next = MakeNode("i0", v1::INSTANCE, 2);
    next.mutable_placement()->set_pool("x");
    next.set_activity(v1::SERVING);
    QCOMPARE(world.Do(RegisterCommand(next)), string());
    QCOMPARE(record.node().placement().pool(), string("b/wan/tiny"));
    QCOMPARE(record.node().workflow_set(), string("far"));
    QCOMPARE(DescribedSet(record), string("default"));
    QCOMPARE(record.node().activity(), v1::ACTIVITY_UNSPECIFIED);
    // Its configuration names "far" now, so the plan's set is its own. A plan that names no set
    // leaves it there.
    v1::Node described = MakeNode("i0", v1::INSTANCE, 3);
    described.set_workflow_set("far");
    QCOMPARE(world.Do(RegisterCommand(described)), string());
    QCOMPARE(DescribedSet(record), string("far"));
    QVERIFY(record.described_set().empty());
    QCOMPARE(world.machine.Routing("far").alive_size(), 1);
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::PlanStateTest)
#include "plan_state_test.moc"
