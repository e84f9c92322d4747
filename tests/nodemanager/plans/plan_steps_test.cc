#include <QtTest>
#include <cstdlib>
#include <functional>
#include <random>

#include "cluster/base/ids.h"
#include "tests/nodemanager/plans/plan_world.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

QString Text(const std::string& text) { return QString::fromStdString(text); }

struct Fault {
  const char* name;
  std::function<void(PlanWorld&)> strike;
  // True when a node never serves again after it, neither where it was nor where it shall be.
  bool may_fail = false;
};

void DeleteWorkflow(PlanWorld& world) {
  v1::Command command;
  command.set_delete_workflow("app");
  world.Do(command);
}

const std::vector<Fault>& Faults() {
  static const std::vector<Fault> faults = {
      {"it dies for good", [](PlanWorld& w) { w.Kill("i0"); }},
      {"it dies and comes back",
       [](PlanWorld& w) {
         w.Kill("i0");
         w.Restart("i0");
       }},
      {"a new incarnation", [](PlanWorld& w) { w.Restart("i0"); }},
      {"it falls silent", [](PlanWorld& w) { w.silent.insert("i0"); }, true},
      {"no model loads",
       [](PlanWorld& w) {
         w.broken_pools = {"a/wan/tiny", "b/wan/tiny"};
       },
       true},
      {"a new leader", [](PlanWorld& w) { w.told_epochs.clear(); }},
      {"a new leader from a snapshot",
       [](PlanWorld& w) {
         const std::string bytes = w.machine.Serialize();
         if (!w.machine.Restore(bytes).ok()) w.wrong = "not restored";
         w.told_epochs.clear();
       }},
      {"a sender dies", [](PlanWorld& w) { w.Kill("p-default"); }},
      {"a sender falls silent", [](PlanWorld& w) { w.silent.insert("p-default"); }},
      {"its model does not load", [](PlanWorld& w) { w.broken_pools.insert("b/wan/tiny"); }},
      {"the workflow goes", [](PlanWorld& w) { DeleteWorkflow(w); }},
      {"it is taken back",
       [](PlanWorld& w) {
         if (!HasEnded(w.Last())) w.Decide(v1::DecidePlan::REVERT);
       }},
  };
  return faults;
}

}  // namespace

class PlanStepsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Plan_GoesThroughItsPhases() {
    PlanWorld world;
    FillWorld(world);
    QCOMPARE(world.At("i0"), std::string("a"));
    // The plan names the pool by its stage.
    QCOMPARE(world.Begin({PlanWorld::MoveOf("i0", "b")}), std::string());
    QCOMPARE(world.Last().moves(0).phase(), v1::Move::PENDING);
    for (const v1::Command& step : world.Steps()) world.Do(step);
    QCOMPARE(world.Last().moves(0).phase(), v1::Move::DRAINING);
    QVERIFY(world.NodeOf("i0").assignment().draining());
    // The instance is drained, but the proxy has not said that it goes by the new table.
    world.silent.insert("p-default");
    world.Tick();
    world.Tick();
    QVERIFY(world.machine.nodes().at("i0").drained());
    QCOMPARE(world.Last().moves(0).phase(), v1::Move::DRAINING);
    QCOMPARE(ActivityOf(world.machine.nodes().at("i0"), nullptr), v1::DRAINED);
    world.silent.clear();
    world.silent.insert("i0");
    world.Tick();
    QCOMPARE(world.Last().moves(0).phase(), v1::Move::SWITCHING);
    QCOMPARE(world.At("i0"), std::string("b"));
    world.Tick();
    QCOMPARE(world.Last().moves(0).phase(), v1::Move::SWITCHING);  // It does not serve yet.
    QCOMPARE(ActivityOf(world.machine.nodes().at("i0"), nullptr), v1::LOADING);
    world.silent.clear();
    world.Tick();
    QCOMPARE(world.Last().state(), v1::Plan::DONE);
    QCOMPARE(ActivityOf(world.machine.nodes().at("i0"), nullptr), v1::SERVING);
    QCOMPARE(Text(world.wrong), QString());
    QVERIFY(world.ReplaysAlike());
  }

  // Strikes with every fault after every command of a plan with two moves, one of them to another
  // set.
  void Plan_EndsWhateverHappensAtAnyPoint() {
    int runs = 0;
    std::map<v1::Plan::State, int> ends;
    for (int kind = 0; kind < 4 * static_cast<int>(Faults().size()); ++kind) {
      const Fault& fault = Faults()[static_cast<std::size_t>(kind) / 4];
      const int confirm_within_s = kind % 2 == 0 ? 0 : 5;
      for (int at = 0;; ++at) {
        PlanWorld world;
        FillWorld(world);
        if (kind % 4 >= 2) world.actor = "policy:test";
        QCOMPARE(world.Begin({PlanWorld::MoveOf("i0", "b"), PlanWorld::MoveOf("i2", "a", "far")},
                             confirm_within_s),
                 std::string());
        int done = 0;
        bool struck = false;
        for (int tick = 0; tick < 40 && !struck; ++tick) {
          world.now_ms += 1000;
          world.NodesReport();
          if (done++ == at) fault.strike(world), struck = true;
          for (const v1::Command& step : world.Steps()) {
            world.Do(step);
            if (done++ == at && !struck) fault.strike(world), struck = true;
          }
          if (world.AllEnded()) break;
        }
        if (!struck) break;
        ++runs;
        const QString where = QString("%1 after %2, %3").arg(fault.name).arg(at).arg(kind % 4);
        QVERIFY2(world.RunToTheEnd(), qPrintable(where));
        QVERIFY2(world.wrong.empty(), qPrintable(where + ": " + Text(world.wrong)));
        const v1::Plan& plan = world.Last();
        ++ends[plan.state()];
        if (plan.state() == v1::Plan::FAILED) QVERIFY2(fault.may_fail, qPrintable(where));
        for (const v1::Move& move : plan.moves()) {
          // What a person plans goes or comes back as a whole.
          if (kind % 4 < 2 && plan.state() != v1::Plan::FAILED)
            QCOMPARE(move.phase() == v1::Move::DONE, plan.state() == v1::Plan::DONE);
          const v1::Node& node = world.NodeOf(move.node_id());
          if (!IsAlive(node) || plan.state() == v1::Plan::FAILED) continue;
          QVERIFY2(!node.assignment().draining(), qPrintable(where));
          if (world.machine.workflows().empty()) continue;
          const v1::Placement& place = move.phase() == v1::Move::DONE ? move.to() : move.from();
          QVERIFY2(node.has_placement() ? SamePlacement(node.placement(), place)
                                        : move.phase() == v1::Move::REVERTED,
                   qPrintable(where));
        }
        QVERIFY2(world.ReplaysAlike(), qPrintable(where));
      }
    }
    qInfo("%d runs: %d done, %d reverted, %d failed", runs, ends[v1::Plan::DONE],
          ends[v1::Plan::REVERTED], ends[v1::Plan::FAILED]);
    QVERIFY(runs > 100);
    QVERIFY(ends[v1::Plan::DONE] > 20);
    QVERIFY(ends[v1::Plan::REVERTED] > 50);
    QVERIFY(ends[v1::Plan::FAILED] > 10);
  }

  // i0 goes to another pool and f2 of the other set too. Something keeps i2 from going.
  void Plan_OfAPolicyTakesBackOnlyTheMoveInTrouble_data() {
    QTest::addColumn<QString>("fault");
    QTest::newRow("it never drains") << QString("drain");
    QTest::newRow("its model does not load") << QString("load");
    QTest::newRow("it dies before its turn") << QString("death");
  }
  void Plan_OfAPolicyTakesBackOnlyTheMoveInTrouble() {
    QFETCH(QString, fault);
    for (const std::uint32_t version : {2U, 3U}) {
      for (const char* actor : {"operator:test", "policy:test"}) {
        PlanWorld world;
        world.version = version;
        world.actor = actor;
        FillWorld(world);
        for (const char* id : {"f2", "f3", "f4"}) world.Start(id, v1::INSTANCE, "far");
        world.NodesReport();
        QCOMPARE(world.At("f2"), std::string("far a"));
        if (fault == "load") {
          world.Do(WorkflowCommand(MakeWorkflow("other", {"c"})));
          world.NodesReport();
          world.broken_pools.insert("c/wan/tiny");
        }
        std::vector<std::string> in_a;
        for (const char* id : {"i0", "i2", "i4"}) {
          if (world.At(id) == "a") in_a.emplace_back(id);
        }
        QVERIFY(in_a.size() >= 2);
        const std::string bad = in_a[1];
        if (fault == "death") world.config.set_max_moves(1);
        QCOMPARE(Text(world.Begin({PlanWorld::MoveOf("f2", "b"),
                                   PlanWorld::MoveOf(bad, fault == "load" ? "c" : "")})),
                 QString());
        if (fault == "drain") world.holding.insert(bad);
        if (fault == "death") world.Kill(bad);
        QVERIFY(world.RunToTheEnd());
        const bool alone = version >= 3 && world.actor == "policy:test";
        QCOMPARE(world.Last().state(), alone ? v1::Plan::DONE : v1::Plan::REVERTED);
        QCOMPARE(world.Last().moves(0).phase(), alone ? v1::Move::DONE : v1::Move::REVERTED);
        QCOMPARE(world.Last().moves(1).phase(), v1::Move::REVERTED);
        QVERIFY(!alone || !world.Last().moves(1).detail().empty());
        QCOMPARE(world.At("f2"), std::string(alone ? "far b" : "far a"));
        if (fault != "death") QCOMPARE(world.At(bad), std::string("a"));
        QCOMPARE(Text(world.wrong), QString());
        QVERIFY(world.ReplaysAlike());
        if (!alone) continue;
        // Its undo takes back what was done.
        const auto inverse = InversePlan(world.machine, world.Last());
        QVERIFY2(inverse.ok(), inverse.status().ToString().c_str());
        QCOMPARE(inverse->moves_size(), 1);
        QCOMPARE(inverse->moves(0).node_id(), std::string("f2"));
      }
    }
  }

  // A sender that has not said that it goes by the new table holds up the drains of its set only.
  void Plan_WaitsForTheSendersOfItsSetOnly() {
    PlanWorld world;
    world.actor = "policy:test";
    FillWorld(world);
    world.Start("f2", v1::INSTANCE, "far");
    world.NodesReport();
    world.silent.insert("p-default");
    QCOMPARE(world.Begin({PlanWorld::MoveOf("i0", "b"), PlanWorld::MoveOf("f2", "b")}),
             std::string());
    for (int i = 0; i < 10; ++i) world.Tick();
    QCOMPARE(world.Last().moves(0).phase(), v1::Move::DRAINING);
    QCOMPARE(world.Last().moves(1).phase(), v1::Move::DONE);
    QVERIFY(world.RunToTheEnd());
    QCOMPARE(world.Last().state(), v1::Plan::DONE);
    QCOMPARE(world.Last().moves(0).phase(), v1::Move::REVERTED);
    QVERIFY(Text(world.Last().moves(0).detail()).contains("node p-default has not said"));
    QCOMPARE(world.At("i0"), std::string("a"));
    QCOMPARE(Text(world.wrong), QString());
  }

  // Long texts of nodes are cut between characters. No replica could read back a command with half
  // a character.
  void Plan_IsToldInWholeCharacters() {
    PlanWorld world;
    FillWorld(world);
    world.broken_pools.insert("b/wan/tiny");
    world.load_error = "x";
    for (int i = 0; i < 255; ++i) world.load_error += "\xc3\xa9";
    QCOMPARE(world.Begin({PlanWorld::MoveOf("i0", "b")}), std::string());
    QVERIFY(world.RunToTheEnd());
    QCOMPARE(Text(world.wrong), QString());
    QCOMPARE(world.Last().state(), v1::Plan::REVERTED);
    QVERIFY(world.Last().moves(0).detail().find("does not load: x\xc3\xa9") != std::string::npos);
    // The same holds for the text when the revert fails.
    world.broken_pools = {"a/wan/tiny"};
    QCOMPARE(world.Begin({PlanWorld::MoveOf("i2", "b")}, 5), std::string());
    QVERIFY(world.RunToTheEnd());
    QCOMPARE(Text(world.wrong), QString());
    QCOMPARE(world.Last().state(), v1::Plan::FAILED);
  }

  // Two of three instances are to leave. The third dies while the first is on its way.
  void Plan_LeavesThePoolItsMinimumWhenOthersDie() {
    for (const bool comes_back : {false, true}) {
      PlanWorld world;
      FillWorld(world);
      world.config.set_max_moves(1);
      QCOMPARE(world.Begin({PlanWorld::MoveOf("i0", "b"), PlanWorld::MoveOf("i2", "b")}),
               std::string());
      world.Tick();
      QCOMPARE(world.Last().moves(0).phase(), v1::Move::DRAINING);
      world.Kill("i4");
      for (int i = 0; i < 100 && !world.AllEnded(); ++i) {
        world.Tick();
        if (comes_back && i == 10) world.Restart("i4");
        QVERIFY(i > 10 || world.At("i2") == "a");
        QVERIFY(world.machine.Routing("default").routes(0).instances_size() > 0);
      }
      QCOMPARE(world.Last().state(), comes_back ? v1::Plan::DONE : v1::Plan::REVERTED);
      QCOMPARE(world.At("i2"), std::string(comes_back ? "b" : "a"));
      QCOMPARE(Text(world.wrong), QString());
    }
  }

  // The stamps of an earlier leader's clock neither end a phase at once nor make it last for ever.
  void Timers_BearANewLeaderWithAnotherClock() {
    for (const std::int64_t skew_ms : {-3'600'000, 3'600'000}) {
      const auto ticks_in = [&](PlanWorld& world, v1::Plan::State state) {
        world.skew_ms = skew_ms;
        world.ages = StampAges();
        world.ages.Note(world.machine, world.Now());
        int ticks = 0;
        for (; ticks < 100 && world.Last().state() == state; ++ticks) world.Tick();
        return ticks;
      };
      PlanWorld draining;
      FillWorld(draining);
      QCOMPARE(draining.Begin({PlanWorld::MoveOf("i0", "b")}), std::string());
      draining.silent.insert("i0");
      for (int i = 0; i < 5; ++i) draining.Tick();
      QCOMPARE(draining.Last().moves(0).phase(), v1::Move::DRAINING);
      const int drained = ticks_in(draining, v1::Plan::RUNNING);
      QVERIFY2(drained >= 28 && drained <= 32, std::to_string(drained).c_str());
      PlanWorld waiting;
      FillWorld(waiting);
      QCOMPARE(waiting.Begin({PlanWorld::MoveOf("i0", "b")}, 10), std::string());
      for (int i = 0; i < 20 && waiting.Last().state() == v1::Plan::RUNNING; ++i) waiting.Tick();
      QCOMPARE(waiting.Last().state(), v1::Plan::UNCONFIRMED);
      const int waited = ticks_in(waiting, v1::Plan::UNCONFIRMED);
      QVERIFY2(waited >= 9 && waited <= 12, std::to_string(waited).c_str());
    }
  }

  // The leader's own clock is set in the middle of a phase, forth and back.
  void Timers_BearALeaderWhoseClockIsSet() {
    constexpr std::int64_t kDay = 24LL * 3600 * 1000;
    // The step of −5 s makes later stamps equal to earlier ones.
    for (const std::int64_t step_ms : {-365 * kDay, -kDay, std::int64_t{-5000}, kDay, 365 * kDay}) {
      PlanWorld draining;
      FillWorld(draining);
      QCOMPARE(draining.Begin({PlanWorld::MoveOf("i0", "b")}), std::string());
      draining.silent.insert("i0");
      for (int i = 0; i < 5; ++i) draining.Tick();
      QCOMPARE(draining.Last().moves(0).phase(), v1::Move::DRAINING);
      draining.skew_ms = step_ms;
      int ticks = 5;
      for (; ticks < 100 && draining.Last().state() == v1::Plan::RUNNING; ++ticks) draining.Tick();
      QVERIFY2(ticks >= 28 && ticks <= 33, std::to_string(ticks).c_str());
      // Two moves, one before and one after the clock is set: the plan waits since the later one.
      PlanWorld waiting;
      FillWorld(waiting);
      waiting.config.set_max_moves(1);
      QCOMPARE(waiting.Begin({PlanWorld::MoveOf("i0", "b"), PlanWorld::MoveOf("i2", "b")}, 10),
               std::string());
      for (int i = 0; i < 20 && waiting.Last().moves(0).phase() != v1::Move::DONE; ++i)
        waiting.Tick();
      QCOMPARE(waiting.Last().state(), v1::Plan::RUNNING);
      waiting.skew_ms = step_ms;
      for (int i = 0; i < 20 && waiting.Last().state() == v1::Plan::RUNNING; ++i) waiting.Tick();
      QCOMPARE(waiting.Last().state(), v1::Plan::UNCONFIRMED);
      waiting.skew_ms = 0;
      int waited = 0;
      for (; waited < 100 && waiting.Last().state() == v1::Plan::UNCONFIRMED; ++waited)
        waiting.Tick();
      QVERIFY2(waited >= 9 && waited <= 12, std::to_string(waited).c_str());
    }
  }

  // What an instance served in its old set says nothing about the new one.
  void Routes_OfAnotherSetWaitForTheInstance() {
    PlanWorld world;
    FillWorld(world);
    const auto in_far = [&] {
      const v1::RoutingTable table = world.machine.Routing("far");
      return std::ranges::any_of(table.routes(0).instances(), [](const v1::Endpoint& instance) {
        return instance.node_id() == "i0";
      });
    };
    const v1::Assignment now = world.NodeOf("i0").assignment();
    v1::Command assign;
    assign.mutable_assign()->set_base_revision(world.machine.revision());
    v1::NodeAssignment& next = *assign.mutable_assign()->add_assignments();
    next.set_node_id("i0");
    next.set_incarnation(world.NodeOf("i0").incarnation());
    *next.mutable_stage() = now.stage();
    *next.mutable_app_ids() = now.app_ids();
    *next.mutable_models() = now.models();
    next.set_workflow_set("far");
    next.mutable_placement()->set_workflow_set("far");
    next.mutable_placement()->set_pool("a/wan/tiny");
    QCOMPARE(world.Apply(assign).reason(), std::string());
    QVERIFY(!in_far());
    world.NodesReport();
    QVERIFY(in_far());
  }

  void Unconfirmed_GoesBackWhenItsPoolIsGone() {
    PlanWorld world;
    FillWorld(world);
    world.Do(WorkflowCommand(MakeWorkflow("other", {"c"})));
    world.NodesReport();
    const std::string id = world.At("i2") == "a" ? "i2" : "i4";
    QCOMPARE(world.Begin({PlanWorld::MoveOf(id, "c")}, 1000), std::string());
    for (int i = 0; i < 20 && world.Last().state() == v1::Plan::RUNNING; ++i) world.Tick();
    QCOMPARE(world.Last().state(), v1::Plan::UNCONFIRMED);
    v1::Command gone;
    gone.set_delete_workflow("other");
    world.Do(gone);
    QVERIFY(world.RunToTheEnd(20));
    QCOMPARE(world.Last().state(), v1::Plan::REVERTED);
    QCOMPARE(world.At(id), std::string("a"));
    QCOMPARE(Text(world.wrong), QString());
  }

  void Activity_DoesNotGuess() {
    PlanWorld world;
    FillWorld(world);
    v1::NodeRecord record = world.machine.nodes().at("i0");
    v1::NodeLoad load;
    load.set_no_progress_ms(90'000);
    // No job has ended yet, so a job may take this long.
    QCOMPARE(ActivityOf(record, &load), v1::SERVING);
    load.add_stages()->set_jobs(1);
    load.mutable_stages(0)->set_compute_s(1);
    QCOMPARE(ActivityOf(record, &load), v1::STUCK);
    load.mutable_stages(0)->set_compute_s(200);
    QCOMPARE(ActivityOf(record, &load), v1::SERVING);
    load.clear_stages();
    load.set_no_progress_ms(900'000);
    QCOMPARE(ActivityOf(record, &load), v1::STUCK);
    record.mutable_node()->mutable_assignment()->Clear();
    record.mutable_node()->mutable_assignment()->set_removed(true);
    QCOMPARE(ActivityOf(record, nullptr), v1::DRAINING);  // It has said nothing yet.
    load.Clear();
    QCOMPARE(ActivityOf(record, &load), v1::DRAINED);
    load.set_ring_slots_used(1);
    QCOMPARE(ActivityOf(record, &load), v1::DRAINING);
  }

  void Plan_MovesAtMostSoManyAtATime() {
    PlanWorld world;
    FillWorld(world);
    world.config.set_max_moves(1);
    QCOMPARE(world.Begin({PlanWorld::MoveOf("i0", "b"), PlanWorld::MoveOf("i2", "b")}),
             std::string());
    int most = 0;
    for (int i = 0; i < 40 && !world.AllEnded(); ++i) {
      world.Tick();
      int under_way = 0;
      for (const v1::Move& move : world.Last().moves())
        under_way += IsUnderWay(move.phase()) ? 1 : 0;
      most = std::max(most, under_way);
    }
    QCOMPARE(most, 1);
    QCOMPARE(world.Last().state(), v1::Plan::DONE);
  }

  // Without max_moves each pool gives a share of its instances at a time, but at least one.
  void Plan_PoolsTakeTurnsByThemselves_data() {
    QTest::addColumn<double>("share");
    QTest::addColumn<int>("from_a");
    QTest::newRow("a tenth") << 0.1 << 1;
    QTest::newRow("a third of four, rounded down") << 0.34 << 1;
    QTest::newRow("half") << 0.5 << 2;
    QTest::newRow("all") << 1.0 << 3;
  }
  void Plan_PoolsTakeTurnsByThemselves() {
    QFETCH(double, share);
    QFETCH(int, from_a);
    PlanWorld world;
    FillWorld(world);
    for (const char* id : {"i5", "i6"}) world.Start(id, v1::INSTANCE);
    world.NodesReport();
    world.config.set_max_moves(0);
    world.config.set_max_move_share(share);
    std::vector<v1::Move> moves;
    for (const char* id : {"i0", "i2", "i4", "i1", "i3", "i6", "i5"}) {
      const bool a = world.At(id) == "a";
      if (moves.size() < 4 && (a || moves.size() == 3))
        moves.push_back(PlanWorld::MoveOf(id, a ? "b" : "a"));
    }
    QCOMPARE(moves.size(), std::size_t{4});
    QCOMPARE(world.Begin(moves), std::string());
    std::map<std::string, int> most;
    for (int i = 0; i < 60 && !world.AllEnded(); ++i) {
      world.Tick();
      std::map<std::string, int> under_way;
      for (const v1::Move& move : world.Last().moves())
        under_way[move.from().pool()] += IsUnderWay(move.phase()) ? 1 : 0;
      for (const auto& [pool, count] : under_way) most[pool] = std::max(most[pool], count);
      if (i == 0) QCOMPARE(under_way["b/wan/tiny"], 1);  // It does not wait for the other pool.
    }
    QCOMPARE(most["a/wan/tiny"], from_a);
    QCOMPARE(world.Last().state(), v1::Plan::DONE);
    QCOMPARE(Text(world.wrong), QString());
  }

  void Plan_IsRevertedUnlessConfirmed() {
    for (const bool confirm : {false, true}) {
      PlanWorld world;
      FillWorld(world);
      QCOMPARE(world.Begin({PlanWorld::MoveOf("i0", "b")}, 10), std::string());
      for (int i = 0; i < 8; ++i) world.Tick();
      QCOMPARE(world.Last().state(), v1::Plan::UNCONFIRMED);
      if (confirm) QCOMPARE(world.Decide(v1::DecidePlan::CONFIRM), std::string());
      QVERIFY(world.RunToTheEnd());
      QCOMPARE(world.Last().state(), confirm ? v1::Plan::DONE : v1::Plan::REVERTED);
      QCOMPARE(world.At("i0"), std::string(confirm ? "b" : "a"));
    }
  }

  // An instance can finish the work of a set only in that set.
  void Plan_ComesBackFromAnotherSet_DrainsFirst() {
    for (const char* fate : {"", "it dies", "it starts anew", "it never ends"}) {
      PlanWorld world;
      FillWorld(world);
      QCOMPARE(world.Begin({PlanWorld::MoveOf("i2", "a", "far")}, 10), std::string());
      for (int i = 0; i < 8; ++i) world.Tick();
      QCOMPARE(world.Last().state(), v1::Plan::UNCONFIRMED);
      QCOMPARE(world.At("i2"), std::string("far a"));
      world.holding.insert("i2");
      for (int i = 0; i < 20; ++i) world.Tick();
      QCOMPARE(world.Last().moves(0).phase(), v1::Move::REVERTING);
      QCOMPARE(world.At("i2"), std::string("far a"));
      QVERIFY(world.NodeOf("i2").assignment().draining());
      const v1::RoutingTable table = world.machine.Routing("far");
      QCOMPARE(std::count_if(table.alive().begin(), table.alive().end(),
                             [](const v1::Endpoint& node) { return node.node_id() == "i2"; }),
               std::ptrdiff_t{1});
      for (const v1::Route& route : table.routes()) QCOMPARE(route.instances_size(), 1);
      const QString how(fate);
      if (how.isEmpty()) world.holding.clear();
      if (how == "it dies") world.Kill("i2");
      if (how == "it starts anew") world.Restart("i2");
      QVERIFY2(world.RunToTheEnd(), fate);
      QCOMPARE(world.Last().state(), v1::Plan::REVERTED);
      QVERIFY2(SamePlacement(world.NodeOf("i2").placement(), world.Last().moves(0).from()), fate);
      if (how != "it dies") QCOMPARE(world.At("i2"), std::string("a"));
      QCOMPARE(Text(world.wrong), QString());
      QVERIFY(world.ReplaysAlike());
    }
  }

  void Undo_IsTheInverseUnlessSomethingHasMovedSince() {
    PlanWorld world;
    FillWorld(world);
    QCOMPARE(world.Begin({PlanWorld::MoveOf("i0", "a", "far")}), std::string());
    QVERIFY(world.RunToTheEnd());
    QCOMPARE(world.At("i0"), std::string("far a"));
    const v1::Plan first = world.Last();
    const auto inverse = InversePlan(world.machine, first);
    QVERIFY(inverse.ok());
    v1::Command undo;
    *undo.mutable_start_plan()->mutable_plan() = *inverse;
    QCOMPARE(world.Do(undo).reason(), std::string());
    QVERIFY(world.RunToTheEnd());
    QCOMPARE(world.At("i0"), std::string("a"));
    QCOMPARE(
        base::GetReason(InversePlan(world.machine, world.machine.plans().front()).status()).reason,
        std::string("ALREADY_UNDONE"));
    QCOMPARE(world.Begin({PlanWorld::MoveOf("i2", "b")}), std::string());
    QVERIFY(world.RunToTheEnd());
    const v1::Plan second = world.Last();
    QCOMPARE(world.Begin({PlanWorld::MoveOf("i2", "")}), std::string());
    QVERIFY(world.RunToTheEnd());
    QCOMPARE(base::GetReason(InversePlan(world.machine, second).status()).reason,
             std::string("CHANGED_SINCE"));
  }

  void CompletePlan_NamesWhatIsWrong() {
    PlanWorld world;
    FillWorld(world);
    const auto move = [](const char* id, const char* pool, const char* set = "") {
      return PlanWorld::MoveOf(id, pool, set);
    };
    QCOMPARE(world.Begin({}), std::string("NO_MOVES"));
    QCOMPARE(world.Begin({move("i0", "b"), move("i0", "a")}), std::string("NODE_TWICE"));
    QCOMPARE(world.Begin({move("x", "b")}), std::string("NODE_UNKNOWN"));
    QCOMPARE(world.Begin({move("i0", "x")}), std::string("POOL_UNKNOWN"));
    QCOMPARE(world.Begin({move("i0", "a")}), std::string("NOTHING_TO_DO"));
    QCOMPARE(world.Begin({move("i0", "a", "x")}), std::string("WORKFLOW_SET_UNKNOWN"));
    QCOMPARE(world.Begin({move("p-default", "a")}), std::string("NOT_AN_INSTANCE"));
    QCOMPARE(world.Begin({move("f0", "b")}), std::string("BELOW_MINIMUM"));
    QCOMPARE(world.Begin({move("i1", ""), move("i3", "")}), std::string("BELOW_MINIMUM"));
    QCOMPARE(world.Begin({move("i1", "a")}, 0, 1), std::string("STALE_REVISION"));
    world.Kill("i4");
    QCOMPARE(world.Begin({move("i4", "b")}), std::string("NODE_DEAD"));
    world.Start("pinned", v1::INSTANCE, "default", "a");
    QCOMPARE(world.Begin({move("pinned", "b")}), std::string("NODE_PINNED"));
    v1::Workflow gpu = MakeWorkflow("gpu", {"g"});
    gpu.mutable_stages(0)->set_device("cuda");
    world.Do(WorkflowCommand(gpu));
    QCOMPARE(world.Begin({move("i0", "g")}), std::string("NO_DEVICE"));
    QCOMPARE(world.Begin({move("i0", "b")}), std::string());
    QCOMPARE(world.Begin({move("i0", "")}), std::string("NODE_MOVING"));
    // The configuration asks for a device that the stages do not ask for.
    v1::Command limits = LimitsCommand("default", "b/wan/tiny", 0, 0);
    limits.mutable_set_pool_limits()->mutable_limits()->set_device("cuda");
    world.Do(limits);
    QCOMPARE(world.Begin({move("i1", "b")}), std::string("NO_DEVICE"));
  }

  void Plan_RandomRunsEnd() {
    const char* given = std::getenv("ONEPIECE_SEED");
    const std::uint64_t seed =
        given != nullptr ? std::strtoull(given, nullptr, 10) : base::RandomU64();
    qInfo("ONEPIECE_SEED=%llu", static_cast<unsigned long long>(seed));
    std::mt19937_64 random(seed);
    int begun = 0;
    for (int run = 0; run < 40; ++run) {
      PlanWorld world;
      FillWorld(world);
      if (run % 2 == 1) world.actor = "policy:test";
      const char* ids[] = {"i0", "i1", "i2", "i3", "i4", "f0", "f1"};
      for (int i = 0; i < 60; ++i) {
        const std::string id = ids[random() % 7];
        switch (random() % 10) {
          case 0:
          case 1:
            begun += world
                         .Begin({PlanWorld::MoveOf(id,
                                                   random() % 3 == 0   ? ""
                                                   : random() % 2 == 0 ? "a"
                                                                       : "b",
                                                   random() % 3 == 0 ? "far" : "")},
                                static_cast<int>(random() % 2 * 5))
                         .empty();
            break;
          case 2:
            world.Kill(id);
            break;
          case 3:
            world.Restart(id);
            break;
          case 4:
            if (!world.machine.plans().empty())
              world.Decide(static_cast<v1::DecidePlan::Decision>(1 + random() % 2));
            break;
          case 5:
            world.told_epochs.clear();
            break;
          case 6:
            if (random() % 4 == 0) {
              DeleteWorkflow(world);
            } else {
              world.Do(WorkflowCommand(MakeWorkflow("app", {"a", "b"})));
            }
            break;
          default:
            world.Tick();
        }
        QVERIFY2(world.wrong.empty(), world.wrong.c_str());
      }
      QVERIFY(world.RunToTheEnd());
      QVERIFY2(world.wrong.empty(), world.wrong.c_str());
      QVERIFY(world.ReplaysAlike());
    }
    QVERIFY(begun > 50);
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::PlanStepsTest)
#include "plan_steps_test.moc"
