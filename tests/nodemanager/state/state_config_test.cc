// The configuration in the state: what SetConfig takes and refuses, and the history that every
// change of the configuration leaves, by whatever command.
#include <QtTest>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/base/canonical_bytes.h"
#include "cluster/base/ids.h"
#include "nodemanager/state/state_machine.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

constexpr char kPool[] = "a/wan/tiny", kOtherPool[] = "b/wan/tiny";

v1::CommandResult TakeCommand(StateMachine& machine, const v1::Command& command,
                              std::uint32_t version = kCommandVersion) {
  return machine.Apply(machine.applied_index() + 1, command, version);
}

v1::Command ConfigCommand(const v1::ClusterConfig& config, const std::vector<std::string>& sections,
                          std::uint64_t base_revision = 0) {
  v1::Command command;
  command.set_time_unix_ms(5000);
  v1::SetConfig& change = *command.mutable_set_config();
  *change.mutable_config() = config;
  change.mutable_sections()->Add(sections.begin(), sections.end());
  change.set_base_revision(base_revision);
  change.set_actor("operator:ann");
  change.set_reason("because");
  return command;
}

v1::Command SeedCommand(double threshold = 0.5) {
  v1::ClusterConfig config;
  config.mutable_elasticity()->set_threshold(threshold);
  v1::Command command = ConfigCommand(config, {"elasticity", "liveness"});
  command.mutable_set_config()->set_seed(true);
  command.mutable_set_config()->set_actor("files:nm");
  return command;
}

v1::PoolConfig& AddPool(v1::ClusterConfig& config, const std::string& set, const std::string& pool,
                        int least = 0, int most = 0) {
  v1::WorkflowSetConfig* found = nullptr;
  for (v1::WorkflowSetConfig& each : *config.mutable_workflow_sets()) {
    if (each.name() == set) found = &each;
  }
  if (found == nullptr) {
    found = config.add_workflow_sets();
    found->set_name(set);
  }
  v1::PoolConfig& added = *found->add_pools();
  added.set_pool(pool);
  added.set_min_instances(least);
  added.set_max_instances(most);
  return added;
}

v1::Command DeletionCommand(const std::string& app_id) {
  v1::Command command;
  command.set_delete_workflow(app_id);
  return command;
}

// A cluster with the pools kPool and kOtherPool and a configuration.
StateMachine Seeded() {
  StateMachine machine;
  TakeCommand(machine, WorkflowCommand(MakeWorkflow("app", {"a", "b"})));
  TakeCommand(machine, SeedCommand());
  return machine;
}

StateMachine Reread(const StateMachine& machine) {
  StateMachine restored;
  if (!restored.Restore(machine.Serialize()).ok()) qFatal("a state cannot be restored");
  return restored;
}

// Registers an instance and assigns it to kPool. With `pinned`, a plan has placed it there.
void AddInstance(StateMachine& machine, const std::string& id, bool pinned) {
  TakeCommand(machine, RegisterCommand(MakeNode(id, v1::INSTANCE)));
  v1::Command command;
  command.mutable_assign()->set_base_revision(machine.revision());
  v1::NodeAssignment& assignment = *command.mutable_assign()->add_assignments();
  assignment.set_node_id(id);
  assignment.set_incarnation(1);
  *assignment.mutable_stage() = MakeWorkflow("app", {"a"}).stages(0);
  assignment.add_app_ids("app");
  if (pinned) {
    assignment.mutable_placement()->set_pool(kPool);
    assignment.mutable_placement()->set_pinned(true);
  }
  if (TakeCommand(machine, command).code() != 0) qFatal("Assign failed");
}

std::string BytesOf(const google::protobuf::MessageLite& message) {
  return base::CanonicalBytes(message);
}

// What a configuration should be, kept in another way than the state does.
struct Model {
  v1::ClusterConfig settings;
  std::map<std::string, v1::Workflow> workflows;
  std::map<std::pair<std::string, std::string>, v1::PoolConfig> pools;
  std::vector<std::string> history;  // Configurations as bytes, by revision.

