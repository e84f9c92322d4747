// Tests when rules fire and when they do not, what happens to an alert afterwards, and the thread
// that evaluates the rules.
#include "cluster/history/alerts.h"

#include <QTemporaryDir>
#include <QtTest>
#include <atomic>
#include <cmath>
#include <fstream>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/history/cluster_rules.h"
#include "cluster/history/conditions.h"
#include "cluster/history/record_loop.h"
#include "cluster/history/recording.h"
#include "tests/eventually.h"
#include "tests/history/recordings.h"
#include "tests/history/snapshots.h"
#include "tests/test_main.h"

namespace onepiece::history {
namespace {

using State = session::Alert::State;

Rule Watch(const std::string& condition, std::int64_t for_ms = 0) {
  Rule rule;
  rule.name = condition;
  rule.watches = condition;
  rule.for_ms = for_ms;
  rule.text = "{entity} {value} {for} {detail}";
  return rule;
}

Rule Above(const std::string& series, double threshold, std::int64_t for_ms = 0) {
  Rule rule = Watch("high", for_ms);
  rule.watches = series;
  rule.when = Rule::When::kAbove;
  rule.threshold = threshold;
  rule.text = "{value} over {threshold}";
  return rule;
}

/// Returns a cluster in which nothing is wrong, at second `tick`, after `change`.
template <typename Change>
session::Snapshot Changed(int tick, Change change) {
  session::Snapshot snapshot = SnapshotAt(tick);
  v1::Cluster cluster = *snapshot.cluster.value;
  session::Rings rings = *snapshot.rings.value;
  for (session::RingEntry& ring : rings) ring.health.set_oldest_age_ms(0);
  session::JobList jobs = *snapshot.jobs.value;
  session::Replicas replicas = *snapshot.replicas.value;
  v1::ListPlansResponse plans = *snapshot.plans.value;
  v1::Elasticity elasticity = *snapshot.elasticity.value;
  change(cluster, rings, jobs, replicas, plans, elasticity);
  const std::int64_t now = snapshot.at_ms;
  snapshot.cluster = PartOf(cluster, now);
  snapshot.rings = PartOf(rings, now);
  snapshot.jobs = PartOf(jobs, now);
  snapshot.replicas = PartOf(replicas, now);
  snapshot.plans = PartOf(plans, now);
  snapshot.elasticity = PartOf(elasticity, now);
  return snapshot;
}
session::Snapshot Well(int tick) {
  return Changed(tick, [](auto&...) {});
}
session::Snapshot Dead(int tick) {
  return Changed(tick, [](v1::Cluster& cluster, auto&...) {
    cluster.mutable_nodes(1)->set_state(v1::Node::DEAD);
    cluster.mutable_nodes(1)->set_detail("its heartbeats stopped");
  });
}
session::Snapshot Busy(int tick, double utilization) {
  return Changed(tick, [&](v1::Cluster& cluster, auto&...) {
    cluster.mutable_nodes(2)->mutable_load()->set_utilization(utilization);
  });
}

/// What a RecordLoop looks at: a cluster with a dead node, and the alerts that it is given back.
struct DeadCluster {
  base::ManualClock clock{base::FromUnixMs(kStart)};
  base::Mutex mutex;
  session::Part<session::Alerts> shown ABSL_GUARDED_BY(mutex);
  std::atomic<int> looks{0};
  const RecordLoop::Source source = {
      [this] {
        ++looks;
        return std::make_shared<const session::Snapshot>(Dead(static_cast<int>(looks)));
      },
      [] { return kLiveLink; },
      [this](session::Part<session::Alerts> alerts) {
        const base::MutexLock lock(mutex);
        shown = std::move(alerts);
      }};
  const Limits limits = {.keep_free_bytes = 0};
};

/// Returns "firing node/instance-1, …" in the engine's order.
QStringList Said(const AlertEngine& engine) {
  static const char* const kStates[] = {"pending", "firing", "resolved", "no data", "error"};
  QStringList said;
  for (const session::Alert& alert : engine.alerts()) {
    said << QString("%1 %2").arg(kStates[static_cast<int>(alert.state)],
                                 QString::fromStdString(alert.entity));
  }
  return said;
}

const QStringList kNone;

std::string Yaml(const std::string& rule) { return "alerts:\n  - " + rule + "\n"; }

}  // namespace

class AlertsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Conditions_FireAndDoNot_data() {
    QTest::addColumn<QString>("condition");
    QTest::addColumn<int>("place");
    QTest::addColumn<QString>("entity");
    QTest::newRow("node-dead") << "node-dead" << 0 << "node/instance-1";
    QTest::newRow("quarantined") << "quarantined" << 1 << "node/instance-1";
    QTest::newRow("no-progress") << "no-progress" << 2 << "node/instance-1";
    QTest::newRow("stale-reports") << "stale-reports" << 3 << "node/instance-1";
    QTest::newRow("ring-stuck") << "ring-stuck" << 4 << "ring/instance-2";
    QTest::newRow("job-failed") << "job-failed" << 5 << "app/wan";
    QTest::newRow("no-leader") << "no-leader" << 6 << "cluster";
    QTest::newRow("plan-failed") << "plan-failed" << 7 << "plan/0a02";
    QTest::newRow("clock ahead") << "clock-skew" << 8 << "node/instance-1";
    QTest::newRow("clock behind") << "clock-skew" << 9 << "node/instance-1";
  }
  void Conditions_FireAndDoNot() {
    QFETCH(const QString, condition);
    QFETCH(const int, place);
    QFETCH(const QString, entity);
    const auto wrong = [&](v1::Cluster& cluster, session::Rings& rings, session::JobList& jobs,
                           session::Replicas& replicas, v1::ListPlansResponse& plans, auto&) {
      v1::Node& node = *cluster.mutable_nodes(1);
      if (place == 0) node.set_state(v1::Node::DEAD);
      if (place == 1) node.set_activity(v1::QUARANTINED);
      if (place == 2) node.set_activity(v1::STUCK);
      if (place == 3) node.mutable_last_report_time()->set_seconds(kStart / 1000 - 5);
      if (place == 4) {
        rings[2].health.set_used_slots(4);
        rings[2].health.set_oldest_age_ms(60'000);
        rings[2].rates->messages_per_s = 0;
      }
      if (place == 5) {
        auto job = std::make_shared<v1::Job>(*JobAt(4, v1::Job::FAILED));
        job->mutable_end_time()->set_seconds(kStart / 1000);
        job->mutable_error()->set_reason("LOST");
        jobs.jobs.push_back({job});
      }
      if (place == 8) node.mutable_load()->set_clock_skew_ms(1001);
      if (place == 9) node.mutable_load()->set_clock_skew_ms(-86'400'000);
      if (place == 6) replicas[0].error = "timed out";
      if (place == 7) {
        plans.mutable_plans(1)->set_state(v1::Plan::FAILED);
        plans.mutable_plans(1)->set_end_unix_ms(kStart);
      }
    };
    AlertEngine engine({Watch(condition.toStdString())});
    engine.Evaluate(Well(8), kLiveLink);
    QCOMPARE(Said(engine), kNone);
    engine.Evaluate(Changed(9, wrong), kLiveLink);
    QCOMPARE(Said(engine), QStringList{"firing " + entity});
    engine.Evaluate(Well(10), kLiveLink);
    QCOMPARE(Said(engine), QStringList{"resolved " + entity});
    // No other condition fires.
    std::vector<Rule> others;
    for (const char* name :
         {"node-dead", "quarantined", "no-progress", "stale-reports", "ring-stuck", "job-failed",
          "no-leader", "plan-failed", "clock-skew"}) {
      if (condition != name) others.push_back(Watch(name));
    }
    AlertEngine strangers(others);
    strangers.Evaluate(Changed(9, wrong), kLiveLink);
    QCOMPARE(Said(strangers), kNone);
  }

  void ClockSkew_NamesTheNodesAndTheFigures_AndEnds() {
    std::ifstream file(std::string(ONEPIECE_SOURCE_DIR) + "/resources/alerts.yaml");
    const auto rules = ParseRules(std::string{std::istreambuf_iterator<char>(file), {}});
    QVERIFY(rules.ok());
    const auto skewed = [](int tick, std::int64_t first_ms, std::int64_t second_ms) {
      return Changed(tick, [&](v1::Cluster& cluster, auto&...) {
        cluster.mutable_nodes(0)->mutable_load()->set_clock_skew_ms(1000);  // This is no skew yet.
        cluster.mutable_nodes(1)->mutable_load()->set_clock_skew_ms(first_ms);
        cluster.mutable_nodes(2)->mutable_load()->set_clock_skew_ms(second_ms);
      });
    };
    AlertEngine engine(*rules);
    for (int tick = 0; tick <= 5; ++tick) engine.Evaluate(skewed(tick, 90'000, -3'500), kLiveLink);
    QCOMPARE(Said(engine), (QStringList{"firing node/instance-1", "firing node/instance-2"}));
    for (const auto& [place, figure] : {std::pair(0, "90.0 s ahead of"), {1, "3.5 s behind"}}) {
      const std::string& text = engine.alerts().at(place).text;
      QVERIFY2(absl::StrContains(text, figure) && absl::StrContains(text, "NTP"), text.c_str());
    }
    engine.Evaluate(skewed(6, 999, -3'500), kLiveLink);
    QCOMPARE(Said(engine), (QStringList{"firing node/instance-2", "resolved node/instance-1"}));
    engine.Evaluate(skewed(7, 0, 0), kLiveLink);
    QCOMPARE(Said(engine), (QStringList{"resolved node/instance-1", "resolved node/instance-2"}));
  }

  void NearMisses_DoNotFire() {
    AlertEngine engine(
        {Watch("ring-stuck"), Watch("job-failed"), Watch("stale-reports"), Watch("plan-failed")});
    engine.Evaluate(
        Changed(900,
                [](v1::Cluster& cluster, session::Rings& rings, session::JobList& jobs, auto&,
                   v1::ListPlansResponse& plans, auto&) {
                  // One ring has old messages and flows. The other one is empty and reports an age.
                  rings[0].health.set_used_slots(4);
                  rings[0].health.set_oldest_age_ms(60'000);
                  rings[1].health.set_used_slots(0);
                  rings[1].health.set_oldest_age_ms(60'000);
                  rings[1].rates->messages_per_s = 0;
                  auto old = std::make_shared<v1::Job>(*JobAt(4, v1::Job::FAILED));
                  old->mutable_end_time()->set_seconds(kStart / 1000);  // It failed 15 minutes ago.
                  jobs.jobs.push_back({old});
                  cluster.mutable_nodes(0)->set_state(
                      v1::Node::DEAD);  // A dead node need not report.
                  cluster.mutable_nodes(0)->mutable_last_report_time()->set_seconds(1);
                  plans.mutable_plans(1)->set_state(v1::Plan::FAILED);
                  plans.mutable_plans(1)->set_end_unix_ms(kStart);
                  plans.mutable_plans(1)->set_undone_by("9b");
                }),
        kLiveLink);
    QCOMPARE(Said(engine), kNone);
  }

  void ClockSkew_MakesNoReportOld() {
    AlertEngine engine({Watch("stale-reports")});
    session::LinkStatus behind = kLiveLink;
    behind.clock_skew_s = -100;  // The server's clock is behind, and so are the reports' times.
    const auto shifted = [](v1::Cluster& cluster, auto&...) {
      for (v1::Node& node : *cluster.mutable_nodes())
        node.mutable_last_report_time()->set_seconds(node.last_report_time().seconds() - 100);
    };
    engine.Evaluate(Changed(0, shifted), behind);
    QCOMPARE(Said(engine), kNone);
    engine.Evaluate(Changed(1, shifted), kLiveLink);
    QCOMPARE(engine.alerts().size(), std::size_t{3});
  }

  void Series_AboveAndBelow_OneEntityEach() {
    Rule low = Above("pool/*/utilization", 0);
    low.name = "low";
    low.when = Rule::When::kBelow;
    low.threshold = 0.3;
    AlertEngine engine({Above("node/*/utilization", 0.9), low});
    engine.Evaluate(Busy(0, 0.95), kLiveLink);
    // A pool that is not measured yet is not idle, and an application's share of a pool is no pool.
    QCOMPARE(Said(engine),
             (QStringList{"firing node/instance-2", "firing pool/default/diffusion/wan/tiny"}));
    QCOMPARE(QString::fromStdString(engine.alerts()[0].text), QString("95 % over 90 %"));
    QCOMPARE(*engine.alerts()[0].value, 0.95);
    QCOMPARE(*engine.alerts()[0].threshold, 0.9);
    engine.Evaluate(Busy(1, 0.9), kLiveLink);
    QCOMPARE(Said(engine).last(), QString("resolved node/instance-2"));
  }

  void Pending_Fires_AfterItsTime() {
    AlertEngine engine({Above("node/*/utilization", 0.9, 5'000)});
    for (int tick = 0; tick < 5; ++tick) {
      engine.Evaluate(Busy(tick, 1), kLiveLink);
      QCOMPARE(Said(engine), QStringList{"pending node/instance-2"});
      QCOMPARE(engine.alerts()[0].since_ms, kStart);
    }
    engine.Evaluate(Busy(5, 1), kLiveLink);
    QCOMPARE(Said(engine), QStringList{"firing node/instance-2"});
    QCOMPARE(engine.alerts()[0].since_ms, kStart + 5'000);
    // An alert that never fired leaves nothing behind, and begins anew.
    AlertEngine other({Above("node/*/utilization", 0.9, 5'000)});
    other.Evaluate(Busy(0, 1), kLiveLink);
    other.Evaluate(Busy(4, 0), kLiveLink);
    QCOMPARE(Said(other), kNone);
    other.Evaluate(Busy(6, 1), kLiveLink);
    QCOMPARE(Said(other), QStringList{"pending node/instance-2"});
  }

  void NoData_IsNeitherWellNorWrong() {
    AlertEngine engine({Watch("node-dead"), Watch("ring-stuck")});
    engine.Evaluate(Dead(0), kLiveLink);
    QCOMPARE(Said(engine), QStringList{"firing node/instance-1"});
    // The connection is lost. Nobody knows any more whether the firing alert holds, nor whether all
    // else is well.
    engine.Evaluate(Dead(1), LinkOf(session::Link::kReconnecting, "reset"));
    QCOMPARE(Said(engine), (QStringList{"no data node/instance-1", "no data cluster"}));
    QVERIFY(absl::StrContains(engine.alerts()[1].text, "reset"));
    engine.Evaluate(Dead(2), kLiveLink);
    QCOMPARE(Said(engine), QStringList{"firing node/instance-1"});
    // One part is old, and the other is new.
    session::Snapshot old = Dead(30);
    old.rings.as_of_ms = kStart;
    engine.Evaluate(old, kLiveLink);
    QCOMPARE(Said(engine), (QStringList{"firing node/instance-1", "no data cluster"}));
    QVERIFY(absl::StrContains(engine.alerts()[1].text, "30 s old"));
    session::Snapshot never = Well(31);
    never.cluster = {nullptr, 0, "PERMISSION_DENIED"};
    engine.Evaluate(never, kLiveLink);
    QCOMPARE(Said(engine), QStringList{"no data node/instance-1"});
    engine.Evaluate(Well(32), kLiveLink);
    QCOMPARE(Said(engine), QStringList{"resolved node/instance-1"});
  }

  void PendingThroughNoData_BeginsAnew() {
    AlertEngine engine({Above("node/*/utilization", 0.9, 5'000)});
    engine.Evaluate(Busy(0, 1), kLiveLink);
    engine.Evaluate(Busy(1, 1), LinkOf(session::Link::kStale));
    QCOMPARE(Said(engine), QStringList{"no data node/instance-2"});
    engine.Evaluate(Busy(9, 1), kLiveLink);
    QCOMPARE(Said(engine), QStringList{"pending node/instance-2"});
  }

  void SeriesThatGoes_IsNoData_ThenForgotten() {
    AlertEngine engine({Above("node/*/utilization", 5)});
    engine.Evaluate(Busy(0, 10), kLiveLink);
    const auto without = [](v1::Cluster& cluster, auto&...) {
      cluster.mutable_nodes(2)->set_state(v1::Node::DEAD);  // Its load is old.
      cluster.mutable_nodes(2)->mutable_load()->set_utilization(10);
    };
    engine.Evaluate(Changed(1, without), kLiveLink);
    QCOMPARE(Said(engine), QStringList{"no data node/instance-2"});
    engine.Evaluate(Changed(599, without), kLiveLink);
    QCOMPARE(Said(engine), QStringList{"no data node/instance-2"});
    engine.Evaluate(Changed(602, without), kLiveLink);
    QCOMPARE(Said(engine), QStringList{"resolved node/instance-2"});
  }

  void RuleThatCannotBeComputed_IsAnError() {
    AlertEngine engine(
        {Watch("no-such-thing"), Above("nobody/*/x", 1), Above("node/*/x", std::nan(""))});
    engine.Evaluate(Well(0), kLiveLink);
    for (const session::Alert& alert : engine.alerts()) QCOMPARE(alert.state, State::kError);
    QVERIFY(!engine.alerts().empty());
    QVERIFY(absl::StrContains(engine.alerts()[0].text, "ring-stuck"));
  }

  void Resolved_StaysForAnHour() {
    AlertEngine engine({Watch("node-dead")});
    engine.Evaluate(Dead(0), kLiveLink);
    engine.Evaluate(Well(1), kLiveLink);
    engine.Evaluate(Well(3600), kLiveLink);
    QCOMPARE(Said(engine), QStringList{"resolved node/instance-1"});
    engine.Evaluate(Well(3602), kLiveLink);
    QCOMPARE(Said(engine), kNone);
  }

  void AcknowledgedAndSilenced_AreTwoThings() {
    AlertEngine engine({Watch("node-dead")});
    const std::string id = "node-dead/node/instance-1";
    QCOMPARE(Reason(engine.Acknowledge(id, "ada")), QString("NO_ALERT"));
    engine.Evaluate(Dead(0), kLiveLink);
    QVERIFY(engine.Acknowledge(id, "ada").ok());
    QCOMPARE(QString::fromStdString(engine.alerts()[0].acknowledged_by), QString("ada"));
    QCOMPARE(engine.alerts()[0].silenced_until_ms, 0);
    QCOMPARE(Reason(engine.Silence(id, kStart, "moving house")), QString("BAD_SILENCE"));
    QCOMPARE(Reason(engine.Silence(id, kStart + 60'000, "")), QString("BAD_SILENCE"));
    QCOMPARE(Reason(engine.Silence("nobody", kStart + 1, "x")), QString("NO_ALERT"));
    QVERIFY(engine.Silence(id, kStart + 60'000, "moving house").ok());
    QCOMPARE(engine.alerts()[0].state, State::kFiring);  // It is silenced and still holds.
    QCOMPARE(QString::fromStdString(engine.alerts()[0].acknowledged_by), QString("ada"));
    // When the alert comes back, nobody has seen it yet. The silence still holds.
    engine.Evaluate(Well(1), kLiveLink);
    engine.Evaluate(Dead(2), kLiveLink);
    QVERIFY(engine.alerts()[0].acknowledged_by.empty());
    QCOMPARE(engine.alerts()[0].silenced_until_ms, kStart + 60'000);
    QCOMPARE(QString::fromStdString(engine.alerts()[0].silence_reason), QString("moving house"));
  }

  void TooMany_TheMildestAreCounted() {
    Rule mild = Watch("quarantined");
    mild.severity = session::Alert::Severity::kInfo;
    AlertEngine engine({Watch("node-dead"), mild});
    const auto many = [](v1::Cluster& cluster, auto&...) {
      for (int i = 0; i < 3000; ++i) {
        v1::Node& node = *cluster.add_nodes();
        node.set_node_id("n" + std::to_string(i));
        if (i % 6 == 0) node.set_state(v1::Node::DEAD);
        if (i % 6 != 0) node.set_activity(v1::QUARANTINED);
      }
    };
    for (int tick = 0; tick < 3; ++tick) engine.Evaluate(Changed(tick, many), kLiveLink);
    QCOMPARE(engine.alerts().size(), AlertEngine::kMaxAlerts);
    QCOMPARE(engine.alerts()[499].severity, session::Alert::Severity::kWarning);
    QCOMPARE(QString::fromStdString(engine.alerts().back().id), QString("more/cluster"));
    QCOMPARE(*engine.alerts().back().value, 3000 - 999.0);
  }

  void TooMany_ThoseThatAreOnlyCountedFireToo() {
    AlertEngine engine({Watch("node-dead", 2'000)});
    const auto many = [](v1::Cluster& cluster, auto&...) {
      for (int i = 0; i < 1500; ++i) {
        v1::Node& node = *cluster.add_nodes();
        node.set_node_id("n" + std::to_string(i));
        node.set_state(v1::Node::DEAD);
      }
    };
    engine.Evaluate(Changed(0, many), kLiveLink);
    QCOMPARE(engine.alerts().back().state, State::kPending);
    engine.Evaluate(Changed(2, many), kLiveLink);
    QCOMPARE(QString::fromStdString(engine.alerts().back().id), QString("more/cluster"));
    QCOMPARE(engine.alerts().back().state, State::kFiring);
  }

  void ShippedRules_AreRead_AndSayEverything() {
    std::ifstream file(std::string(ONEPIECE_SOURCE_DIR) + "/resources/alerts.yaml");
    const std::string yaml{std::istreambuf_iterator<char>(file), {}};
    const auto rules = ParseRules(yaml);
    QVERIFY2(rules.ok(), base::Message(rules.status()).c_str());
    // The shipped rules use every condition.
    for (const char* name : {"node-dead", "quarantined", "no-progress", "stale-reports",
                             "ring-stuck", "job-failed", "no-leader", "plan-failed", "clock-skew"})
      QVERIFY(std::ranges::find(*rules, name, &Rule::watches) != rules->end());
    AlertEngine engine(*rules);
    engine.Evaluate(Well(0), kLiveLink);
    QCOMPARE(Said(engine), kNone);
    engine.Evaluate(Dead(1), kLiveLink);
    QVERIFY(absl::StrContains(engine.alerts().at(0).text, "its heartbeats stopped"));
  }

  void Rules_Parse() {
    const auto rules =
        ParseRules(Yaml("{name: hot, watches: 'node/*/temperature_c', above: 8.5e1, for: 1m30s, "
                        "severity: critical, "
                        "text: '{entity} {value}'}"));
    QVERIFY2(rules.ok(), base::Message(rules.status()).c_str());
    QCOMPARE(rules->size(), std::size_t{1});
    QCOMPARE(rules->at(0).when, Rule::When::kAbove);
    QCOMPARE(rules->at(0).threshold, 85.0);
    QCOMPARE(rules->at(0).for_ms, 90'000);
    QCOMPARE(rules->at(0).severity, session::Alert::Severity::kCritical);
    QCOMPARE(ParseRules("alerts: []")->size(), std::size_t{0});
  }

  void BadRules_AreNamed_data() {
    QTest::addColumn<QString>("yaml");
    QTest::addColumn<QString>("says");
    const auto row = [](const char* name, const std::string& rule, const char* says) {
      QTest::newRow(name) << QString::fromStdString(Yaml(rule)) << says;
    };
    row("no name", "{watches: node-dead, text: x}", "name");
    row("odd name", "{name: A b, watches: node-dead, text: x}", "name");
    row("no watches", "{name: a, text: x}", "'a', watches");
    row("unknown condition", "{name: a, watches: nodes-dead, text: x}", "node-dead");
    row("unknown series", "{name: a, watches: nodes/x, above: 1, text: x}", "node/");
    row("misspelt series", "{name: a, watches: node/*/utilisation, above: 1, text: x}",
        "did you mean 'utilization'");
    row("no last word", "{name: a, watches: node/, above: 1, text: x}", "no series of node/");
    row("series without", "{name: a, watches: node/*/memory_bytes, text: x}", "above or below");
    row("condition with", "{name: a, watches: node-dead, above: 1, text: x}", "series");
    row("both", "{name: a, watches: node/*/memory_bytes, above: 1, below: 2, text: x}", "not both");
    row("no number", "{name: a, watches: node/*/memory_bytes, above: high, text: x}",
        "above: a number");
    row("not finite", "{name: a, watches: node/*/memory_bytes, above: .nan, text: x}",
        "above: a number");
    row("time", "{name: a, watches: node-dead, for: 5 minutes, text: x}", "for: a time");
    row("below zero", "{name: a, watches: node-dead, for: -5s, text: x}", "for: a time");
    row("severity", "{name: a, watches: node-dead, severity: bad, text: x}", "info, warning");
    row("no text", "{name: a, watches: node-dead}", "text");
    row("unknown place", "{name: a, watches: node-dead, text: '{node}'}", "braces");
    row("unknown key", "{name: a, watches: node-dead, text: x, colour: red}", "colour");
    row("twice",
        "{name: a, watches: node-dead, text: x}\n  - {name: a, watches: node-dead, text: x}",
        "another rule");
    row("no mapping", "node-dead", "mapping");
    QTest::newRow("not a list") << "alerts: 5"
                                << "list";
    QTest::newRow("empty") << ""
                           << "list";
    QTest::newRow("no YAML") << "alerts: [}"
                             << "line 1";
    QTest::newRow("too large") << QString(300'000, 'x') << "256 KiB";
    QTest::newRow("deep") << QString(100'000, '[') << "alerts";
  }
  void BadRules_AreNamed() {
    QFETCH(const QString, yaml);
    QFETCH(const QString, says);
    const auto rules = ParseRules(yaml.toStdString());
    QCOMPARE(Reason(rules.status()), QString("BAD_RULE"));
    const QString message = QString::fromStdString(base::Message(rules.status()));
    QVERIFY2(message.contains(says), qPrintable(message));
  }

  void ConfiguredRules_AreThoseOfAFile() {
    v1::ClusterConfig config;
    v1::AlertRule& hot = *config.add_alerts();
    hot.set_name("hot");
    hot.set_watches("node/*/temperature_c");
    hot.set_below(0);
    hot.set_for_("1m30s");
    hot.set_severity("critical");
    hot.set_text("{entity} {value}");
    v1::AlertRule& dead = *config.add_alerts();
    dead.set_name("dead");
    dead.set_watches("node-dead");
    dead.set_text("x");
    const auto rules = RulesOf(config);
    QVERIFY2(rules.ok(), base::Message(rules.status()).c_str());
    QCOMPARE(rules->size(), std::size_t{2});
    QCOMPARE(rules->at(0).when, Rule::When::kBelow);
    QCOMPARE(rules->at(0).threshold, 0.0);
    QCOMPARE(rules->at(0).for_ms, 90'000);
    QCOMPARE(rules->at(0).severity, session::Alert::Severity::kCritical);
    QCOMPARE(rules->at(1).when, Rule::When::kTrue);
    QCOMPARE(rules->at(1).severity, session::Alert::Severity::kWarning);
    // A newer NodeManager may know conditions that this program does not. The alert says so.
    dead.set_watches("node-haunted");
    AlertEngine engine(*RulesOf(config));
    engine.Evaluate(Well(0), kLiveLink);
    QVERIFY(Said(engine).contains("error cluster"));
    hot.set_for_("soon");
    QCOMPARE(Reason(RulesOf(config).status()), QString("BAD_RULE"));
  }

  void NewRules_KeepTheAlertsOfTheirNames() {
    AlertEngine engine({Watch("node-dead"), Watch("no-leader")});
    engine.Evaluate(Dead(0), kLiveLink);
    const std::string id = "node-dead/node/instance-1";
    QVERIFY(engine.Acknowledge(id, "ada").ok());
    Rule milder = Watch("node-dead");
    milder.severity = session::Alert::Severity::kInfo;
    engine.SetRules({milder});
    engine.Evaluate(Dead(1), kLiveLink);
    QCOMPARE(Said(engine), QStringList{"firing node/instance-1"});
    QCOMPARE(QString::fromStdString(engine.alerts()[0].acknowledged_by), QString("ada"));
    QCOMPARE(engine.alerts()[0].severity, session::Alert::Severity::kInfo);
    engine.SetRules({Watch("quarantined")});
    QCOMPARE(Said(engine), kNone);  // Also before the next evaluation.
    engine.SetRules({Watch("node-dead")});
    engine.Evaluate(Dead(2), kLiveLink);
    QVERIFY(engine.alerts()[0].acknowledged_by.empty());
  }

  void ClusterRules_LookOnceInAWhile() {
    base::ManualClock clock;
    struct Looks {
      std::vector<std::uint64_t> known;
      std::function<void(ClusterRules::Answer)> done;
      bool busy = false;
    } looks;
    ClusterRules rules(
        [&looks](std::uint64_t known, std::function<void(ClusterRules::Answer)> done) {
          if (looks.busy) return false;
          looks.known.push_back(known);
          looks.done = std::move(done);
          return true;
        },
        clock);
    QVERIFY(!rules.News());  // The first look begins.
    QVERIFY(!rules.News());
    clock.Advance(ClusterRules::kInterval);
    QVERIFY(!rules.News());
    QCOMPARE(looks.known.size(), std::size_t{1});  // One look at a time.
    v1::ConfigRevision revision;
    revision.set_revision(7);
    v1::AlertRule& rule = *revision.mutable_config()->add_alerts();
    rule.set_name("dead");
    rule.set_watches("node-dead");
    rule.set_text("x");
    looks.done(revision);
    const auto news = rules.News();
    QVERIFY(news.has_value());
    QCOMPARE(news->size(), std::size_t{1});
    QVERIFY((looks.known == std::vector<std::uint64_t>{0, 7}));
    looks.done(std::nullopt);
    QVERIFY(!rules.News());  // Nothing is new, and the next look has time.
    clock.Advance(ClusterRules::kInterval);
    QVERIFY(!rules.News());
    QCOMPARE(looks.known.size(), std::size_t{3});
    looks.done(absl::UnavailableError("no leader"));
    QVERIFY(!rules.News());  // The rules stay.
    looks.busy = true;
    clock.Advance(ClusterRules::kInterval);
    QVERIFY(!rules.News());
    looks.busy = false;
    clock.Advance(ClusterRules::kInterval);
    QVERIFY(!rules.News());
    QVERIFY((looks.known == std::vector<std::uint64_t>{0, 7, 7, 7}));
    revision.set_revision(8);
    revision.mutable_config()->clear_alerts();
    looks.done(revision);
    QVERIFY(rules.News()->empty());  // The configuration has none any more.
    clock.Advance(ClusterRules::kInterval);
    QVERIFY(!rules.News());
    revision.set_revision(9);
    revision.mutable_config()->add_alerts()->set_name("Not a name");
    looks.done(revision);
    QVERIFY(rules.News()->empty());  // This program cannot read them.
  }

  // The cluster's rules hold while it has some, and the loop's own before and after.
  void Loop_FollowsTheRulesOfTheCluster() {
    DeadCluster cluster;
    std::atomic<int> asked{0};
    std::atomic<bool> configured{false};
    base::Mutex mutex;
    std::optional<std::vector<Rule>> news;
    RecordLoop::Source source = cluster.source;
    source.latest = [&] {
      session::Snapshot snapshot = Dead(static_cast<int>(++cluster.looks));
      auto changed = std::make_shared<v1::Cluster>(*snapshot.cluster.value);
      changed->set_config_revision(configured ? 1 : 0);
      snapshot.cluster.value = changed;
      return std::make_shared<const session::Snapshot>(snapshot);
    };
    source.new_rules = [&] {
      const base::MutexLock lock(mutex);
      ++asked;
      return std::exchange(news, std::nullopt);
    };
    const auto shown = [&](int least_looks) {
      return testing::Eventually(std::chrono::seconds(20), [&] {
        cluster.clock.Advance(std::chrono::seconds(1));
        return cluster.looks >= least_looks;
      });
    };
    const auto rules = [&] {
      const base::MutexLock lock(cluster.mutex);
      QStringList names;
      if (!cluster.shown.value) return names;
      for (const session::Alert& alert : *cluster.shown.value)
        names << QString::fromStdString(alert.rule);
      return names;
    };
    RecordLoop loop(source, {Watch("node-dead")}, cluster.clock);
    QVERIFY(shown(2));
    QCOMPARE(asked.load(), 0);  // An older program is not asked.
    configured = true;
    Rule own = Watch("node-dead");
    own.name = "ours";
    {
      const base::MutexLock lock(mutex);
      news = std::vector<Rule>{own};
    }
    QVERIFY(testing::Eventually(std::chrono::seconds(20), [&] {
      cluster.clock.Advance(std::chrono::seconds(1));
      return rules() == QStringList{"ours"};
    }));
    {
      const base::MutexLock lock(mutex);
      news = std::vector<Rule>{};
    }
    QVERIFY(testing::Eventually(std::chrono::seconds(20), [&] {
      cluster.clock.Advance(std::chrono::seconds(1));
      return rules() == QStringList{"node-dead"};
    }));
  }

  // The thread looks once in every second of its clock.
  void Loop_EvaluatesRecordsAndGivesBack() {
    const QTemporaryDir folder;
    const std::string path = folder.filePath("loop.onepiece").toStdString();
    DeadCluster cluster;
    {
      RecordLoop loop(cluster.source, {Watch("node-dead")}, cluster.clock);
      QCOMPARE(Reason(loop.Bookmark("x")), QString("NOT_RECORDING"));
      QVERIFY(loop.Start(path, cluster.limits).ok());
      for (int second = 1; second <= 5; ++second) {
        const int before = cluster.looks;
        cluster.clock.Advance(std::chrono::seconds(1));
        QVERIFY(
            testing::Eventually(std::chrono::seconds(20), [&] { return cluster.looks > before; }));
      }
      QVERIFY(
          testing::Eventually(std::chrono::seconds(20), [&] { return loop.state().ticks >= 3; }));
      QVERIFY(loop.Bookmark("here").ok());
      QVERIFY(loop.Acknowledge("node-dead/node/instance-1", "ada").ok());
      {
        const base::MutexLock lock(cluster.mutex);
        QCOMPARE(QString::fromStdString(cluster.shown.value->at(0).acknowledged_by),
                 QString("ada"));
      }
      QVERIFY(loop.state().recording);
      QCOMPARE(Reason(RecordLoop(cluster.source, {}, cluster.clock).Start(path)),
               QString("IN_USE"));
      loop.Stop();
      QVERIFY(!loop.state().recording);
    }
    auto recording = Recording::Open(path);
    QVERIFY((*recording)->Info()->ticks >= 3);
    const auto last = (*recording)->At(kStart + 60'000);
    QCOMPARE((*last)->alerts.value->at(0).state, State::kFiring);
    QCOMPARE(QString::fromStdString((*recording)->Marks({0, kStart * 2})->back().text),
             QString("here"));
  }

  void Loop_WhatPeopleSaidOutlastsARestart() {
    const QTemporaryDir folder;
    const std::string path = folder.filePath("loop.onepiece").toStdString();
    DeadCluster cluster;
    const auto tick = [&](const RecordLoop& loop) {
      const std::int64_t ticks = loop.state().ticks;
      cluster.clock.Advance(std::chrono::seconds(1));
      return testing::Eventually(std::chrono::seconds(20),
                                 [&] { return loop.state().ticks > ticks; });
    };
    const std::string id = "node-dead/node/instance-1";
    const std::int64_t until_ms = kStart + 3'600'000;
    {
      RecordLoop loop(cluster.source, {Watch("node-dead")}, cluster.clock);
      QVERIFY(loop.Start(path, cluster.limits).ok());
      QVERIFY(tick(loop));
      QVERIFY(loop.Acknowledge(id, "ada").ok());
      QVERIFY(loop.Silence(id, until_ms, "being repaired").ok());
      QVERIFY(tick(loop));
    }
    RecordLoop loop(cluster.source, {Watch("node-dead")}, cluster.clock);
    QVERIFY(loop.Start(path, cluster.limits).ok());
    QVERIFY(tick(loop));
    const base::MutexLock lock(cluster.mutex);
    QCOMPARE(cluster.shown.value->size(), std::size_t{1});
    const session::Alert& alert = cluster.shown.value->front();
    QCOMPARE(alert.state, State::kFiring);
    QCOMPARE(QString::fromStdString(alert.acknowledged_by), QString("ada"));
    QCOMPARE(alert.silenced_until_ms, until_ms);
    QCOMPARE(QString::fromStdString(alert.silence_reason), QString("being repaired"));
  }

  // An alert that was over and a silence that has ended are not restored.
  void Restore_TakesOnlyWhatHolds() {
    session::Alert over, late;
    over.id = "node-dead/node/a";
    over.state = State::kResolved;
    over.acknowledged_by = "ada";
    late.id = "node-dead/node/b";
    late.state = State::kFiring;
    late.silenced_until_ms = kStart - 1;
    AlertEngine engine({Watch("node-dead")});
    const session::Snapshot well = Changed(1, [](auto&...) {});
    engine.Evaluate(well, kLiveLink);
    engine.Restore({over, late});
    QVERIFY(engine.alerts().empty());
    // A restored alert ends if its rule does not hold at the next evaluation.
    late.acknowledged_by = "ada";
    engine.Restore({late});
    QCOMPARE(engine.alerts().size(), std::size_t{1});
    engine.Evaluate(Changed(2, [](auto&...) {}), kLiveLink);
    QCOMPARE(engine.alerts().size(), std::size_t{1});
    QCOMPARE(engine.alerts()[0].state, State::kResolved);
  }
};

}  // namespace onepiece::history

ONEPIECE_TEST(onepiece::history::AlertsTest)
#include "alerts_test.moc"
