// Tests what counts as a change of a configuration.
#include "cluster/config/config_changes.h"

#include <QtTest>

#include "cluster/config/yaml.h"
#include "tests/test_main.h"

namespace onepiece::config {
namespace {

v1::ClusterConfig Config(const std::string& yaml) {
  v1::ClusterConfig config;
  const absl::Status status = ParseYaml(yaml, "test", &config);
  if (!status.ok()) qFatal("%s", status.ToString().c_str());
  return config;
}

/// Returns "path: before -> after" for each change.
QStringList Changes(const v1::ClusterConfig& before, const v1::ClusterConfig& after) {
  QStringList lines;
  for (const v1::ConfigChange& change : ConfigChanges(before, after)) {
    lines << QString::fromStdString(change.path() + ": " + change.before() + " -> " +
                                    change.after());
  }
  return lines;
}
QStringList Changes(const std::string& before, const std::string& after) {
  return Changes(Config(before), Config(after));
}

constexpr char kWorkflow[] = R"(
workflows:
  - app_id: film
    stages:
      - {stage: encode, plugin: wan, threads: 2}
      - {stage: diffuse, plugin: wan}
      - {stage: decode, plugin: wan}
)";

}  // namespace

class ConfigChangesTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Sections_AreTheFields() {
    QVERIFY((ConfigSections() == std::vector<std::string>{"elasticity", "liveness", "workflow_sets",
                                                          "workflows", "alerts", "limits"}));
    const v1::ClusterConfig config = Config("alerts: [{name: a}]\nliveness: {}\nworkflows: []");
    QVERIFY((SectionsOf(config) == std::vector<std::string>{"liveness", "alerts"}));
  }

  void Changes_AreFieldByField_data() {
    QTest::addColumn<QString>("before");
    QTest::addColumn<QString>("after");
    QTest::addColumn<QStringList>("changes");
    const auto row = [](const char* name, const char* before, const char* after,
                        const QStringList& changes) {
      QTest::newRow(name) << before << after << changes;
    };
    row("nothing", kWorkflow, kWorkflow, {});
    row("changed", "elasticity: {policy: static, threshold: 0.5}",
        "elasticity: {policy: utilization, threshold: 0.5}",
        {"elasticity.policy: \"static\" -> \"utilization\""});
    row("set", "{}", "liveness: {dead_after_ms: 4000}", {"liveness.dead_after_ms:  -> 4000"});
    row("not set any more", "liveness: {dead_after_ms: 4000}", "{}",
        {"liveness.dead_after_ms: 4000 -> "});
    row("an empty section is none", "elasticity: {}", "{}", {});
    row("zero of an optional field is a value", "alerts: [{name: hot}]",
        "alerts: [{name: hot, above: 0}]", {"alerts[hot].above:  -> 0"});
    row("enum", "workflows: [{app_id: a, stages: [{stage: s}]}]",
        "workflows: [{app_id: a, stages: [{stage: s, mode: individual}]}]",
        {"workflows[a].stages[s].mode:  -> MODE_INDIVIDUAL"});
    row("text as it is", "{}", "workflows: [{app_id: a, display_name: Bär}]",
        {"workflows[a]:  -> {app_id: \"a\" display_name: \"Bär\"}"});
    row("element of an element", kWorkflow,
        "workflows: [{app_id: film, stages: [{stage: encode, plugin: wan, threads: 4}, "
        "{stage: diffuse, plugin: wan}, {stage: decode, plugin: wan}]}]",
        {"workflows[film].stages[encode].threads: 2 -> 4"});
    row("element comes", "workflow_sets: [{name: a}]", "workflow_sets: [{name: a}, {name: b}]",
        {"workflow_sets[b]:  -> {name: \"b\"}"});
    row("element goes", "workflow_sets: [{name: a, pools: [{pool: p, max_instances: 3}]}]",
        "workflow_sets: [{name: a}]",
        {"workflow_sets[a].pools[p]: {pool: \"p\" max_instances: 3} -> "});
    row("a stage is known by its stage, not by its pool",
        "workflows: [{app_id: a, stages: [{stage: s, pool: p}, {stage: t, pool: p}]}]",
        "workflows: [{app_id: a, stages: [{stage: s, pool: q}, {stage: t, pool: p}]}]",
        {"workflows[a].stages[s].pool: \"p\" -> \"q\""});
    row("unnamed elements are one value",
        "workflows: [{app_id: a, stages: [{stage: s, cost_terms: [{factors: [w]}]}]}]",
        "workflows: [{app_id: a, stages: [{stage: s, cost_terms: [{}, {factors: [w]}]}]}]",
        {"workflows[a].stages[s].cost_terms: [{factors: \"w\"}] -> [{}, {factors: \"w\"}]"});
    row("texts are one value", "workflows: [{app_id: a, stages: [{stage: s, after: [x, y]}]}]",
        "workflows: [{app_id: a, stages: [{stage: s, after: [y, x]}]}]",
        {"workflows[a].stages[s].after: [\"x\", \"y\"] -> [\"y\", \"x\"]"});
    row("what the server sets is no change", "workflows: [{app_id: a, name: workflows/a}]",
        "workflows: [{app_id: a}]", {});
  }
  void Changes_AreFieldByField() {
    QFETCH(QString, before);
    QFETCH(QString, after);
    QFETCH(QStringList, changes);
    QCOMPARE(Changes(before.toStdString(), after.toStdString()), changes);
  }

  void Order_OfStagesAndRulesIsAChange_OfOtherListsIsNone() {
    const v1::ClusterConfig before = Config(kWorkflow);
    v1::ClusterConfig after = before;
    after.mutable_workflows(0)->mutable_stages()->SwapElements(0, 2);
    QCOMPARE(Changes(before, after),
             QStringList{"workflows[film].stages: [encode, diffuse, decode] -> "
                         "[decode, diffuse, encode]"});
    // A stage that comes moves no other one.
    after = before;
    v1::StageSpec& upscale = *after.mutable_workflows(0)->add_stages();
    upscale.set_stage("upscale");
    after.mutable_workflows(0)->mutable_stages()->SwapElements(2, 3);
    QCOMPARE(Changes(before, after),
             QStringList{"workflows[film].stages[upscale]:  -> {stage: \"upscale\"}"});
    after.mutable_workflows(0)->mutable_stages()->SwapElements(0, 1);
    QCOMPARE(Changes(before, after).size(), 2);
    const std::string one =
        "workflow_sets: [{name: a}, {name: b}]\n"
        "alerts: [{name: a}, {name: b}]\n"
        "workflows: [{app_id: a}, {app_id: b}]\n";
    const std::string other =
        "workflow_sets: [{name: b}, {name: a}]\n"
        "alerts: [{name: b}, {name: a}]\n"
        "workflows: [{app_id: b}, {app_id: a}]\n";
    QCOMPARE(Changes(one, other), QStringList{"alerts: [a, b] -> [b, a]"});
  }

  void DuplicateNames_HideNothing() {
    QCOMPARE(
        Changes("alerts: [{name: a, text: x}]", "alerts: [{name: a, text: y}, {name: a, text: x}]"),
        QStringList{"alerts: [{name: \"a\" text: \"x\"}] -> [{name: \"a\" text: \"y\"}, {name: "
                    "\"a\" text: \"x\"}]"});
    QCOMPARE(Changes("alerts: [{text: x}, {text: y}]", "alerts: [{text: y}]").size(), 1);
  }

  void LongValues_AreCut_AndStillDiffer() {
    const std::string same(300, 'a');
    const QStringList changes = Changes("alerts: [{name: a, text: " + same + "x}]",
                                        "alerts: [{name: a, text: " + same + "y}]");
    QCOMPARE(changes.size(), 1);
    QVERIFY(changes[0].endsWith("…"));
    QVERIFY(changes[0].size() < 2 * 200 + 40);
  }
};

}  // namespace onepiece::config

ONEPIECE_TEST(onepiece::config::ConfigChangesTest)
#include "config_changes_test.moc"