  [[nodiscard]] v1::ClusterConfig Config() const {
    v1::ClusterConfig config = settings;
    for (const auto& [id, workflow] : workflows) *config.add_workflows() = workflow;
    for (const auto& [place, pool] : pools) AddPool(config, place.first, place.second) = pool;
    return config;
  }
  [[nodiscard]] std::set<std::string> KnownPools() const {
    std::set<std::string> known;
    for (const auto& [id, workflow] : workflows) {
      for (const v1::StageSpec& stage : workflow.stages())
        known.insert(stage.stage() + "/wan/tiny");
    }
    return known;
  }
  // Takes a random change whole, or says that it must be refused.
  std::string Take(const v1::SetConfig& change) {
    if (change.base_revision() != 0 && change.base_revision() != history.size())
      return "STALE_REVISION";
    Model next = *this;
    for (const std::string& section : change.sections()) {
      if (section == "elasticity") {
        *next.settings.mutable_elasticity() = change.config().elasticity();
        if (!change.config().has_elasticity()) next.settings.clear_elasticity();
      } else if (section == "alerts") {
        *next.settings.mutable_alerts() = change.config().alerts();
      } else if (section == "workflows") {
        next.workflows.clear();
        for (const v1::Workflow& workflow : change.config().workflows())
          next.workflows[workflow.app_id()] = workflow;
      } else if (section == "workflow_sets") {
        next.pools.clear();
        for (const v1::WorkflowSetConfig& set : change.config().workflow_sets()) {
          for (const v1::PoolConfig& pool : set.pools())
            next.pools[{set.name(), pool.pool()}] = pool;
        }
      } else {
        return "BAD_CONFIG";
      }
    }
    const std::set<std::string> known = next.KnownPools();
    for (const auto& [place, pool] : next.pools) {
      const auto before = pools.find(place);
      const bool same = before != pools.end() && BytesOf(before->second) == BytesOf(pool);
      if (!same && !known.contains(place.second)) return "BAD_CONFIG";
      if (pool.max_instances() > 0 && pool.max_instances() < pool.min_instances())
        return "BAD_CONFIG";
    }
    *this = std::move(next);
    return "";
  }
  void Note() {
    const std::string now = BytesOf(Config());
    if (history.empty() || history.back() != now) history.push_back(now);
  }
};

v1::SetConfig RandomChange(std::mt19937_64& random, std::uint64_t revision) {
  v1::ClusterConfig config;
  if (random() % 2 == 0)
    config.mutable_elasticity()->set_threshold(0.25 * static_cast<double>(random() % 3));
  for (std::uint64_t i = 0; i < random() % 3; ++i)
    config.add_alerts()->set_name(absl::StrCat("rule-", random() % 2));
  for (int i = 0; i < 3; ++i) {
    if (random() % 2 == 0) continue;
    const bool turned = random() % 4 == 0;  // The order of stages matters.
    *config.add_workflows() =
        MakeWorkflow(absl::StrCat("app-", 2 - i), turned ? std::vector<std::string>{"b", "a"}
                                                         : std::vector<std::string>{"a", "b"});
  }
  for (const char* set : {"far", "default"}) {
    for (const char* pool : {kOtherPool, kPool}) {
      if (random() % 3 != 0) continue;
      AddPool(config, set, random() % 10 == 0 ? "c/wan/tiny" : pool, static_cast<int>(random() % 3),
              static_cast<int>(1 + random() % 4));
    }
  }
  std::vector<std::string> sections;
  for (const char* section : {"elasticity", "alerts", "workflow_sets", "workflows"}) {
    if (random() % 2 == 0) sections.emplace_back(section);
  }
  if (sections.empty()) sections.emplace_back(random() % 2 == 0 ? "elasticity" : "colours");
  const std::uint64_t base = random() % 4 == 0 ? revision - random() % 2 : 0;
  return ConfigCommand(config, sections, base).set_config();
}

}  // namespace

