// The configuration of a real cluster: the example of the documents is accepted, what is exported
// changes nothing, an application comes and goes with a file, and a NodeManager's restart changes
// nothing.
#include <csignal>
#include <fstream>

#include "tests/e2e/cluster_fixture.h"
#include "tests/test_main.h"

namespace onepiece::e2e {
namespace {

const QString kExample = ONEPIECE_SOURCE_DIR "/docs/examples/cluster.yaml";

}  // namespace

class ConfigTest : public ClusterFixture {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() { QVERIFY(cluster_.Up()); }

  void Seed_IsTheFirstRevision() {
    const json config = cluster_.Run({"config", "get", "--json"}).Document();
    QCOMPARE(config["revision"], json(1));
    QVERIFY2(config.value("author", "").starts_with("files:"), config.dump().c_str());
    QCOMPARE(config["config"]["workflows"].size(), std::size_t{2});
    QVERIFY(config["config"]["liveness"].value("dead_after_ms", 0) > 0);
  }

  void Example_IsAccepted_AndDryRunChangesNothing() {
    const Outcome dry = cluster_.Run({"apply", "-f", kExample, "--dry-run"});
    QVERIFY2(dry.exit_code == 0, dry.err.c_str());
    for (const char* line :
         {"~ elasticity.threshold: ", "- workflows[tiny-wan-i2v]: ", "+ workflow_sets[default]: ",
          "+ alerts[pool-overloaded]: ", "Nothing has been changed (revision 1)"})
      QVERIFY2(dry.Says(line), dry.out.c_str());
    const json difference = cluster_.Run({"config", "diff", "-f", kExample, "--json"}).Document();
    const json planned = cluster_.Run({"apply", "-f", kExample, "--dry-run", "--json"}).Document();
    QVERIFY(!planned["changes"].empty());
    QCOMPARE(difference["changes"], planned["changes"]);
    QCOMPARE(Revision(), 1);
  }

  void Exported_ChangesNothing() {
    const QString file = QString::fromStdString(cluster_.Path("exported.yaml"));
    QCOMPARE(cluster_.Run({"config", "export", file}).exit_code, 0);
    const Outcome applied = cluster_.Run({"apply", "-f", file, "--json"});
    QVERIFY2(applied.exit_code == 0, applied.err.c_str());
    QVERIFY2(applied.Document()["changes"].empty(), applied.out.c_str());
    QCOMPARE(Revision(), 1);
  }

  void Set_OutlastsTheNodeManager() {
    const Outcome set = cluster_.Run({"config", "set", "elasticity.threshold", "0.7", "--reason",
                                      "quieter", "--actor", "operator:ann"});
    QVERIFY2(set.exit_code == 0, set.err.c_str());
    const int before = cluster_.PidOf("nodemanager-1");
    kill(before, SIGKILL);
    QVERIFY(Eventually([&] {
      const int now = cluster_.PidOf("nodemanager-1");
      return now != 0 && now != before && cluster_.EveryProcessReady();
    }));
    QCOMPARE(cluster_.Run({"config", "get", "elasticity.threshold"}).out, std::string("0.7\n"));
    const json history = cluster_.Run({"config", "history", "--json"}).Document()["revisions"];
    QCOMPARE(history.size(), std::size_t{2});
    QCOMPARE(history[0]["author"], json("operator:ann"));
    QCOMPARE(history[0]["reason"], json("quieter"));
    QCOMPARE(history[0]["changes"][0]["path"], json("elasticity.threshold"));
  }

  void Application_ComesWithAFile_AndGoesWithARollback() {
    const int before = Revision();
    json config = cluster_.Run({"config", "get", "--json"}).Document()["config"];
    json copy = config["workflows"][1];
    QCOMPARE(copy["app_id"], json("tiny-wan-t2v"));
    copy["app_id"] = "copy";
    config["workflows"].push_back(copy);
    // JSON is YAML.
    const std::string file = cluster_.Path("with-copy.yaml");
    std::ofstream(file) << json{{"workflows", config["workflows"]}}.dump();
    const Outcome applied =
        cluster_.Run({"apply", "-f", QString::fromStdString(file), "--wait", "--json"});
    QVERIFY2(applied.exit_code == 0, (applied.out + applied.err).c_str());
    const json document = applied.Document();
    QCOMPARE(document["served"], json(true));
    QCOMPARE(document["changes"].size(), std::size_t{1});
    QCOMPARE(document["changes"][0]["path"], json("workflows[copy]"));
    const std::string uid =
        cluster_.Submit({"--app", "copy", "--prompt", "a red circle", "--steps", "2"});
    QVERIFY(!uid.empty());
    const json job = cluster_.Watch(uid);
    QVERIFY2(job.value("state", "") == "SUCCEEDED", job.dump().c_str());

    const Outcome back = cluster_.Run(
        {"config", "rollback", QString::number(before), "--reason", "no copy", "--yes"});
    QVERIFY2(back.exit_code == 0, back.err.c_str());
    QVERIFY(back.Says("- workflows[copy]: "));
    QVERIFY(cluster_.Run({"config", "diff", QString::number(before)}).Says("Nothing differs"));
    QCOMPARE(cluster_.Run({"submit", "--app", "copy", "--prompt", "x"}).exit_code, 3);
    QCOMPARE(Revision(), before + 2);
  }

