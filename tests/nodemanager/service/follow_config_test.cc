// Whoever leads goes by the configuration in the log, and the files of leaders only seed it.
#include <QtTest>
#include <string>

#include "nodemanager/service/node_manager_service.h"
#include "tests/nodemanager/service/config_world.h"
#include "tests/nodemanager/service/elastic_world.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

v1::ClusterConfig LivenessOf(int report_interval_ms, int dead_after_ms, int forget_after_s = 0) {
  v1::ClusterConfig config;
  config.mutable_liveness()->set_report_interval_ms(report_interval_ms);
  config.mutable_liveness()->set_dead_after_ms(dead_after_ms);
  config.mutable_liveness()->set_forget_after_s(forget_after_s);
  return config;
}

v1::Command RaiseCommand() {
  v1::Command command;
  command.mutable_raise_feature_level()->set_level(kCommandVersion);
  command.mutable_raise_feature_level()->set_actor("operator:ann");
  return command;
}

std::string PolicyOf(ConfigWorld& world) { return world.controller().elastic().config().policy(); }

}  // namespace

class FollowConfigTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void FailOver_KeepsThePolicy() {
    ConfigWorld world({.policy = "static"});
    QCOMPARE(PolicyOf(world), std::string("static"));
    world.FailOver({.policy = "utilization", .dead_after = seconds(9), .author = "files:nm-2"});
    QCOMPARE(PolicyOf(world), std::string("static"));
    QCOMPARE(world.controller().settings().dead_after, base::Duration(seconds(3)));
    QCOMPARE(world.Get()->revision(), std::uint64_t{1});
    QCOMPARE(world.Get()->author(), std::string("files:nm-1"));
    v1::ClusterConfig config;
    config.mutable_elasticity()->set_policy("utilization");
    QVERIFY(world.Apply(config).ok());
    QCOMPARE(PolicyOf(world), std::string("utilization"));
    world.FailOver({.policy = "static"});
    QCOMPARE(PolicyOf(world), std::string("utilization"));
  }

  void Files_BringOnlyWhatTheClusterNeverHad() {
    ConfigWorld world({.workflows = {MakeWorkflow("one", {"a"})}});
    QCOMPARE(world.Get()->config().workflows_size(), 1);
    v1::Command command;
    command.set_delete_workflow("one");
    QVERIFY(world.Propose(command).ok());
    world.FailOver({.workflows = {MakeWorkflow("one", {"a"}), MakeWorkflow("two", {"a"})},
                    .author = "files:nm-2"});
    const auto now = world.Get();
    QCOMPARE(now->config().workflows_size(), 1);
    QCOMPARE(now->config().workflows(0).app_id(), std::string("two"));
    QCOMPARE(now->revision(), std::uint64_t{3});
    QCOMPARE(now->author(), std::string("files:nm-2"));
  }

  void OldLevel_GoesByFilesUntilItIsRaised() {
    ConfigWorld world({.policy = "static", .version = 3});
    world.FailOver({.policy = "utilization", .dead_after = seconds(9)});
    QCOMPARE(PolicyOf(world), std::string("utilization"));
    QCOMPARE(world.Get()->revision(), std::uint64_t{0});
    QCOMPARE(world.Get()->config().elasticity().policy(), std::string("utilization"));
    QCOMPARE(world.Get()->config().liveness().dead_after_ms(), 9000);
    v1::ApplyConfigRequest request;
    request.mutable_config()->mutable_elasticity()->set_policy("static");
    request.set_actor("operator:ann");
    for (const bool dry : {true, false}) {
      request.set_validate_only(dry);
      const absl::Status status = world.Apply(request).status();
      QCOMPARE(status.code(), absl::StatusCode::kFailedPrecondition);
      QCOMPARE(Reason(status), std::string("FEATURE_LEVEL"));
      QVERIFY(base::Message(status).find("onepiece cluster upgrade") != std::string::npos);
    }
    QVERIFY(world.Propose(RaiseCommand()).ok());
    QVERIFY(world.controller().SeedConfig().ok());
    QCOMPARE(world.Get()->revision(), std::uint64_t{1});
    QCOMPARE(world.Get()->config().liveness().dead_after_ms(), 9000);
    QVERIFY(world.Apply(request).ok());
    QCOMPARE(PolicyOf(world), std::string("static"));
  }

  // The first change after the upgrade does not stand in the seed's place.
  void ApplyConfig_SeedsFirst() {
    ConfigWorld world({.policy = "static", .version = 3});
    world.FailOver({.policy = "static", .dead_after = seconds(9)});
    QVERIFY(world.Propose(RaiseCommand()).ok());
    v1::ClusterConfig config;
    config.mutable_elasticity()->set_policy("utilization");
    QCOMPARE(world.Apply(config)->revision(), std::uint64_t{2});
    QCOMPARE(world.Get()->config().liveness().dead_after_ms(), 9000);
  }

  void DeadAfter_IsFollowed() {
    ConfigWorld world;
    QVERIFY(world.Propose(RegisterCommand(MakeNode("p", v1::PROXY))).ok());
    QVERIFY(world.Report("p").ok());
    QVERIFY(world.Apply(LivenessOf(500, 20'000)).ok());
    world.Pass(seconds(10));
    QCOMPARE(world.StateOf("p"), std::optional(v1::Node::READY));
    world.Pass(seconds(11));
    QCOMPARE(world.StateOf("p"), std::optional(v1::Node::DEAD));
  }

  // A node that reports once in 4 s hears of the shorter interval with its next report.
  void ShorterTimes_KillNobodyWhoHasNotHeardOfThem() {
    ConfigWorld world({.dead_after = seconds(10)});
    for (const char* id : {"p", "q"}) {
      QVERIFY(world.Propose(RegisterCommand(MakeNode(id, v1::PROXY))).ok());
      QVERIFY(world.Report(id).ok());
    }
    world.Pass(seconds(1));
    QVERIFY(world.Apply(LivenessOf(100, 1000)).ok());
    world.Pass(seconds(3));
    QCOMPARE(world.StateOf("q"), std::optional(v1::Node::READY));
    world.Pass(seconds(1), {"p"});
    world.Pass(milliseconds(1200));  // p has heard of it, and is silent since.
    QCOMPARE(world.StateOf("p"), std::optional(v1::Node::DEAD));
    QCOMPARE(world.StateOf("q"), std::optional(v1::Node::READY));
    world.Pass(seconds(5));
    QCOMPARE(world.StateOf("q"), std::optional(v1::Node::DEAD));
  }

  void ForgetAfter_IsFollowed() {
    ConfigWorld world;
    QVERIFY(world.Propose(RegisterCommand(MakeNode("p", v1::PROXY))).ok());
    QVERIFY(world.Apply(LivenessOf(500, 3000, 5)).ok());
    QVERIFY(world.Propose(EndCommand("p")).ok());
    world.Pass(seconds(4));
    QVERIFY(world.StateOf("p").has_value());
    world.Pass(seconds(2));
    QVERIFY(!world.StateOf("p").has_value());
  }

  void ReportInterval_IsTold() {
    ConfigWorld world;
    QCOMPARE(world.controller().settings().report_interval, base::Duration(milliseconds(500)));
    QVERIFY(world.Apply(LivenessOf(200, 3000)).ok());
    QCOMPARE(world.controller().settings().report_interval, base::Duration(milliseconds(200)));
  }

  // The policy is made anew, and moves what the one before left alone.
  void Policy_TakesEffectAtOnce() {
    v1::ElasticityConfig config;
    config.set_policy("static");
    config.set_window_s(10);
    config.set_interval_s(1);
    config.set_cooldown_s(5);
    ElasticWorld world(config);
    world.Apply(MakeWorkflow("app", {"a", "b"}));
    world.Register(MakeNode("proxy", v1::PROXY));
    for (const char* id : {"i1", "i2", "i3", "i4"}) world.Register(MakeNode(id, v1::INSTANCE));
    world.Pass(seconds(2));
    for (const char* id : {"i1", "i2", "i3", "i4"}) {
      const bool busy = world.PoolOfNode(id) == kPoolA;
      world.node(id).busy = busy ? 0.99 : 0.1;
      world.node(id).jobs_per_s = 2;
    }
    world.node("proxy").jobs_per_s = 4;
    world.Pass(seconds(60));
    QCOMPARE(world.Count(kPoolA), 2);
    ConfigService service(world.controller());
    v1::ApplyConfigRequest request;
    *request.mutable_config()->mutable_elasticity() = config;
    request.mutable_config()->mutable_elasticity()->set_policy("utilization");
    request.set_actor("operator:ann");
    v1::ApplyConfigResponse response;
    QVERIFY(service.ApplyConfig(nullptr, &request, &response).ok());
    QVERIFY(world.PassUntil(seconds(60), [&] { return world.Count(kPoolA) == 3; }));
    // Another leader with the older file goes on with the policy of the log.
    world.FailOver();
    QCOMPARE(world.controller().elastic().config().policy(), std::string("utilization"));
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::FollowConfigTest)
#include "follow_config_test.moc"