class StateConfigTest : public QObject {
  Q_OBJECT
 private:
  using MakeChange = std::function<void(v1::SetConfig&)>;
  static void Row(const char* name, const char* section, const MakeChange& make, const char* reason,
                  const char* says) {
    v1::SetConfig change = ConfigCommand({}, {section}).set_config();
    make(change);
    QTest::newRow(name) << QByteArray::fromStdString(change.SerializeAsString()) << QString(reason)
                        << QString(says);
  }
  static void AddBadSections() {
    Row(
        "no section", "workflows", [](auto& c) { c.clear_sections(); }, "BAD_CONFIG", "sections");
    Row(
        "unknown section", "colours", [](auto&) {}, "BAD_CONFIG", "'colours'");
    Row(
        "one section of two is unknown", "elasticity", [](auto& c) { c.add_sections("x"); },
        "BAD_CONFIG", "'x'");
    Row(
        "stale", "elasticity", [](auto& c) { c.set_base_revision(7); }, "STALE_REVISION", "7");
    Row(
        "long actor", "elasticity", [](auto& c) { c.set_actor(std::string(600, 'x')); },
        "TEXT_TOO_LONG", "600 bytes");
    Row(
        "no app id", "workflows", [](auto& c) { c.mutable_config()->add_workflows(); },
        "BAD_CONFIG", "app_id");
    Row(
        "workflow twice", "workflows",
        [](auto& c) {
          for (int i = 0; i < 2; ++i)
            *c.mutable_config()->add_workflows() = MakeWorkflow("app", {"a"});
        },
        "BAD_CONFIG", "workflows[app]");
  }
  static void AddBadPools() {
    const auto pool = [&](const char* name, const std::string& set, const std::string& id,
                          int least, int most, const char* says) {
      Row(
          name, "workflow_sets",
          [=](v1::SetConfig& c) { AddPool(*c.mutable_config(), set, id, least, most); },
          "BAD_CONFIG", says);
    };
    pool("no set name", "", kPool, 1, 2, "workflow_sets[].name");
    pool("no pool", "default", "", 1, 2, ".pool");
    pool("unknown pool", "default", "c/wan/tiny", 1, 2, "the pools are a/wan/tiny, b/wan/tiny");
    pool("crossed", "default", kPool, 3, 2, "max_instances");
    pool("negative", "default", kPool, -1, 0, "min_instances");
    pool("below the workflows", "default", kOtherPool, 0, 1, "below the minimum of 2");
    Row(
        "pool twice", "workflow_sets",
        [](auto& c) {
          AddPool(*c.mutable_config(), "default", kPool, 1, 2);
          AddPool(*c.mutable_config(), "default", kPool, 1, 3);
        },
        "BAD_CONFIG", "twice");
    Row(
        "set twice", "workflow_sets",
        [](auto& c) {
          for (int i = 0; i < 2; ++i) c.mutable_config()->add_workflow_sets()->set_name("far");
        },
        "BAD_CONFIG", "workflow_sets[far]");
    Row(
        "pool of a workflow that goes", "workflow_sets",
        [](auto& c) {
          c.add_sections("workflows");
          AddPool(*c.mutable_config(), "default", kPool, 1, 2);
        },
        "BAD_CONFIG", "there are no pools");
    Row(
        "below use", "workflow_sets",
        [](auto& c) { AddPool(*c.mutable_config(), "default", kPool, 1, 2); }, "BELOW_USE",
        "3 instances");
  }
  static void AddTooMuch() {
    Row(
        "large settings", "alerts",
        [](auto& c) {
          c.mutable_config()->add_alerts()->set_text(
              std::string(StateMachine::kMaxSettingsBytes, 'x'));
        },
        "STATE_FULL", "alerts");
    Row(
        "large workflows", "workflows",
        [](auto& c) {
          *c.mutable_config()->add_workflows() = MakeWorkflow("app", {"a"});
          c.mutable_config()->mutable_workflows(0)->set_display_name(
              std::string(StateMachine::kMaxBytes, 'x'));
        },
        "STATE_FULL", "bytes");
    Row(
        "too many workflows", "workflows",
        [](auto& c) {
          for (std::size_t i = 0; i <= StateMachine::kMaxWorkflows; ++i)
            c.mutable_config()->add_workflows()->set_app_id(absl::StrCat("app-", i));
        },
        "TOO_MANY_WORKFLOWS", "1024");
    Row(
        "too many pools", "workflow_sets",
        [](auto& c) {
          for (std::size_t i = 0; i <= StateMachine::kMaxPoolLimits; ++i)
            AddPool(*c.mutable_config(), absl::StrCat("set-", i), kPool, 1, 4);
        },
        "TOO_MANY_LIMITS", "1024");
  }