  void Example_IsServed() {
    const int before = Revision();
    const Outcome applied = cluster_.Run({"apply", "-f", kExample, "--wait", "--json"});
    QVERIFY2(applied.exit_code == 0, (applied.out + applied.err).c_str());
    const json job = cluster_.Watch(
        cluster_.Submit({"--app", "tiny-wan-t2v", "--prompt", "a red circle", "--steps", "2"}));
    QVERIFY2(job.value("state", "") == "SUCCEEDED", job.dump().c_str());
    const json costs = cluster_.Run({"rebalance", "status", "--json"}).Document()["costs"];
    QCOMPARE(costs.size(), std::size_t{3});
    QCOMPARE(costs[0]["app"], json("tiny-wan-t2v"));
    QCOMPARE(cluster_.Run({"config", "rollback", QString::number(before), "--reason", "r", "--yes"})
                 .exit_code,
             0);
  }

  void Alerts_OfTheConfigurationAreRecorded() {
    const std::string rules = cluster_.Path("alerts.yaml");
    std::ofstream(rules) << "alerts:\n"
                            "  - {name: here, watches: node/*/running_jobs, above: -1, text: x}\n";
    QCOMPARE(cluster_.Run({"apply", "-f", QString::fromStdString(rules)}).exit_code, 0);
    const QString file = QString::fromStdString(cluster_.Path("a.onepiece"));
    const Outcome recorded = cluster_.Run({"record", "--for", "5s", "--out", file});
    QVERIFY2(recorded.exit_code == 0, recorded.err.c_str());
    const json alerts = cluster_.Run({"show", "--file", file, "--json"}).Document()["alerts"];
    QVERIFY(!alerts.empty());
    for (const json& alert : alerts)
      QVERIFY2(alert.value("id", "").starts_with("here/"), alerts.dump().c_str());
  }

  void BadInput_IsRefused_AndChangesNothing_data() {
    QTest::addColumn<QString>("yaml");
    QTest::addColumn<int>("exit_code");
    QTest::addColumn<QString>("says");
    QTest::newRow("contradiction") << "liveness: {report_interval_ms: 3000, dead_after_ms: 3000}"
                                   << 78 << "report_interval_ms";
    QTest::newRow("unknown pool")
        << "workflow_sets: [{name: default, pools: [{pool: nobody/wan/x, max_instances: 2}]}]" << 78
        << "nobody/wan/x";
    QTest::newRow("policy") << "elasticity: {policy: best}" << 78 << "elasticity";
    QTest::newRow("workflow") << "workflows: [{app_id: a, stages: []}]" << 78 << "workflows[a]";
    QTest::newRow("rule") << "alerts: [{name: a, watches: node-dead}]" << 78 << "alerts";
    QTest::newRow("typing mistake")
        << "liveness: {dead_after: 1}" << 78 << "did you mean 'dead_after_ms'?";
  }
  void BadInput_IsRefused_AndChangesNothing() {
    QFETCH(QString, yaml);
    QFETCH(int, exit_code);
    QFETCH(QString, says);
    const int before = Revision();
    const std::string file = cluster_.Path("bad.yaml");
    std::ofstream(file) << yaml.toStdString() << "\n";
    const Outcome outcome = cluster_.Run({"apply", "-f", QString::fromStdString(file), "--json"});
    QVERIFY2(outcome.exit_code == exit_code, (outcome.out + outcome.err).c_str());
    QVERIFY2(outcome.Says(says.toStdString()), outcome.err.c_str());
    QCOMPARE(Revision(), before);
  }

 private:
  [[nodiscard]] int Revision() const {
    return cluster_.Run({"config", "get", "--json"}).Document().value("revision", 0);
  }
};

}  // namespace onepiece::e2e

ONEPIECE_TEST(onepiece::e2e::ConfigTest)
#include "config_test.moc"
