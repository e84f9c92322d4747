// Tests ConfigService over a real state machine, log and controller.
#include <QtTest>
#include <functional>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/nodemanager/service/config_world.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

v1::Workflow ValidWorkflow(const std::string& app_id) {
  v1::Workflow workflow = MakeWorkflow(app_id, {"a", "b"});
  workflow.mutable_stages(1)->add_after("a");
  return workflow;
}

QStringList Paths(const google::protobuf::RepeatedPtrField<v1::ConfigChange>& changes) {
  QStringList paths;
  for (const v1::ConfigChange& change : changes) paths << QString::fromStdString(change.path());
  return paths;
}

v1::ClusterConfig Threshold(double threshold) {
  v1::ClusterConfig config;
  config.mutable_elasticity()->set_threshold(threshold);
  return config;
}

}  // namespace

class ConfigServiceTest : public QObject {
  Q_OBJECT
 private:
  using MakeRequest = std::function<void(v1::ApplyConfigRequest&, v1::ClusterConfig&)>;
  static void Row(const char* name, const char* field, const MakeRequest& make,
                  const char* reason = "BAD_CONFIG") {
    v1::ApplyConfigRequest request;
    request.set_actor("operator:ann");
    make(request, *request.mutable_config());
    QTest::newRow(name) << QByteArray::fromStdString(request.SerializeAsString()) << QString(reason)
                        << QString(field);
  }
  static void AddBadSections() {
    Row("nothing", "sections", [](auto&, auto&) {});
    Row("unknown section", "sections", [](auto& r, auto&) { r.add_sections("colours"); });
    Row(
        "no actor", "actor",
        [](auto& r, auto& c) {
          r.clear_actor();
          c = Threshold(0.7);
        },
        "NO_ACTOR");
    Row("threshold", "elasticity.threshold", [](auto&, auto& c) { c = Threshold(7); });
    Row("not a number", "elasticity.threshold",
        [](auto&, auto& c) { c = Threshold(std::numeric_limits<double>::quiet_NaN()); });
    Row("contradiction", "elasticity.low_threshold", [](auto&, auto& c) {
      c = Threshold(0.5);
      c.mutable_elasticity()->set_low_threshold(0.6);
    });
    Row("policy", "elasticity.policy",
        [](auto&, auto& c) { c.mutable_elasticity()->set_policy("magic"); });
    Row("reports too rare", "liveness.report_interval_ms", [](auto&, auto& c) {
      c.mutable_liveness()->set_report_interval_ms(2000);
      c.mutable_liveness()->set_dead_after_ms(3000);
    });
    Row("largest interval", "liveness.report_interval_ms", [](auto&, auto& c) {
      c.mutable_liveness()->set_report_interval_ms(std::numeric_limits<int>::max());
    });
    Row("forget", "liveness.forget_after_s",
        [](auto&, auto& c) { c.mutable_liveness()->set_forget_after_s(-1); });
    Row("no jobs", "limits.proxies.max_jobs_in_flight",
        [](auto&, auto& c) { c.mutable_limits()->mutable_proxies()->set_max_jobs_in_flight(-1); });
    Row("share", "limits.proxies.admission_share",
        [](auto&, auto& c) { c.mutable_limits()->mutable_proxies()->set_admission_share(1.5); });
    Row("share that is none", "limits.proxies.admission_share", [](auto&, auto& c) {
      c.mutable_limits()->mutable_proxies()->set_admission_share(
          std::numeric_limits<double>::quiet_NaN());
    });
    Row("a call every minute", "limits.callers.calls_per_s",
        [](auto&, auto& c) { c.mutable_limits()->mutable_callers()->set_calls_per_s(1. / 60); });
    Row("calls that are none", "limits.callers.calls_burst", [](auto&, auto& c) {
      c.mutable_limits()->mutable_callers()->set_calls_burst(
          std::numeric_limits<double>::quiet_NaN());
    });
    Row("one call", "limits.callers.calls_under_way",
        [](auto&, auto& c) { c.mutable_limits()->mutable_callers()->set_calls_under_way(1); });
    // It would lock out the nodes of one host, and whoever could take it back.
    Row("one connection", "limits.callers.connections",
        [](auto&, auto& c) { c.mutable_limits()->mutable_callers()->set_connections(1); });
    Row("connections without end", "limits.callers.connections_per_s", [](auto&, auto& c) {
      c.mutable_limits()->mutable_callers()->set_connections_per_s(1e300);
    });
    Row("budget", "limits.databases.budget_bytes", [](auto&, auto& c) {
      c.mutable_limits()->mutable_databases()->set_budget_bytes(
          std::numeric_limits<std::int64_t>::max());
    });
    Row("tombstones", "limits.databases.tombstone_ttl_s",
        [](auto&, auto& c) { c.mutable_limits()->mutable_databases()->set_tombstone_ttl_s(-1); });
    Row("workflow", "workflows[app].stages[0].stage", [](auto&, auto& c) {
      *c.add_workflows() = ValidWorkflow("app");
      c.mutable_workflows(0)->mutable_stages(0)->set_stage("A b");
    });
  }
  static void AddBadPools() {
    Row("set name", "workflow_sets[].name",
        [](auto&, auto& c) { c.add_workflow_sets()->set_name("a b"); });
    const auto pool = [&](const char* name, const std::string& field, const auto& make) {
      Row(name, absl::StrCat("workflow_sets[default].pools[a/wan/tiny].", field).c_str(),
          [&](auto&, auto& c) {
            c.add_workflow_sets()->set_name("default");
            v1::PoolConfig& added = *c.mutable_workflow_sets(0)->add_pools();
            added.set_pool("a/wan/tiny");
            make(added);
          });
    };
    pool("least", "min_instances", [](auto& p) { p.set_min_instances(-1); });
    pool("most", "max_instances", [](auto& p) { p.set_max_instances(100'000); });
    pool("crossed", "max_instances", [](auto& p) {
      p.set_min_instances(3);
      p.set_max_instances(2);
    });
    pool("device", "device", [](auto& p) { p.set_device("abacus"); });
    pool("memory", "device_memory_bytes", [](auto& p) { p.set_device_memory_bytes(-1); });
    Row("unknown pool", "workflow_sets[default].pools[c/wan/tiny].pool", [](auto&, auto& c) {
      c.add_workflow_sets()->set_name("default");
      v1::PoolConfig& added = *c.mutable_workflow_sets(0)->add_pools();
      added.set_pool("c/wan/tiny");
      added.set_max_instances(1);
    });
  }
  static void AddBadAlerts() {
    const auto alert = [&](const char* name, const char* field, const auto& make) {
      Row(name, field, [&](auto&, auto& c) {
        v1::AlertRule& rule = *c.add_alerts();
        rule.set_name("a");
        rule.set_watches("node-dead");
        rule.set_text("x");
        make(c, rule);
      });
    };
    alert("rule name", "alerts[A b].name", [](auto&, auto& r) { r.set_name("A b"); });
    alert("rule twice", "alerts[a].name",
          [](auto& c, auto& r) { *c.add_alerts() = v1::AlertRule(r); });
    alert("rule severity", "alerts[a].severity", [](auto&, auto& r) { r.set_severity("bad"); });
    alert("rule for", "alerts[a].for", [](auto&, auto& r) { r.set_for_("5 minutes"); });
    alert("rule both", "alerts[a].below", [](auto&, auto& r) {
      r.set_above(1);
      r.set_below(2);
    });
    alert("rule condition", "alerts[a].watches", [](auto&, auto& r) { r.set_watches("node-ded"); });
    alert("rule series", "alerts[a].watches", [](auto&, auto& r) {
      r.set_watches("node/*/utilisation");
      r.set_above(0.9);
    });
    alert("rule text", "alerts[a].text", [](auto&, auto& r) { r.set_text("{node}"); });
  }

 private Q_SLOTS:
  void init() {
    world_ = std::make_unique<ConfigWorld>(LeaderFiles{.workflows = {ValidWorkflow("app")}});
  }
  void cleanup() { world_.reset(); }

  void NewCluster_HasTheConfigurationOfItsFiles() {
    const auto first = world_->Get();
    QVERIFY(first.ok());
    QCOMPARE(first->revision(), std::uint64_t{1});
    QCOMPARE(first->author(), std::string("files:nm-1"));
    QCOMPARE(first->config().elasticity().policy(), std::string("static"));
    QCOMPARE(first->config().liveness().dead_after_ms(), 3000);
    QCOMPARE(first->config().workflows(0).app_id(), std::string("app"));
    QVERIFY(Paths(first->changes()).contains("elasticity.policy"));
    v1::Cluster cluster;
    world_->controller().Read(
        [&](const StateMachine& state) { cluster.set_config_revision(state.config_revision()); });
    QCOMPARE(cluster.config_revision(), std::uint64_t{1});
  }

  void ApplyConfig_SaysWhatChanges() {
    v1::ApplyConfigRequest request;
    *request.mutable_config() = Threshold(0.7);
    request.mutable_config()->mutable_elasticity()->set_policy("static");
    request.set_validate_only(true);
    const auto dry = world_->Apply(request);  // It needs no actor.
    QVERIFY2(dry.ok(), base::Message(dry.status()).c_str());
    QCOMPARE(dry->revision(), std::uint64_t{1});
    QVERIFY(Paths(dry->changes()).contains("elasticity.threshold"));
    QVERIFY(!Paths(dry->changes()).contains("elasticity.policy"));
    QCOMPARE(world_->Get()->revision(), std::uint64_t{1});
    request.set_validate_only(false);
    request.set_actor("operator:ann");
    request.set_reason("because");
    const auto applied = world_->Apply(request);
    QVERIFY(applied.ok());
    QCOMPARE(applied->revision(), std::uint64_t{2});
    QCOMPARE(Paths(applied->changes()), Paths(dry->changes()));
    const auto now = world_->Get();
    QCOMPARE(now->reason(), std::string("because"));
    QCOMPARE(now->config().elasticity().threshold(), 0.7);
    QCOMPARE(now->config().workflows_size(), 1);
    // The same again changes nothing.
    const auto again = world_->Apply(request);
    QCOMPARE(again->revision(), std::uint64_t{2});
    QCOMPARE(again->changes_size(), 0);
  }

  void ApplyConfig_OfAKnownRequestIsAnsweredAlike() {
    v1::ApplyConfigRequest request;
    *request.mutable_config() = Threshold(0.7);
    request.set_actor("operator:ann");
    request.set_base_revision(1);
    request.set_request_id("r");
    QCOMPARE(world_->Apply(request)->revision(), std::uint64_t{2});
    QCOMPARE(world_->Apply(request)->revision(), std::uint64_t{2});  // Its base is stale by now.
    request.set_request_id("s");
    QCOMPARE(Reason(world_->Apply(request).status()), std::string("STALE_REVISION"));
  }

  void Rollback_IsAnotherRevision() {
    const v1::ClusterConfig first = world_->Get()->config();
    QVERIFY(world_->Apply(Threshold(0.7)).ok());
    QVERIFY(world_->Apply(world_->Get(1)->config()).ok());
    QCOMPARE(world_->Get()->revision(), std::uint64_t{3});
    QCOMPARE(world_->Get()->config().SerializeAsString(), first.SerializeAsString());
  }

  void Revisions_AreListedInPages() {
    for (const double threshold : {0.5, 0.6, 0.7, 0.8})
      QVERIFY(world_->Apply(Threshold(threshold)).ok());
    std::vector<std::uint64_t> seen;
    std::string token;
    do {
      const auto page = world_->List(2, token);
      QVERIFY(page.ok());
      for (const v1::ConfigRevision& revision : page->revisions()) {
        seen.push_back(revision.revision());
        QVERIFY(!revision.has_config());
        QVERIFY(revision.changes_size() > 0);
      }
      token = page->next_page_token();
    } while (!token.empty());
    QCOMPARE(seen, (std::vector<std::uint64_t>{5, 4, 3, 2, 1}));
    const auto newest = world_->List(1);
    QCOMPARE(newest->revisions(0).changes(0).path(), std::string("elasticity.threshold"));
    QCOMPARE(newest->revisions(0).changes(0).before(), std::string("0.7"));
    QCOMPARE(Reason(world_->List(-1).status()), std::string("BAD_PAGE_SIZE"));
    QCOMPARE(Reason(world_->List(1, "after:x").status()), std::string("BAD_PAGE_TOKEN"));
    QCOMPARE(Reason(world_->Get(6).status()), std::string("REVISION_UNKNOWN"));
  }

  void OldRevisions_AreForgotten() {
    for (std::size_t i = 0; i <= StateMachine::kMaxConfigRevisions; ++i)
      QVERIFY(world_->Apply(Threshold(0.5 + 0.001 * static_cast<double>(i))).ok());
    QCOMPARE(Reason(world_->Get(1).status()), std::string("REVISION_UNKNOWN"));
    const auto page = world_->List(1000);
    QCOMPARE(page->revisions_size(), static_cast<int>(StateMachine::kMaxConfigRevisions));
    // Nobody knows what came before the oldest one.
    QCOMPARE(page->revisions(page->revisions_size() - 1).changes_size(), 0);
  }

  void BadInput_IsRefusedAndNamed_data() {
    QTest::addColumn<QByteArray>("request");
    QTest::addColumn<QString>("reason");
    QTest::addColumn<QString>("field");
    AddBadSections();
    AddBadPools();
    AddBadAlerts();
  }
  void BadInput_IsRefusedAndNamed() {
    QFETCH(const QByteArray, request);
    QFETCH(const QString, reason);
    QFETCH(const QString, field);
    v1::ApplyConfigRequest apply;
    QVERIFY(apply.ParseFromString(request.toStdString()));
    const std::uint64_t applied = world_->controller().counters().applied;
    const absl::Status status = world_->Apply(apply).status();
    QVERIFY2(status.code() == absl::StatusCode::kInvalidArgument, base::Message(status).c_str());
    const base::ErrorReason found = base::GetReason(status);
    QCOMPARE(QString::fromStdString(found.reason), reason);
    QCOMPARE(QString::fromStdString(found.metadata.at("field")), field);
    QCOMPARE(world_->Get()->revision(), std::uint64_t{1});
    QCOMPARE(world_->controller().counters().applied, applied);
  }

  void BelowUse_IsRefused() {
    for (const char* id : {"i", "j", "k", "l"})
      QVERIFY(world_->Propose(RegisterCommand(MakeNode(id, v1::INSTANCE))).ok());
    v1::ClusterConfig config;
    config.add_workflow_sets()->set_name("default");
    v1::PoolConfig& pool = *config.mutable_workflow_sets(0)->add_pools();
    pool.set_pool("a/wan/tiny");
    pool.set_max_instances(1);
    const absl::Status status = world_->Apply(config).status();
    QCOMPARE(Reason(status), std::string("BELOW_USE"));
    QCOMPARE(base::GetReason(status).metadata.at("in_use"), std::string("2"));
    pool.set_max_instances(2);
    QVERIFY(world_->Apply(config).ok());
  }

  void UnknownSeries_NamesTheNearest() {
    v1::ClusterConfig config;
    v1::AlertRule& rule = *config.add_alerts();
    rule.set_name("a");
    rule.set_text("x");
    rule.set_watches("node/*/utilisation");
    rule.set_above(0.9);
    const std::string message = base::Message(world_->Apply(config).status());
    QVERIFY2(message.find("did you mean 'utilization'") != std::string::npos, message.c_str());
    rule.set_watches("node/*/utilization");
    QVERIFY(world_->Apply(config).ok());
  }

  void Workflows_AreChangedBySomebody() {
    v1::Command command;
    *command.mutable_apply_workflow() = ValidWorkflow("two");
    command.set_actor("operator:ann");
    command.set_reason("a second one");
    QVERIFY(world_->Propose(command).ok());
    QCOMPARE(world_->Get()->author(), std::string("operator:ann"));
    QCOMPARE(world_->Get()->reason(), std::string("a second one"));
    command.set_delete_workflow("two");
    command.set_reason("");
    QVERIFY(world_->Propose(command).ok());
    QCOMPARE(world_->Get()->author(), std::string("operator:ann"));
    QCOMPARE(world_->Get()->reason(), std::string("DeleteWorkflow two"));
    // Clients of an earlier version say nothing.
    v1::Command old;
    *old.mutable_apply_workflow() = ValidWorkflow("three");
    QVERIFY(world_->Propose(old).ok());
    QCOMPARE(world_->Get()->author(), std::string("operator:unknown"));
    command.set_actor(std::string(10'000, 'a'));
    *command.mutable_apply_workflow() = ValidWorkflow("four");
    QCOMPARE(Reason(world_->Propose(command)), std::string("TEXT_TOO_LONG"));
  }

  void ReadOnly_OnlyValidates() {
    world_->FailOver({.read_only = true});
    v1::ApplyConfigRequest request;
    *request.mutable_config() = Threshold(0.7);
    request.set_actor("operator:ann");
    QCOMPARE(Reason(world_->Apply(request).status()), std::string("READ_ONLY"));
    request.set_validate_only(true);
    QVERIFY(world_->Apply(request).ok());
    QVERIFY(world_->Get().ok());
  }

 private:
  std::unique_ptr<ConfigWorld> world_;
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::ConfigServiceTest)
#include "config_service_test.moc"
