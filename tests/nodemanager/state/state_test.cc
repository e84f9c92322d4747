#include <QElapsedTimer>
#include <QtTest>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/base/canonical_bytes.h"
#include "cluster/base/generation.h"
#include "cluster/base/ids.h"
#include "nodemanager/state/state_machine.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

v1::CommandResult ApplyNext(StateMachine& machine, const v1::Command& command) {
  return machine.Apply(machine.applied_index() + 1, command);
}

v1::Command AssignCommand(const StateMachine& machine, const std::string& id,
                          const v1::StageSpec& stage, const std::string& app_id) {
  v1::Command command;
  command.mutable_assign()->set_base_revision(machine.revision());
  v1::NodeAssignment& assignment = *command.mutable_assign()->add_assignments();
  assignment.set_node_id(id);
  assignment.set_incarnation(1);
  *assignment.mutable_stage() = stage;
  assignment.add_app_ids(app_id);
  return command;
}

// Assigns to "i" a pool of these applications, with the model of each.
v1::Command AssignPool(const StateMachine& machine, const std::vector<std::string>& app_ids,
                       const std::vector<std::string>& models) {
  v1::Command command = AssignCommand(machine, "i", MakeWorkflow("", {"a"}).stages(0), "");
  v1::NodeAssignment& assignment = *command.mutable_assign()->mutable_assignments(0);
  assignment.mutable_app_ids()->Clear();
  assignment.mutable_app_ids()->Add(app_ids.begin(), app_ids.end());
  assignment.mutable_models()->Add(models.begin(), models.end());
  return command;
}

// The sets that the random commands name.
const std::vector<std::string> kSets = {"default", "far"};

// Without their epochs.
std::map<std::string, std::string> TablesOf(const StateMachine& machine) {
  std::map<std::string, std::string> tables;
  for (const std::string& set : kSets) {
    v1::RoutingTable table = machine.Routing(set);
    table.clear_epoch();
    tables[set] = base::CanonicalBytes(table);
  }
  return tables;
}

std::map<std::string, std::uint64_t> EpochsOf(const StateMachine& machine) {
  std::map<std::string, std::uint64_t> epochs;
  for (const std::string& set : kSets) epochs[set] = machine.EpochOf(set);
  return epochs;
}

// The applications that have an instance in some route: "one two".
QString Routed(const StateMachine& machine) {
  QStringList apps;
  const v1::RoutingTable table = machine.Routing("default");
  for (const v1::Route& route : table.routes()) {
    if (route.instances_size() > 0) apps << QString::fromStdString(route.app_id());
  }
  return apps.join(' ');
}

}  // namespace

class StateTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Apply_ReplayGivesTheSameBytesAndSnapshotsAreExact() {
    const char* given = std::getenv("ONEPIECE_SEED");
    const std::uint64_t seed =
        given != nullptr ? std::strtoull(given, nullptr, 10) : base::RandomU64();
    qInfo("ONEPIECE_SEED=%llu", static_cast<unsigned long long>(seed));
    std::mt19937_64 random(seed);
    StateMachine first, second;
    for (int i = 0; i < 2000; ++i) {
      const v1::Command command = RandomCommand(random, first);
      const std::uint64_t revision = first.revision(), epoch = first.epoch();
      const v1::CommandResult result = ApplyNext(first, command);
      QVERIFY(first.revision() >= revision && first.epoch() >= epoch);
      QCOMPARE(base::CanonicalBytes(ApplyNext(second, command)), base::CanonicalBytes(result));
      if (i % 100 == 0) {
        StateMachine restored;
        QVERIFY(restored.Restore(second.Serialize()).ok());
        second = restored;
      }
      if (i % 10 == 0) QCOMPARE(second.Serialize(), first.Serialize());
    }
    QCOMPARE(second.Serialize(), first.Serialize());
    QVERIFY(first.epoch() > 10);
  }

  void Apply_RoutingChangesOnlyWithTheEpoch() {
    std::mt19937_64 random(7);
    StateMachine machine;
    std::string table = machine.Routing("default").SerializeAsString();
    std::uint64_t epoch = machine.epoch();
    std::set<v1::Move::Phase> phases;
    for (int i = 0; i < 10000; ++i) {
      ApplyNext(machine, RandomCommand(random, machine));
      for (const v1::Plan& plan : machine.plans()) {
        for (const v1::Move& move : plan.moves()) phases.insert(move.phase());
      }
      const std::string now = machine.Routing("default").SerializeAsString();
      if (machine.epoch() == epoch) QCOMPARE(now, table);
      table = now;
      epoch = machine.epoch();
    }
    QCOMPARE(phases.size(), std::size_t{7});  // The random commands reach all seven phases.
  }

  // The tables themselves say which sets have changed.
  void Apply_CountsTheEpochsOfTheSetsThatChange() {
    const char* given = std::getenv("ONEPIECE_SEED");
    const std::uint64_t seed =
        given != nullptr ? std::strtoull(given, nullptr, 10) : base::RandomU64();
    qInfo("ONEPIECE_SEED=%llu", static_cast<unsigned long long>(seed));
    std::mt19937_64 random(seed);
    const std::uint64_t switches = 1000;  // From version 2 to 3.
    StateMachine machine;
    int alone = 0;
    for (std::uint64_t i = 0; i < 4000; ++i) {
      const std::uint64_t epoch = machine.epoch();
      const std::map<std::string, std::string> before = TablesOf(machine);
      const std::map<std::string, std::uint64_t> epochs_before = EpochsOf(machine);
      // A set is counted apart from its first change on, so each gets one.
      v1::Command command = RandomCommand(random, machine);
      if (const std::uint64_t number = i - switches; number < kSets.size()) {
        v1::Node node = MakeNode(absl::StrCat("of-", kSets[number]), v1::PROXY);
        node.set_workflow_set(kSets[number]);
        command = RegisterCommand(node);
      }
      machine.Apply(i + 1, command, i < switches ? 2 : 3);
      const std::map<std::string, std::string> after = TablesOf(machine);
      const bool counts_itself =
          command.has_assign() || command.has_advance_move() || command.has_decide_plan();
      if (!counts_itself) QCOMPARE(machine.epoch(), epoch + (before == after ? 0 : 1));
      for (const auto& [set, now] : EpochsOf(machine)) {
        QVERIFY(now >= epochs_before.at(set) && now <= machine.epoch());
        if (i < switches) QCOMPARE(now, machine.epoch());
        if (before.at(set) != after.at(set)) QVERIFY(now > epochs_before.at(set));
        if (i > switches && before != after && before.at(set) == after.at(set) && !counts_itself &&
            now == epochs_before.at(set))
          ++alone;
      }
      if (i % 100 == 0) {
        StateMachine restored;
        QVERIFY(restored.Restore(machine.Serialize()).ok());
        QCOMPARE(EpochsOf(restored), EpochsOf(machine));
      }
    }
    // Sets are counted apart: many changes of one have left the other alone.
    QVERIFY2(alone > 100, std::to_string(alone).c_str());
  }

  // Its senders say by the epoch of their table that they know.
  void Draining_CountsTheEpochOfItsSet() {
    StateMachine machine;
    ApplyNext(machine, WorkflowCommand(MakeWorkflow("app", {"a"})));
    ApplyNext(machine, RegisterCommand(MakeNode("i", v1::INSTANCE)));
    ApplyNext(machine, AssignCommand(machine, "i", MakeWorkflow("", {"a"}).stages(0), "app"));
    v1::Plan plan;
    plan.set_actor("operator:ann");
    plan.add_moves()->set_node_id("i");
    ApplyNext(machine, StartPlanCommand(plan));
    const std::string id = machine.plans().back().plan_id();
    ApplyNext(machine, AdvanceCommand(id, "i", v1::Move::PENDING, v1::Move::DRAINING));
    const v1::Assignment& assignment = machine.nodes().at("i").node().assignment();
    QVERIFY(assignment.draining());
    QCOMPARE(machine.EpochOf("default"), assignment.epoch());
    QCOMPARE(machine.Routing("default").epoch(), assignment.epoch());
  }

  void SetNodeStates_AppliesEachByItself() {
    StateMachine machine;
    for (const char* id : {"p", "q"}) ApplyNext(machine, RegisterCommand(MakeNode(id, v1::PROXY)));
    v1::Command command;
    for (const char* id : {"p", "nobody", "q"}) {
      *command.mutable_set_node_states()->add_changes() =
          StateCommand(id, v1::Node::READY).set_node_state();
    }
    QCOMPARE(ApplyNext(machine, command).reason(), std::string("NODE_UNKNOWN"));
    QCOMPARE(machine.Routing("default").proxies_size(), 2);
    QCOMPARE(machine.EpochOf("default"), machine.epoch());
  }

  void Apply_SameRequestIdHasOneEffect() {
    StateMachine machine;
    const v1::Command command = RegisterCommand(MakeNode("p", v1::PROXY), "id-1");
    const v1::CommandResult first = ApplyNext(machine, command);
    ApplyNext(machine, EndCommand("p"));
    const std::uint64_t revision = machine.revision();
    const v1::CommandResult again = ApplyNext(machine, command);
    QCOMPARE(again.SerializeAsString(), first.SerializeAsString());
    QCOMPARE(machine.revision(), revision);
    QVERIFY(!IsAlive(machine.nodes().at("p").node()));
    const v1::CommandResult other =
        ApplyNext(machine, RegisterCommand(MakeNode("q", v1::PROXY), "id-1"));
    QCOMPARE(other.reason(), std::string("REQUEST_ID_REUSED"));
    QVERIFY(!machine.nodes().contains("q"));
  }

  void BeginGeneration_LeapsOverWhatTheLostFutureCanHaveCounted() {
    std::mt19937_64 random(11);
    StateMachine machine;
    for (int i = 0; i < 500; ++i) ApplyNext(machine, RandomCommand(random, machine));
    StateMachine lost = machine, twin = machine;
    const std::uint64_t plan_revision = machine.plan_revision();
    QCOMPARE(VersionOf(BeginGenerationCommand(1)), 3U);
    QCOMPARE(ApplyNext(machine, BeginGenerationCommand(1)).code(), 0);
    QCOMPARE(ApplyNext(twin, BeginGenerationCommand(1)).code(), 0);
    QCOMPARE(twin.Serialize(), machine.Serialize());
    QCOMPARE(machine.feature_level(), kCommandVersion);
    QCOMPARE(machine.epoch(), base::FirstEpochOf(1));
    QCOMPARE(machine.Routing("default").epoch(), machine.epoch());
    v1::Command revoke;
    revoke.mutable_revoke_certificate()->set_serial("0123456789abcdef");
    QCOMPARE(ApplyNext(lost, revoke).code(), 0);
    for (int i = 0; i < 3000; ++i) ApplyNext(lost, RandomCommand(random, lost));
    // Nodes that have heard of the lost revocation take the restored table all the same.
    QVERIFY(machine.identity().epoch() > lost.identity().epoch());
    QVERIFY(machine.epoch() > lost.epoch());
    // Every watcher of the lost future takes a snapshot, and no plan id of it comes again.
    QVERIFY(machine.history_floor() > lost.revision());
    QVERIFY(machine.plan_revision() > std::max(plan_revision, lost.plan_revision()));
    const v1::AuditEntry& told = machine.audit().back();
    QCOMPARE(told.action(), std::string("begin_generation"));
    QCOMPARE(told.subject(), std::string("restore"));
    QCOMPARE(told.detail(), std::string("generation 1: slot 7"));
    // The generation goes on as any other does.
    StateMachine restored;
    QVERIFY(restored.Restore(machine.Serialize()).ok());
    for (int i = 0; i < 500; ++i) {
      const v1::Command command = RandomCommand(random, machine);
      ApplyNext(machine, command);
      ApplyNext(restored, command);
    }
    QCOMPARE(restored.Serialize(), machine.Serialize());
    QVERIFY(machine.epoch() > base::FirstEpochOf(1));
    QCOMPARE(base::GenerationOf(machine.epoch()), 1U);
  }

  void BeginGeneration_OnlyGrows() {
    StateMachine machine;
    QCOMPARE(ApplyNext(machine, BeginGenerationCommand(0)).reason(),
             std::string("STALE_GENERATION"));
    QCOMPARE(ApplyNext(machine, BeginGenerationCommand(3)).code(), 0);
    const std::uint64_t epoch = machine.epoch(), revision = machine.revision();
    for (const std::uint32_t stale : {0U, 1U, 3U, base::kMaxGeneration + 1}) {
      QCOMPARE(ApplyNext(machine, BeginGenerationCommand(stale)).reason(),
               std::string("STALE_GENERATION"));
    }
    QCOMPARE(machine.epoch(), epoch);
    QCOMPARE(machine.revision(), revision);
    QCOMPARE(ApplyNext(machine, BeginGenerationCommand(base::kMaxGeneration)).code(), 0);
  }

  void Apply_BoundsTheAudit() {
    StateMachine machine;
    for (std::size_t i = 0; i < StateMachine::kMaxAudit + 50; ++i)
      ApplyNext(machine, RegisterCommand(MakeNode("p", v1::PROXY, i + 1)));
    QCOMPARE(machine.audit().size(), StateMachine::kMaxAudit);
  }

  void Requests_AreForgottenByAgeAndNumber() {
    RememberedRequests requests;
    const auto id = [](int i) {
      return absl::StrCat("00000000-0000-0000-0000-", 100000000000 + i);
    };
    int added = 0;
    const auto add = [&](std::int64_t time) {
      v1::RememberedRequest request;
      request.set_request_id(id(added++));
      request.set_fingerprint(0xffffffff);
      request.mutable_result()->set_revision(1'000'000);
      request.mutable_result()->set_epoch(1'000'000);
      request.set_time_unix_ms(time);
      requests.Add(std::move(request));
    };
    const std::int64_t begin = 1'800'000'000'000;
    for (std::size_t i = 0; i < RememberedRequests::kMinRequests; ++i) add(begin);
    const std::string first = id(0);
    std::int64_t time = begin;
    while (time < begin + RememberedRequests::kKeptMs) add(time += RememberedRequests::kMaxGapMs);
    QVERIFY(requests.Find(first).has_value());
    add(time + 1);
    QVERIFY(!requests.Find(first).has_value());
    QCOMPARE(requests.size(), RememberedRequests::kMinRequests);
    for (std::size_t i = 0; i < RememberedRequests::kMaxRequests + 10; ++i) add(begin);
    QCOMPARE(requests.size(), RememberedRequests::kMaxRequests);
    const int oldest = added - static_cast<int>(RememberedRequests::kMaxRequests);
    QVERIFY(!requests.Find(id(oldest - 1)).has_value());
    for (int i = oldest; i < added; ++i) {
      const auto found = requests.Find(id(i));
      QVERIFY(found.has_value());
      QCOMPARE(found->request_id(), id(i));
    }
    v1::NodeManagerState state;
    QVERIFY(state.ParseFromString(std::string(requests.fields())));
    QCOMPARE(state.requests_size(), static_cast<int>(RememberedRequests::kMaxRequests));
    for (int i = 0; i < state.requests_size(); ++i)
      QCOMPARE(state.requests(i).request_id(), id(oldest + i));
  }

  // Neither a leader's clock that is set nor another leader's clock makes requests forgotten that
  // may still be retried.
  void Requests_AreNotForgottenBecauseAClockJumps() {
    RememberedRequests requests;
    std::size_t added = 0;
    const auto add = [&](std::int64_t time) {
      v1::RememberedRequest request;
      request.set_request_id(absl::StrCat(added++));
      request.set_time_unix_ms(time);
      requests.Add(std::move(request));
    };
    const std::int64_t year = 365LL * 24 * 3600 * 1000, begin = 1'800'000'000'000;
    for (std::size_t i = 0; i < 2 * RememberedRequests::kMinRequests; ++i) add(begin);
    for (const std::int64_t time : {begin + year, begin - year, begin, begin + year / 365,
                                    std::numeric_limits<std::int64_t>::max(),
                                    std::numeric_limits<std::int64_t>::min(), begin})
      add(time);
    QCOMPARE(requests.size(), added);
    QVERIFY(requests.Find("0").has_value());
  }

  void Requests_AtTheirBoundCostLittle() {
    StateMachine machine;
    v1::Command command = RegisterCommand(MakeNode("p", v1::PROXY, 1));
    const auto apply = [&](std::size_t i) {
      command.set_request_id(absl::StrCat("00000000-0000-0000-0000-", 100000000000 + i));
      command.set_time_unix_ms(1'800'000'000'000);
      ApplyNext(machine, command);
    };
    QElapsedTimer timer;
    timer.start();
    for (std::size_t i = 0; i < 2000; ++i) apply(i);
    const double empty_us = static_cast<double>(timer.nsecsElapsed()) / 2e6;
    for (std::size_t i = 0; i < RememberedRequests::kMaxRequests; ++i) apply(2000 + i);
    timer.start();
    for (std::size_t i = 0; i < 2000; ++i) apply(100000 + i);
    const double full_us = static_cast<double>(timer.nsecsElapsed()) / 2e6;
    timer.start();
    const std::string bytes = machine.Serialize();
    qInfo("Apply: %.1f us with few remembered, %.1f us at the bound; snapshot %.1f MiB in %lld ms",
          empty_us, full_us, static_cast<double>(bytes.size()) / (1 << 20), timer.elapsed());
    QVERIFY(bytes.size() < std::size_t{8} << 20);
  }

  void State_RefusesMoreThanASnapshotMayHave() {
    StateMachine machine;
    int applied = 0;
    const auto big = [](int i) {
      v1::Workflow workflow = MakeWorkflow(absl::StrCat("app-", i), {"a"});
      workflow.mutable_stages(0)->set_model(std::string(4 << 20, 'x'));
      return WorkflowCommand(workflow);
    };
    while (applied < 20 && ToStatus(ApplyNext(machine, big(applied))).ok()) ++applied;
    QCOMPARE(applied, 9);
    const std::string full = machine.Serialize();
    QVERIFY(full.size() < StateMachine::kMaxBytes);
    StateMachine restored;
    QVERIFY(restored.Restore(full).ok());
    for (StateMachine* each : {&machine, &restored}) {
      const v1::CommandResult refused = ApplyNext(*each, big(10));
      QCOMPARE(refused.reason(), std::string("STATE_FULL"));
      v1::Node node = MakeNode("p", v1::PROXY);
      node.set_detail(std::string(4 << 20, 'x'));
      QCOMPARE(ApplyNext(*each, RegisterCommand(node)).reason(), std::string("STATE_FULL"));
      QVERIFY(ToStatus(ApplyNext(*each, RegisterCommand(MakeNode("q", v1::PROXY)))).ok());
      v1::Command remove;
      remove.set_delete_workflow("app-0");
      QVERIFY(ToStatus(ApplyNext(*each, remove)).ok());
      QVERIFY(ToStatus(ApplyNext(*each, big(10))).ok());
    }
    QCOMPARE(machine.Serialize(), restored.Serialize());
  }

  void RegisterNode_NewIncarnationReplacesTheOldOne() {
    StateMachine machine;
    ApplyNext(machine, RegisterCommand(MakeNode("p", v1::PROXY, 5)));
    ApplyNext(machine, StateCommand("p", v1::Node::READY, 0, 5));
    QCOMPARE(machine.Routing("default").proxies_size(), 1);
    const std::uint64_t epoch = machine.epoch();
    ApplyNext(machine, RegisterCommand(MakeNode("p", v1::PROXY, 6)));
    QVERIFY(machine.epoch() > epoch);
    QCOMPARE(machine.Routing("default").proxies_size(), 0);
    QCOMPARE(machine.Routing("default").alive(0).incarnation(), std::uint64_t{6});
    QCOMPARE(ApplyNext(machine, RegisterCommand(MakeNode("p", v1::PROXY, 5))).reason(),
             std::string("STALE_INCARNATION"));
    QCOMPARE(ApplyNext(machine, StateCommand("p", v1::Node::READY, 0, 5)).reason(),
             std::string("STALE_INCARNATION"));
    QCOMPARE(ApplyNext(machine, EndCommand("p", 5)).reason(), std::string("STALE_INCARNATION"));
    QCOMPARE(ApplyNext(machine, EndCommand("unknown")).reason(), std::string("NODE_UNKNOWN"));
  }

  void RegisterNode_DeadIncarnationMustNotComeBack() {
    StateMachine machine;
    ApplyNext(machine, RegisterCommand(MakeNode("p", v1::PROXY, 5)));
    ApplyNext(machine, EndCommand("p", 5));
    QCOMPARE(ApplyNext(machine, RegisterCommand(MakeNode("p", v1::PROXY, 5))).reason(),
             std::string("STALE_INCARNATION"));
    QCOMPARE(ApplyNext(machine, RegisterCommand(MakeNode("p", v1::PROXY, 6))).code(), 0);
  }

  void Routing_HasAnInstanceOnlyWhenItServesItsAssignment() {
    StateMachine machine;
    const v1::Workflow workflow = MakeWorkflow("app", {"a", "b"});
    ApplyNext(machine, WorkflowCommand(workflow));
    ApplyNext(machine, RegisterCommand(MakeNode("i", v1::INSTANCE)));
    const v1::CommandResult assigned =
        ApplyNext(machine, AssignCommand(machine, "i", workflow.stages(0), "app"));
    QCOMPARE(assigned.code(), 0);
    ApplyNext(machine, StateCommand("i", v1::Node::READY, assigned.epoch() - 1));
    QCOMPARE(machine.Routing("default").routes(0).instances_size(), 0);
    const std::uint64_t epoch = machine.epoch();
    ApplyNext(machine, StateCommand("i", v1::Node::READY, assigned.epoch()));
    QCOMPARE(machine.Routing("default").routes(0).instances_size(), 1);
    QCOMPARE(machine.Routing("default").routes(1).instances_size(), 0);
    QCOMPARE(machine.Routing("other").alive_size(), 0);
    QVERIFY(machine.epoch() > epoch);
    ApplyNext(machine, EndCommand("i"));
    QCOMPARE(machine.Routing("default").routes(0).instances_size(), 0);
    QVERIFY(!machine.nodes().at("i").node().has_assignment());
  }

  void Routing_OfAPoolHasTheApplicationsThatAreServed() {
    StateMachine machine;
    for (const char* app : {"one", "two"})
      ApplyNext(machine, WorkflowCommand(MakeWorkflow(app, {"a"})));
    ApplyNext(machine, RegisterCommand(MakeNode("i", v1::INSTANCE)));
    const auto ready = [&](std::uint64_t epoch, const std::vector<std::string>& apps) {
      v1::Command command = StateCommand("i", v1::Node::READY, epoch);
      auto& served = *command.mutable_set_node_state()->mutable_served_app_ids();
      served.Add(apps.begin(), apps.end());
      ApplyNext(machine, command);
    };
    const auto first = ApplyNext(machine, AssignPool(machine, {"one"}, {"x"})).epoch();
    ready(first, {});
    QCOMPARE(Routed(machine), QString("one"));
    // A second application joins the pool. The first one is served meanwhile.
    const auto second = ApplyNext(machine, AssignPool(machine, {"one", "two"}, {"x", "y"})).epoch();
    QCOMPARE(machine.nodes().at("i").node().assignment().models(1), std::string("y"));
    QCOMPARE(Routed(machine), QString("one"));
    ready(first, {"one"});  // This report was on its way when the assignment came.
    QCOMPARE(Routed(machine), QString("one"));
    ready(second, {"one"});  // The second one's model cannot be loaded.
    QCOMPARE(Routed(machine), QString("one"));
    ready(second, {"one", "two"});
    QCOMPARE(Routed(machine), QString("one two"));
    // The first application's model is replaced.
    ApplyNext(machine, AssignPool(machine, {"one", "two"}, {"z", "y"}));
    QCOMPARE(Routed(machine), QString("two"));
    ApplyNext(machine, AssignPool(machine, {"one"}, {"z"}));
    QCOMPARE(Routed(machine), QString());
    // With another stage nothing is kept, whatever an old report says.
    v1::Command other = AssignPool(machine, {"one", "two"}, {"z", "y"});
    other.mutable_assign()->mutable_assignments(0)->mutable_stage()->set_stage("b");
    ApplyNext(machine, other);
    ready(second, {"one", "two"});
    QCOMPARE(Routed(machine), QString());
  }

  void Restore_TakesAnAssignmentOfBeforeThereWereSeveralModels() {
    StateMachine machine;
    ApplyNext(machine, WorkflowCommand(MakeWorkflow("one", {"a"})));
    ApplyNext(machine, RegisterCommand(MakeNode("i", v1::INSTANCE)));
    const auto epoch = ApplyNext(machine, AssignPool(machine, {"one"}, {})).epoch();
    ApplyNext(machine, StateCommand("i", v1::Node::READY, epoch));
    StateMachine restored;
    QVERIFY(restored.Restore(machine.Serialize()).ok());
    QCOMPARE(Routed(restored), QString("one"));
    // The old assignment meant the stage's model. An assignment that names it takes nothing away.
    ApplyNext(restored, AssignPool(restored, {"one"}, {"tiny"}));
    QCOMPARE(Routed(restored), QString("one"));
  }

  void Assign_MadeForAnotherRevisionIsRefused() {
    StateMachine machine;
    ApplyNext(machine, RegisterCommand(MakeNode("i", v1::INSTANCE)));
    const v1::Command command =
        AssignCommand(machine, "i", MakeWorkflow("app", {"a"}).stages(0), "app");
    ApplyNext(machine, RegisterCommand(MakeNode("j", v1::INSTANCE)));
    QCOMPARE(ApplyNext(machine, command).reason(), std::string("STALE_REVISION"));
    QVERIFY(!machine.nodes().at("i").node().has_assignment());
  }

  // Since version 3 an assignment outlives what nodes report, but not what it was computed from.
  void Assign_FailsOnlyWhenWhatItReadHasChanged_data() {
    QTest::addColumn<std::function<void(StateMachine&)>>("between");
    QTest::addColumn<QString>("reason");
    const auto row = [](const char* name, const QString& reason, const v1::Command& command) {
      QTest::newRow(name) << std::function<void(StateMachine&)>([command](StateMachine& m) {
        ApplyNext(m, command);
      }) << reason;
    };
    row("a report of the node", "", StateCommand("i", v1::Node::READY));
    row("a report of another node", "", StateCommand("j", v1::Node::READY));
    row("a node comes", "STALE_REVISION", RegisterCommand(MakeNode("k", v1::INSTANCE)));
    row("a node goes", "STALE_REVISION", EndCommand("j"));
    row("a workflow", "STALE_REVISION", WorkflowCommand(MakeWorkflow("other", {"a"})));
    row("limits", "STALE_REVISION", LimitsCommand("default", "a/wan/tiny", 1, 0));
    for (const char* id : {"i", "j"}) {
      QTest::newRow(id[0] == 'i' ? "another assignment of the node" : "one of another node")
          << std::function<void(StateMachine&)>([id](StateMachine& m) {
               ApplyNext(m, AssignCommand(m, id, MakeWorkflow("app", {"b"}).stages(0), "app"));
             })
          << QString(id[0] == 'i' ? "STALE_REVISION" : "");
    }
  }
  void Assign_FailsOnlyWhenWhatItReadHasChanged() {
    QFETCH(std::function<void(StateMachine&)>, between);
    QFETCH(QString, reason);
    StateMachine machine;
    for (const char* id : {"i", "j"})
      ApplyNext(machine, RegisterCommand(MakeNode(id, v1::INSTANCE)));
    v1::Command command = AssignCommand(machine, "i", MakeWorkflow("app", {"a"}).stages(0), "app");
    command.mutable_assign()->set_base_plan_revision(machine.plan_revision());
    between(machine);
    QCOMPARE(ApplyNext(machine, command).reason(), reason.toStdString());
  }

  // What a pool needs of a device matters to who places instances, not to those that serve.
  void Assign_OfOtherMemoryLeavesTheRoutesAloneSinceVersion3() {
    for (const std::uint32_t version : {2U, 3U}) {
      StateMachine machine;
      const auto apply = [&](const v1::Command& command) {
        return machine.Apply(machine.applied_index() + 1, command, version);
      };
      apply(WorkflowCommand(MakeWorkflow("one", {"a"})));
      apply(RegisterCommand(MakeNode("i", v1::INSTANCE)));
      const auto epoch = apply(AssignPool(machine, {"one"}, {"tiny"})).epoch();
      apply(StateCommand("i", v1::Node::READY, epoch));
      QCOMPARE(Routed(machine), QString("one"));
      v1::Command more = AssignPool(machine, {"one"}, {"tiny"});
      more.mutable_assign()->mutable_assignments(0)->mutable_stage()->set_device_memory_bytes(1);
      QCOMPARE(apply(more).code(), 0);
      QCOMPARE(Routed(machine), QString(version == 2 ? "" : "one"));
    }
  }

  void Assign_OfVersion2FailsWhenAnythingHasChanged() {
    StateMachine machine;
    const auto apply = [&](const v1::Command& command) {
      return machine.Apply(machine.applied_index() + 1, command, 2).reason();
    };
    apply(RegisterCommand(MakeNode("i", v1::INSTANCE)));
    v1::Command command = AssignCommand(machine, "i", MakeWorkflow("app", {"a"}).stages(0), "app");
    command.mutable_assign()->set_base_plan_revision(machine.plan_revision());
    apply(StateCommand("i", v1::Node::READY));
    QCOMPARE(apply(command), std::string("STALE_REVISION"));
  }

  void DeleteWorkflow_LeavesABoundedTrace() {
    StateMachine machine;
    for (std::size_t i = 0; i < StateMachine::kMaxDeletions + 3; ++i) {
      ApplyNext(machine, WorkflowCommand(MakeWorkflow("app", {"a"})));
      v1::Command command;
      command.set_delete_workflow("app");
      QCOMPARE(ApplyNext(machine, command).code(), 0);
      QCOMPARE(ApplyNext(machine, command).reason(), std::string("WORKFLOW_UNKNOWN"));
      QCOMPARE(machine.history_floor(),
               std::uint64_t{0});  // Applying the workflow again forgets its deletion.
      if (i == 3) break;
    }
    for (std::size_t i = 0; i < StateMachine::kMaxDeletions + 3; ++i) {
      v1::Command command;
      command.set_delete_workflow(absl::StrCat("app-", i));
      ApplyNext(machine, WorkflowCommand(MakeWorkflow(command.delete_workflow(), {"a"})));
      ApplyNext(machine, command);
    }
    QCOMPARE(machine.deletions().size(), StateMachine::kMaxDeletions);
    QVERIFY(machine.history_floor() > 0);
    QVERIFY(machine.history_floor() < machine.deletions().front().revision());
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::StateTest)
#include "state_test.moc"