 private Q_SLOTS:
  void Versions_AreThoseThatKnowThem() {
    QCOMPARE(VersionOf(SeedCommand()), 4u);
    v1::Command limits = LimitsCommand("default", kPool, 1, 2);
    QCOMPARE(VersionOf(limits), 2u);
    limits.mutable_set_pool_limits()->mutable_limits()->set_device("cuda");
    QCOMPARE(VersionOf(limits), 4u);
    StateMachine machine;
    TakeCommand(machine, WorkflowCommand(MakeWorkflow("app", {"a"})), 3);
    QCOMPARE(machine.VersionLimit(SeedCommand()), 3u);
    const auto refused = machine.CheckConfig(SeedCommand().set_config());
    QCOMPARE(base::GetReason(refused.status()).reason, std::string("FEATURE_LEVEL"));
    QVERIFY(base::Message(refused.status()).find("onepiece cluster upgrade") != std::string::npos);
  }

  void Level3_KeepsNoRevisions() {
    StateMachine machine;
    TakeCommand(machine, WorkflowCommand(MakeWorkflow("app", {"a"})), 3);
    TakeCommand(machine, LimitsCommand("default", kPool, 1, 2), 3);
    QCOMPARE(machine.config_revision(), std::uint64_t{0});
    // From level 4 on the first revision is the seed, which covers what came before.
    TakeCommand(machine, WorkflowCommand(MakeWorkflow("two", {"a"})));
    QCOMPARE(machine.config_revision(), std::uint64_t{0});
    TakeCommand(machine, SeedCommand());
    QCOMPARE(machine.config_revision(), std::uint64_t{1});
    QCOMPARE(machine.config_revisions().back().config().workflows_size(), 2);
  }

  void Seed_ComesOnce() {
    StateMachine machine = Seeded();
    QCOMPARE(machine.config_revision(), std::uint64_t{1});
    QCOMPARE(machine.config_revisions().back().author(), std::string("files:nm"));
    QCOMPARE(machine.Config().elasticity().threshold(), 0.5);
    const std::uint64_t revision = machine.revision();
    QCOMPARE(TakeCommand(machine, SeedCommand(0.9)).code(), 0);
    QCOMPARE(machine.Config().elasticity().threshold(), 0.5);
    QCOMPARE(machine.revision(), revision);
    // An empty seed is a configuration too.
    StateMachine empty;
    v1::Command seed = SeedCommand();
    seed.mutable_set_config()->mutable_config()->Clear();
    TakeCommand(empty, seed);
    QCOMPARE(empty.config_revision(), std::uint64_t{1});
  }

  void SetConfig_ReplacesWholeSections() {
    StateMachine machine = Seeded();
    v1::ClusterConfig config;
    config.mutable_elasticity()->set_window_s(60);
    config.add_alerts()->set_name("rule");
    AddPool(config, "default", kPool, 1, 3).set_device("cuda");
    const std::uint64_t plan_revision = machine.plan_revision();
    QCOMPARE(TakeCommand(machine, ConfigCommand(config, {"elasticity", "workflow_sets"})).code(),
             0);
    QCOMPARE(machine.config_revision(), std::uint64_t{2});
    QCOMPARE(machine.Config().elasticity().threshold(), 0.0);
    QCOMPARE(machine.Config().elasticity().window_s(), 60.0);
    QCOMPARE(machine.Config().alerts_size(), 0);  // It was not named.
    QCOMPARE(machine.Config().workflows_size(), 1);
    const v1::PoolLimits& limits = machine.pool_limits().at({"default", kPool});
    QCOMPARE(limits.max_instances(), 3);
    QCOMPARE(limits.device(), std::string("cuda"));
    QVERIFY(machine.plan_revision() > plan_revision);
    QCOMPARE(machine.audit().back().action(), std::string("set_config"));
    QCOMPARE(machine.audit().back().detail(), std::string("operator:ann: because"));
    const v1::ConfigRevision& made = machine.config_revisions().back();
    QCOMPARE(made.time_unix_ms(), 5000);
    QCOMPARE(BytesOf(made.config()), BytesOf(machine.Config()));
    // A section that is named and empty is emptied.
    TakeCommand(machine, ConfigCommand({}, {"elasticity", "workflow_sets"}));
    QVERIFY(!machine.Config().has_elasticity());
    QVERIFY(machine.pool_limits().empty());
  }

