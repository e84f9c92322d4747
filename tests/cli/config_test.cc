// Tests `onepiece config` and `onepiece apply` from outside, against a NodeManager that keeps
// revisions in memory.
#include <QtTest>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cluster/config/config_changes.h"
#include "cluster/config/yaml.h"
#include "tests/cli/fake_config.h"
#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece::cli {
namespace {

using nlohmann::json;
using testing::Outcome;

const QString kConfigProgram = ONEPIECE_BINARY_DIR "/bin/onepiece";

v1::ClusterConfig Config(const std::string& yaml) {
  v1::ClusterConfig config;
  const absl::Status status = config::ParseYaml(yaml, "test", &config);
  if (!status.ok()) qFatal("%s", status.ToString().c_str());
  return config;
}

constexpr char kFirst[] = R"(
elasticity: {policy: utilization, threshold: 0.85}
liveness: {dead_after_ms: 3000}
workflows:
  - {app_id: film, name: workflows/film, stages: [{stage: encode, plugin: wan}]}
  - {app_id: clip, name: workflows/clip, stages: [{stage: encode, plugin: wan}]}
)";

/// Returns a cluster in which an instance does this for the application "film".
v1::Cluster Serving(v1::Activity activity) {
  v1::Cluster cluster;
  *cluster.mutable_workflows() = Config(kFirst).workflows();
  v1::Node& proxy = *cluster.add_nodes();
  proxy.set_role(v1::PROXY);
  proxy.set_state(v1::Node::READY);
  proxy.set_workflow_set("default");
  v1::Node& instance = *cluster.add_nodes();
  instance.set_node_id("instance-1");
  instance.set_role(v1::INSTANCE);
  instance.set_state(v1::Node::READY);
  instance.set_workflow_set("default");
  instance.set_activity(activity);
  *instance.mutable_assignment()->mutable_stage() = cluster.workflows(0).stages(0);
  instance.mutable_assignment()->add_app_ids("film");
  instance.mutable_assignment()->add_app_ids("clip");
  return cluster;
}

}  // namespace

class ConfigTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    folder_ = std::make_unique<QTemporaryDir>();
    fake_ = std::make_unique<FakeConfig>();
    fake_->Set(Config(kFirst), "files:nodemanager-1", "the cluster began");
  }

  void Get_ShowsTheWholeAndParts() {
    const Outcome whole = Run({"config", "get"});
    QCOMPARE(whole.exit_code, 0);
    QVERIFY(whole.Says("elasticity:\n  policy: utilization\n  threshold: 0.85\n"));
    QVERIFY(!whole.Says("workflows/film"));  // The server sets it.
    QCOMPARE(Run({"config", "get", "elasticity.threshold"}).out, std::string("0.85\n"));
    QCOMPARE(Run({"config", "get", "workflows[film].stages[encode].plugin"}).out,
             std::string("wan\n"));
    const Outcome unset = Run({"config", "get", "elasticity.window_s"});
    QCOMPARE(unset.exit_code, 0);
    QVERIFY(unset.out.empty() && unset.Says("its default holds"));
    const json document = Run({"config", "get", "--json"}).Document();
    QCOMPARE(document["revision"], json(1));
    QCOMPARE(document["author"], json("files:nodemanager-1"));
    QCOMPARE(document["config"]["elasticity"]["threshold"], json(0.85));
    QCOMPARE(Run({"config", "get", "liveness", "--json"}).Document()["value"],
             json({{"dead_after_ms", 3000}}));
    QVERIFY(Run({"config", "get", "elasticity.window_s", "--json"}).Document()["value"].is_null());
  }

  void Get_WhatIsUnknown_Is3() {
    const Outcome field = Run({"config", "get", "elasticity.treshold"});
    QCOMPARE(field.exit_code, 3);
    QVERIFY(field.Says("did you mean 'threshold'?"));
    const Outcome revision = Run({"config", "get", "--revision", "9", "--json"});
    QCOMPARE(revision.exit_code, 3);
    QCOMPARE(revision.ErrorReason(), std::string("REVISION_UNKNOWN"));
  }

  void Get_OfAnEarlierRevision() {
    QCOMPARE(Run({"config", "set", "elasticity.threshold", "0.7", "--reason", "r"}).exit_code, 0);
    QCOMPARE(Run({"config", "get", "elasticity.threshold", "--revision", "1"}).out,
             std::string("0.85\n"));
    QCOMPARE(Run({"config", "get", "elasticity.threshold"}).out, std::string("0.7\n"));
  }

  void Set_ReplacesOneSection_OnWhatItHasRead() {
    const Outcome outcome = Run({"config", "set", "elasticity.threshold", "0.7", "--reason",
                                 "quieter nights", "--actor", "operator:ann"});
    QVERIFY2(outcome.exit_code == 0, outcome.err.c_str());
    QVERIFY(outcome.Says("~ elasticity.threshold: 0.85 → 0.7\n"));
    QVERIFY(outcome.Says("now revision 2"));
    const v1::ApplyConfigRequest request = fake_->applied().at(0);
    QCOMPARE(request.base_revision(), std::uint64_t{1});
    QCOMPARE(request.sections_size(), 1);
    QCOMPARE(request.sections(0), std::string("elasticity"));
    QCOMPARE(request.actor(), std::string("operator:ann"));
    QCOMPARE(request.reason(), std::string("quieter nights"));
    QVERIFY(!request.request_id().empty());
    QCOMPARE(fake_->present().config().workflows_size(), 2);
    const json again =
        Run({"config", "set", "elasticity.threshold", "0.7", "--reason", "r", "--json"}).Document();
    QCOMPARE(again["changed"], json(false));
    QCOMPARE(again["revision"], json(2));
  }

  void Set_NeedsAReason() {
    QCOMPARE(Run({"config", "set", "elasticity.threshold", "0.7"}).exit_code, 2);
    QVERIFY(fake_->applied().empty());
  }

  void Set_WrongValue_Is78_AndAsksNobody() {
    const Outcome outcome =
        Run({"config", "set", "elasticity.threshold", "high", "--reason", "r", "--json"});
    QCOMPARE(outcome.exit_code, 78);
    QCOMPARE(outcome.ErrorReason(), std::string("BAD_CONFIG"));
    QVERIFY(fake_->applied().empty());
  }

  // Somebody else was faster: the change is refused and not tried again.
  void Set_Stale_IsTold() {
    v1::ClusterConfig other = Config(kFirst);
    other.mutable_elasticity()->set_threshold(0.5);
    fake_->ChangeBeforeNextApply(other);
    const Outcome outcome =
        Run({"config", "set", "elasticity.policy", "static", "--reason", "r", "--json"});
    QCOMPARE(outcome.exit_code, 4);
    QCOMPARE(outcome.ErrorReason(), std::string("STALE_REVISION"));
    QCOMPARE(fake_->applied().size(), std::size_t{1});
    QCOMPARE(fake_->present().config().elasticity().threshold(), 0.5);
  }

  void Diff_OfRevisions() {
    QVERIFY(Run({"config", "diff"}).Says("+ elasticity.policy: \"utilization\""));
    QCOMPARE(Run({"config", "set", "elasticity.threshold", "0.7", "--reason", "r"}).exit_code, 0);
    QCOMPARE(Run({"config", "set", "liveness.dead_after_ms", "0", "--reason", "r"}).exit_code, 0);
    QCOMPARE(Run({"config", "diff"}).out,
             std::string("- liveness.dead_after_ms: 3000\n0 added, 0 changed, 1 removed\n"));
    QCOMPARE(Run({"config", "diff", "1", "2"}).out,
             std::string("~ elasticity.threshold: 0.85 → 0.7\n0 added, 1 changed, 0 removed\n"));
    const json document = Run({"config", "diff", "1", "--json"}).Document();
    QCOMPARE(document["from"], json("1"));
    QCOMPARE(document["to"], json("3"));
    QCOMPARE(document["changes"].size(), std::size_t{2});
    QCOMPARE(document["changes"][0]["path"], json("elasticity.threshold"));
    QVERIFY(Run({"config", "diff", "2", "2"}).Says("Nothing differs"));
    QCOMPARE(Run({"config", "diff", "1", "9"}).exit_code, 3);
  }

  void Diff_WithAFile_LooksAtItsSectionsOnly() {
    const QString file = Write("elasticity: {policy: utilization, threshold: 0.9}\n");
    const Outcome outcome = Run({"config", "diff", "-f", file});
    QCOMPARE(outcome.out,
             std::string("~ elasticity.threshold: 0.85 → 0.9\n0 added, 1 changed, 0 removed\n"));
    QCOMPARE(fake_->applied().size(), std::size_t{1});
    QVERIFY(fake_->applied()[0].validate_only());
    QCOMPARE(fake_->present().revision(), std::uint64_t{1});
    QCOMPARE(Run({"config", "diff", "1", "-f", file}).exit_code, 2);
  }

  void History_IsNewestFirst_OverPages() {
    for (const char* value : {"0.7", "0.6", "0.5"}) {
      QCOMPARE(Run({"config", "set", "elasticity.threshold", value, "--reason",
                    QString("to %1").arg(value)})
                   .exit_code,
               0);
    }
    const Outcome outcome = Run({"config", "history"});
    const QStringList lines = QString::fromStdString(outcome.out).split('\n', Qt::SkipEmptyParts);
    QCOMPARE(lines.size(), 5);
    QCOMPARE(lines[0].simplified(), QString("REVISION TIME (UTC) AUTHOR WHAT REASON"));
    QVERIFY(lines[1].startsWith("4 ") && lines[1].contains("elasticity.threshold") &&
            lines[1].endsWith("to 0.5"));
    QVERIFY(lines[4].contains("files:nodemanager-1") && lines[4].contains(" and 2 more"));
    const json limited = Run({"config", "history", "--limit", "3", "--json"}).Document();
    QCOMPARE(limited["revisions"].size(), std::size_t{3});
    QCOMPARE(limited["revisions"][2]["revision"], json(2));
    QCOMPARE(limited["revisions"][0]["changes"][0]["after"], json("0.5"));
  }

  void Rollback_BringsBackAllSections() {
    v1::ClusterConfig second = Config("elasticity: {policy: static}\nalerts: [{name: hot}]");
    fake_->Set(second, "operator:eve", "oops");
    const Outcome outcome = Run({"config", "rollback", "1", "--reason", "undo", "--yes"});
    QVERIFY2(outcome.exit_code == 0, outcome.err.c_str());
    // The difference comes first.
    QVERIFY(outcome.err.find("- alerts[hot]: {name: \"hot\"}") != std::string::npos);
    QVERIFY(outcome.Says("now revision 3, which is as revision 1 was"));
    QVERIFY(config::ConfigChanges(fake_->present().config(), Config(kFirst)).empty());
    const v1::ApplyConfigRequest request = fake_->applied().back();
    QCOMPARE(static_cast<std::size_t>(request.sections_size()), config::ConfigSections().size());
    QCOMPARE(request.base_revision(), std::uint64_t{2});
    QVERIFY(fake_->applied().front().validate_only());
    const json again =
        Run({"config", "rollback", "1", "--reason", "undo", "--yes", "--json"}).Document();
    QCOMPARE(again["changed"], json(false));
    QCOMPARE(fake_->present().revision(), std::uint64_t{3});
    QCOMPARE(Run({"config", "rollback", "9", "--reason", "r", "--yes"}).exit_code, 3);
    QCOMPARE(Run({"config", "rollback", "1"}).exit_code, 2);
    QCOMPARE(Run({"config", "rollback", "0", "--reason", "r"}).exit_code, 2);
  }

  void Export_IsReadBackWithNoDifference() {
    const QString file = folder_->filePath("exported.yaml");
    const Outcome outcome = Run({"config", "export", file});
    QVERIFY2(outcome.exit_code == 0, outcome.err.c_str());
    const Outcome applied = Run({"apply", "-f", file, "--json"});
    QVERIFY2(applied.exit_code == 0, applied.err.c_str());
    QCOMPARE(applied.Document()["changed"], json(false));
    QCOMPARE(applied.Document()["changes"], json::array());
    const Outcome there = Run({"config", "export", file, "--json"});
    QCOMPARE(there.exit_code, 4);
    QCOMPARE(there.ErrorReason(), std::string("FILE_EXISTS"));
    const Outcome out = Run({"config", "export"});
    QVERIFY(out.out.starts_with("# The cluster's configuration, revision 1 of 2023-11-14"));
    QVERIFY(out.Says("by files:nodemanager-1: the cluster began."));
  }

  void Apply_ReplacesOnlyWhatIsInTheFile() {
    const QString file = Write("elasticity: {policy: static}\nalerts: [{name: hot, above: 0}]\n");
    const Outcome dry = Run({"apply", "-f", file, "--dry-run"});
    QVERIFY2(dry.exit_code == 0, dry.err.c_str());
    QVERIFY(dry.Says("Nothing has been changed (revision 1)"));
    QCOMPARE(fake_->present().revision(), std::uint64_t{1});
    const Outcome outcome = Run({"apply", "-f", file, "--reason", "night"});
    QCOMPARE(outcome.out, std::string("~ elasticity.policy: \"utilization\" → \"static\"\n"
                                      "- elasticity.threshold: 0.85\n"
                                      "+ alerts[hot]: {name: \"hot\" above: 0}\n"
                                      "1 added, 1 changed, 1 removed\n"
                                      "The configuration is now revision 2.\n"));
    QCOMPARE(fake_->present().reason(), std::string("night"));
    QVERIFY(fake_->present().author().starts_with("operator:"));
    QCOMPARE(fake_->present().config().workflows_size(), 2);
    const Outcome again = Run({"apply", "-f", file});
    QCOMPARE(again.exit_code, 0);
    QVERIFY(again.Says("Nothing to change (revision 2)"));
    QCOMPARE(fake_->present().revision(), std::uint64_t{2});
  }

  void Apply_EmptySections_ShowWhatGoes() {
    const Outcome outcome = Run({"apply", "-f", Write("workflows: []\n")});
    QVERIFY2(outcome.exit_code == 0, outcome.err.c_str());
    QVERIFY(outcome.Says("- workflows[clip]: ") && outcome.Says("- workflows[film]: "));
    QVERIFY(outcome.Says("0 added, 0 changed, 2 removed"));
    QCOMPARE(fake_->present().config().workflows_size(), 0);
  }

  void Apply_BadFiles_Are78_data() {
    QTest::addColumn<QString>("text");
    QTest::addColumn<QString>("says");
    QTest::newRow("workflow") << "app_id: film\nstages: []\n"
                              << "this is the file of one workflow";
    QTest::newRow("field") << "elasticity: {treshold: 1}\n"
                           << "cluster.yaml:1:14: unknown key 'treshold'";
    QTest::newRow("nothing") << "# nothing\n"
                             << "no section in it";
  }
  void Apply_BadFiles_Are78() {
    QFETCH(QString, text);
    QFETCH(QString, says);
    const Outcome outcome = Run({"apply", "-f", Write(text.toStdString()), "--json"});
    QCOMPARE(outcome.exit_code, 78);
    QCOMPARE(outcome.ErrorReason(), std::string("BAD_CONFIG"));
    QVERIFY2(outcome.Says(says.toStdString()), outcome.err.c_str());
    QVERIFY(fake_->applied().empty());
  }

  void Apply_MissingFile_Is78() {
    const Outcome outcome = Run({"apply", "-f", folder_->filePath("none.yaml"), "--json"});
    QCOMPARE(outcome.exit_code, 78);
    QVERIFY(outcome.Says("cannot be read"));
  }

  void Apply_Refused_HasItsExitCode() {
    fake_->Refuse(base::MakeError(absl::StatusCode::kFailedPrecondition, "BELOW_USE",
                                  "3 instances serve it"));
    const Outcome outcome = Run({"apply", "-f", Write("liveness: {}\n"), "--json"});
    QCOMPARE(outcome.exit_code, 4);
    QCOMPARE(outcome.ErrorReason(), std::string("BELOW_USE"));
  }

  void Apply_ReadsTheStandardInput() {
    QProcess process;
    process.start(kConfigProgram, Arguments({"apply", "-f", "-", "--json"}));
    QVERIFY(process.waitForStarted());
    process.write("liveness: {dead_after_ms: 4000}\n");
    process.closeWriteChannel();
    QVERIFY(process.waitForFinished());
    QCOMPARE(process.exitCode(), 0);
    QCOMPARE(fake_->present().config().liveness().dead_after_ms(), 4000);
    QCOMPARE(fake_->present().reason(), std::string("apply -f -"));
  }

  void Wait_EndsWhenEverythingIsServed() {
    fake_->SetClusters({Serving(v1::LOADING), Serving(v1::LOADING), Serving(v1::SERVING)});
    const Outcome outcome = Run({"apply", "-f", Write("liveness: {}\n"), "--wait"});
    QVERIFY2(outcome.exit_code == 0, outcome.err.c_str());
    QVERIFY(outcome.err.find("instance-1 loads encode\n") != std::string::npos);
    QVERIFY(outcome.err.find("Everything is served") != std::string::npos);
    fake_->SetClusters({Serving(v1::SERVING)});
    const Outcome document = Run({"apply", "-f", Write("liveness: {}\n"), "--wait", "--json"});
    QCOMPARE(document.Document()["served"], json(true));
    QCOMPARE(document.Document()["missing"], json::array());
  }

  void Wait_SaysAtTheDeadlineWhatIsMissing() {
    fake_->SetClusters({Serving(v1::LOADING)});
    const Outcome outcome =
        Run({"apply", "-f", Write("liveness: {}\n"), "--wait", "--timeout", "1", "--json"});
    QCOMPARE(outcome.exit_code, 75);
    const json document = outcome.Document();
    QCOMPARE(document["served"], json(false));
    QCOMPARE(document["missing"], json::array({"instance-1 loads encode"}));
    QCOMPARE(document["changed"], json(true));
    const Outcome text = Run({"apply", "-f", Write("liveness: {}\n"), "--wait", "--timeout", "1"});
    QCOMPARE(text.exit_code, 75);
    QVERIFY(text.err.find("this is missing:\n  instance-1 loads encode") != std::string::npos);
  }

 private:
  QString Write(const std::string& text) const {
    const QString path = folder_->filePath("cluster.yaml");
    std::ofstream(path.toStdString()) << text;
    return path;
  }
  QStringList Arguments(const QStringList& arguments) const {
    return arguments + QStringList{"--nodemanager", QString::fromStdString(fake_->address())};
  }
  Outcome Run(const QStringList& arguments) const {
    return testing::RunProgram(kConfigProgram, Arguments(arguments));
  }

  std::unique_ptr<QTemporaryDir> folder_;
  std::unique_ptr<FakeConfig> fake_;
};

}  // namespace onepiece::cli

ONEPIECE_TEST(onepiece::cli::ConfigTest)
#include "config_test.moc"
