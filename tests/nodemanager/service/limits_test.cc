// The limits of proxies and databases: who hears of them, and what they may not fall below.
#include <QtTest>
#include <string>

#include "tests/nodemanager/service/config_world.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

v1::ClusterConfig Limits(int max_jobs, std::int64_t budget_bytes) {
  v1::ClusterConfig config;
  config.mutable_limits()->mutable_proxies()->set_max_jobs_in_flight(max_jobs);
  config.mutable_limits()->mutable_databases()->set_budget_bytes(budget_bytes);
  return config;
}

v1::NodeLoad Running(int jobs) {
  v1::NodeLoad load;
  load.set_running_jobs(jobs);
  return load;
}

}  // namespace

class LimitsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    world_ = std::make_unique<ConfigWorld>();
    QVERIFY(world_->Propose(RegisterCommand(MakeNode("p", v1::PROXY))).ok());
    QVERIFY(world_->Propose(RegisterCommand(MakeNode("d", v1::DATABASE))).ok());
    QVERIFY(world_->Propose(RegisterCommand(MakeNode("i", v1::INSTANCE))).ok());
  }
  void cleanup() { world_.reset(); }

  void Nodes_HearTheLimitsOfTheirRole() {
    // They say nothing yet: each node goes by its own file.
    QCOMPARE(world_->AnswerTo("p").limits().proxies().max_jobs_in_flight(), 0);
    QVERIFY(world_->Apply(Limits(7, 1000)).ok());
    QCOMPARE(world_->AnswerTo("p").limits().proxies().max_jobs_in_flight(), 7);
    QVERIFY(!world_->AnswerTo("p").limits().has_databases());
    QCOMPARE(world_->AnswerTo("d").limits().databases().budget_bytes(), std::int64_t{1000});
    QVERIFY(!world_->AnswerTo("d").limits().has_proxies());
    QVERIFY(!world_->AnswerTo("i").limits().has_proxies());
    // Whoever leads says the same.
    world_->FailOver({});
    QCOMPARE(world_->AnswerTo("p").limits().proxies().max_jobs_in_flight(), 7);
    // A limit that is taken back is told too.
    QVERIFY(world_->Apply(Limits(0, 1000)).ok());
    QVERIFY(world_->AnswerTo("p").limits().has_proxies());
    QCOMPARE(world_->AnswerTo("p").limits().proxies().max_jobs_in_flight(), 0);
  }

  // NodeManagers too: they have servers, and report as all nodes do.
  void EveryNode_HearsTheLimitsOfCallers() {
    QVERIFY(world_->Propose(RegisterCommand(MakeNode("n", v1::NODE_MANAGER))).ok());
    v1::ClusterConfig config;
    config.mutable_limits()->mutable_callers()->set_calls_per_s(50);
    QVERIFY(world_->Apply(config).ok());
    for (const char* node : {"p", "d", "i", "n"})
      QCOMPARE(world_->AnswerTo(node).limits().callers().calls_per_s(), 50.);
  }

  void OldLevel_TellsNone() {
    ConfigWorld old({.version = 3});
    QVERIFY(old.Propose(RegisterCommand(MakeNode("p", v1::PROXY))).ok());
    QVERIFY(!old.AnswerTo("p").has_limits());
  }

  void BelowUse_IsRefused() {
    QVERIFY(world_->Report("p", Running(10)).ok());
    v1::NodeLoad full;
    full.set_memory_bytes(5000);
    QVERIFY(world_->Report("d", full).ok());
    const absl::Status jobs = world_->Apply(Limits(9, 0)).status();
    QCOMPARE(Reason(jobs), std::string("BELOW_USE"));
    QCOMPARE(jobs.code(), absl::StatusCode::kFailedPrecondition);
    auto said = base::GetReason(jobs).metadata;
    QCOMPARE(said["field"], std::string("limits.proxies.max_jobs_in_flight"));
    QCOMPARE(said["in_use"], std::string("10"));
    QCOMPARE(said["node_id"], std::string("p"));
    said = base::GetReason(world_->Apply(Limits(0, 4999)).status()).metadata;
    QCOMPARE(said["field"], std::string("limits.databases.budget_bytes"));
    QCOMPARE(said["node_id"], std::string("d"));
    v1::ApplyConfigRequest dry;
    *dry.mutable_config() = Limits(9, 0);
    dry.set_validate_only(true);
    QCOMPARE(Reason(world_->Apply(dry).status()), std::string("BELOW_USE"));
    QCOMPARE(world_->Get()->revision(), std::uint64_t{1});
    QVERIFY(world_->Apply(Limits(10, 5000)).ok());
  }

  // Nobody is told that a limit which holds already is below use: it must stay possible to raise it
  // a little, and to change something else.
  void LimitThatIsNotLowered_IsTaken() {
    QVERIFY(world_->Apply(Limits(5, 0)).ok());
    QVERIFY(world_->Report("p", Running(10)).ok());  // As after a start with a file of its own.
    v1::ClusterConfig config = Limits(5, 0);
    config.mutable_limits()->mutable_databases()->set_tombstone_ttl_s(60);
    QVERIFY(world_->Apply(config).ok());
    QVERIFY(world_->Apply(Limits(6, 0)).ok());
    QCOMPARE(Reason(world_->Apply(Limits(5, 0)).status()), std::string("BELOW_USE"));
  }

  void KnownRequest_IsAnsweredAlike_WhateverIsUsedNow() {
    v1::ApplyConfigRequest request;
    *request.mutable_config() = Limits(20, 0);
    request.set_actor("operator:ann");
    request.set_request_id("r");
    QCOMPARE(world_->Apply(request)->revision(), std::uint64_t{2});
    QVERIFY(world_->Report("p", Running(30)).ok());
    QCOMPARE(world_->Apply(request)->revision(), std::uint64_t{2});
  }

  void DeadNodes_UseNothing() {
    QVERIFY(world_->Report("p", Running(10)).ok());
    QVERIFY(world_->Propose(EndCommand("p")).ok());
    QVERIFY(world_->Apply(Limits(1, 0)).ok());
  }

 private:
  std::unique_ptr<ConfigWorld> world_;
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::LimitsTest)
#include "limits_test.moc"