  void Workflows_ComeAndGoAsByTheirOwnCommands() {
    StateMachine machine = Seeded();
    const std::uint64_t revision = machine.revision();
    v1::ClusterConfig config;
    *config.add_workflows() = MakeWorkflow("two", {"a"});
    QCOMPARE(TakeCommand(machine, ConfigCommand(config, {"workflows"})).code(), 0);
    QVERIFY(!machine.workflows().contains("app"));
    QCOMPARE(machine.workflows().at("two").workflow().name(), std::string("workflows/two"));
    QVERIFY(machine.workflows().at("two").revision() > revision);
    QCOMPARE(machine.deletions().back().app_id(), std::string("app"));
    QVERIFY(machine.epoch() > 0);
  }

  void Limits_AreASectionLikeOthers() {
    StateMachine machine;
    TakeCommand(machine, SeedCommand());
    v1::ClusterConfig config;
    config.mutable_limits()->mutable_proxies()->set_max_jobs_in_flight(7);
    QCOMPARE(TakeCommand(machine, ConfigCommand(config, {"limits"})).code(), 0);
    QCOMPARE(machine.settings().limits().proxies().max_jobs_in_flight(), 7);
    QCOMPARE(machine.settings().elasticity().threshold(), 0.5);
    // What the history has is what the state would say.
    QCOMPARE(machine.config_revisions().back().config().SerializeAsString(),
             machine.Config().SerializeAsString());
    StateMachine restored;
    QVERIFY(restored.Restore(machine.Serialize()).ok());
    QCOMPARE(restored.settings().limits().proxies().max_jobs_in_flight(), 7);
    QCOMPARE(TakeCommand(machine, ConfigCommand({}, {"limits"})).code(), 0);
    QVERIFY(!machine.Config().has_limits());
  }

  void NothingChanged_MakesNoRevision() {
    StateMachine machine = Seeded();
    v1::ClusterConfig config = machine.Config();
    const std::uint64_t revision = machine.revision();
    QCOMPARE(TakeCommand(machine, ConfigCommand(config, {"elasticity", "workflows"})).code(), 0);
    *config.add_workflow_sets() = v1::WorkflowSetConfig();
    config.mutable_workflow_sets(0)->set_name("default");
    AddPool(config, "default", kPool);  // It says nothing.
    QCOMPARE(TakeCommand(machine, ConfigCommand(config, {"workflow_sets"})).code(), 0);
    QCOMPARE(TakeCommand(machine, WorkflowCommand(MakeWorkflow("app", {"a", "b"}))).code(), 0);
    QCOMPARE(machine.config_revision(), std::uint64_t{1});
    QCOMPARE(machine.revision(), revision);
    *config.mutable_workflows(0) = MakeWorkflow("app", {"b", "a"});
    TakeCommand(machine, ConfigCommand(config, {"workflows"}));
    QCOMPARE(machine.config_revision(), std::uint64_t{2});
  }

  void OtherCommands_MakeRevisionsToo() {
    StateMachine machine = Seeded();
    TakeCommand(machine, WorkflowCommand(MakeWorkflow("two", {"a"})));
    QCOMPARE(machine.config_revisions().back().reason(), std::string("ApplyWorkflow two"));
    TakeCommand(machine, DeletionCommand("two"));
    QCOMPARE(machine.config_revisions().back().reason(), std::string("DeleteWorkflow two"));
    TakeCommand(machine, LimitsCommand("default", kPool, 1, 2));
    QCOMPARE(machine.config_revisions().back().author(), std::string("operator:ann"));
    TakeCommand(machine, LimitsCommand("default", kPool, 1, 2));
    QCOMPARE(machine.config_revision(), std::uint64_t{4});
    QCOMPARE(machine.Config().workflow_sets(0).pools(0).max_instances(), 2);
    TakeCommand(machine, LimitsCommand("default", kPool, 0, 0));
    QCOMPARE(machine.Config().workflow_sets_size(), 0);
    QCOMPARE(machine.config_revision(), std::uint64_t{5});
  }

  void SetPoolLimits_KeepsTheDevice() {
    StateMachine machine = Seeded();
    v1::ClusterConfig config;
    AddPool(config, "default", kPool).set_device_memory_bytes(1 << 30);
    TakeCommand(machine, ConfigCommand(config, {"workflow_sets"}));
    TakeCommand(machine, LimitsCommand("default", kPool, 1, 2));
    TakeCommand(machine, LimitsCommand("default", kPool, 0, 0));
    const v1::PoolConfig pool = machine.Config().workflow_sets(0).pools(0);
    QCOMPARE(pool.device_memory_bytes(), 1 << 30);
    QCOMPARE(pool.max_instances(), 0);
  }

  void BadInput_ChangesNothing_data() {
    QTest::addColumn<QByteArray>("change");
    QTest::addColumn<QString>("reason");
    QTest::addColumn<QString>("says");
    AddBadSections();
    AddBadPools();
    AddTooMuch();
  }
  void BadInput_ChangesNothing() {
    QFETCH(const QByteArray, change);
    QFETCH(const QString, reason);
    QFETCH(const QString, says);
    StateMachine machine;
    v1::Workflow workflow = MakeWorkflow("app", {"a", "b"});
    workflow.mutable_stages(1)->set_min_instances(2);
    TakeCommand(machine, WorkflowCommand(workflow));
    TakeCommand(machine, SeedCommand());
    AddInstance(machine, "i", /*pinned=*/true);
    AddInstance(machine, "j", /*pinned=*/true);
    AddInstance(machine, "k", /*pinned=*/false);
    StateMachine untouched = machine;
    v1::Command command;
    QVERIFY(command.mutable_set_config()->ParseFromString(change.toStdString()));
    const v1::CommandResult result = TakeCommand(machine, command);
    QCOMPARE(QString::fromStdString(result.reason()), reason);
    QVERIFY2(QString::fromStdString(result.message()).contains(says), result.message().c_str());
    TakeCommand(untouched,
                DeletionCommand("nobody"));  // It is refused. The indices are equal then.
    QCOMPARE(machine.Serialize(), untouched.Serialize());
  }

  void BelowUse_IsAboutWhatIsLowered() {
    StateMachine machine = Seeded();
    v1::ClusterConfig config;
    AddPool(config, "default", kPool, 1, 1);
    TakeCommand(machine, ConfigCommand(config, {"workflow_sets"}));
    for (const char* id : {"i", "j"}) AddInstance(machine, id, /*pinned=*/false);
    // The maximum that was exceeded before may be applied again, and another section too.
    QCOMPARE(TakeCommand(machine, ConfigCommand(config, {"workflow_sets"})).code(), 0);
    QCOMPARE(TakeCommand(machine, ConfigCommand({}, {"elasticity"})).code(), 0);
    // Without limits the workflows decide, and they may not go below use either.
    v1::Workflow workflow = MakeWorkflow("app", {"a", "b"});
    workflow.mutable_stages(0)->set_max_instances(1);
    config.Clear();
    *config.add_workflows() = workflow;
    QCOMPARE(TakeCommand(machine, ConfigCommand({}, {"workflow_sets"})).code(), 0);
    const auto result = TakeCommand(machine, ConfigCommand(config, {"workflows"}));
    QCOMPARE(result.reason(), std::string("BELOW_USE"));
    TakeCommand(machine, EndCommand("j"));
    QCOMPARE(TakeCommand(machine, ConfigCommand(config, {"workflows"})).code(), 0);
  }

  // `config get` gives what `config set` takes, even when a workflow was deleted since.
  void LimitsOfAPoolThatIsGone_MayBeAppliedAgain() {
    StateMachine machine = Seeded();
    v1::ClusterConfig config;
    AddPool(config, "default", kPool, 1, 3);
    TakeCommand(machine, ConfigCommand(config, {"workflow_sets"}));
    TakeCommand(machine, DeletionCommand("app"));
    config = machine.Config();
    QCOMPARE(config.workflow_sets_size(), 1);
    QCOMPARE(TakeCommand(machine, ConfigCommand(config, {"workflow_sets"})).code(), 0);
    config.mutable_workflow_sets(0)->mutable_pools(0)->set_max_instances(4);
    QCOMPARE(TakeCommand(machine, ConfigCommand(config, {"workflow_sets"})).reason(),
             std::string("BAD_CONFIG"));
  }

  void Requests_AreRemembered() {
    StateMachine machine = Seeded();
    v1::ClusterConfig config;
    config.mutable_elasticity()->set_window_s(60);
    v1::Command command = ConfigCommand(config, {"elasticity"}, 1);
    command.set_request_id("r");
    QCOMPARE(TakeCommand(machine, command).code(), 0);
    QCOMPARE(TakeCommand(machine, command).code(), 0);  // Not stale: it is the same request.
    QCOMPARE(machine.config_revision(), std::uint64_t{2});
  }

  void History_IsBounded() {
    StateMachine machine = Seeded();
    v1::ClusterConfig config;
    for (std::size_t i = 0; i < StateMachine::kMaxConfigRevisions + 5; ++i) {
      config.mutable_elasticity()->set_window_s(10.0 + static_cast<double>(i));
      TakeCommand(machine, ConfigCommand(config, {"elasticity"}));
    }
    QCOMPARE(machine.config_revisions().size(), StateMachine::kMaxConfigRevisions);
    QCOMPARE(machine.config_revision(), std::uint64_t{1} + StateMachine::kMaxConfigRevisions + 5);
    // Half of the bytes that may be kept: no third one fits.
    for (const char c : {'x', 'y', 'z'}) {
      config.Clear();
      *config.add_workflows() = MakeWorkflow("app", {"a", "b"});
      config.mutable_workflows(0)->set_display_name(
          std::string(StateMachine::kMaxConfigHistoryBytes / 2 - 2000, c));
      QCOMPARE(TakeCommand(machine, ConfigCommand(config, {"workflows"})).code(), 0);
    }
    QCOMPARE(machine.config_revisions().size(), std::size_t{2});
    QCOMPARE(Reread(machine).Serialize(), machine.Serialize());
    // One that alone is too large is in the state, but not in the history.
    config.mutable_workflows(0)->set_display_name(
        std::string(StateMachine::kMaxConfigHistoryBytes, 'x'));
    QCOMPARE(TakeCommand(machine, ConfigCommand(config, {"workflows"})).code(), 0);
    QVERIFY(!machine.config_revisions().back().has_config());
    QCOMPARE(machine.Config().workflows(0).display_name().size(),
             StateMachine::kMaxConfigHistoryBytes);
    // A restored state drops the same ones.
    StateMachine other = Reread(machine);
    config.mutable_workflows(0)->set_display_name("x");
    for (StateMachine* each : {&machine, &other})
      TakeCommand(*each, ConfigCommand(config, {"workflows"}));
    QCOMPARE(other.Serialize(), machine.Serialize());
  }

  void RandomChanges_DoWhatAModelDoes() {
    const char* given = std::getenv("ONEPIECE_SEED");
    const std::uint64_t seed =
        given != nullptr ? std::strtoull(given, nullptr, 10) : base::RandomU64();
    qInfo("ONEPIECE_SEED=%llu", static_cast<unsigned long long>(seed));
    std::mt19937_64 random(seed);
    Model model;
    StateMachine machine = Seeded(), second = Seeded();
    model.settings.mutable_elasticity()->set_threshold(0.5);
    model.workflows["app"] = MakeWorkflow("app", {"a", "b"});
    model.Note();
    int refused = 0, taken = 0;
    for (int i = 0; i < 2000; ++i) {
      v1::Command command;
      *command.mutable_set_config() = RandomChange(random, machine.config_revision());
      std::string expected;
      if (random() % 4 == 0) {
        const v1::Workflow workflow = MakeWorkflow("app-0", {"a"});
        command = WorkflowCommand(workflow);
        model.workflows["app-0"] = workflow;
      } else {
        expected = model.Take(command.set_config());
      }
      model.Note();
      const v1::CommandResult result = TakeCommand(machine, command);
      (expected.empty() ? taken : refused) += 1;
      QCOMPARE(result.reason(), expected);
      QCOMPARE(BytesOf(machine.Config()), BytesOf(model.Config()));
      QCOMPARE(machine.config_revision(), std::uint64_t{model.history.size()});
      QCOMPARE(BytesOf(TakeCommand(second, command)), BytesOf(result));
      if (i % 100 == 0) second = Reread(second);
      if (i % 10 == 0) QCOMPARE(second.Serialize(), machine.Serialize());
    }
    for (const v1::ConfigRevision& kept : machine.config_revisions())
      QCOMPARE(BytesOf(kept.config()), model.history.at(kept.revision() - 1));
    QVERIFY(refused > 100 && taken > 100);
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::StateConfigTest)
#include "state_config_test.moc"
