// Tests the command line from outside: exit codes, streams and JSON. Scripts stand in for the
// services.
#include <sys/mount.h>
#include <unistd.h>

#include <QtTest>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::Outcome;

}  // namespace

class CliTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    temp_ = std::make_unique<QTemporaryDir>();
    root_ = temp_->path().toStdString();
    fs::create_directories(root_ + "/bin");
    fs::create_directories(root_ + "/lib/onepiece/stages");
    for (const char* role : {"nodemanager", "proxy", "database", "instance"}) {
      const std::string program = root_ + "/bin/onepiece-" + role;
      fs::copy_file(ONEPIECE_SOURCE_DIR "/tests/local/fake_service.sh", program);
      fs::permissions(program, fs::perms::owner_all);
    }
    fs::create_symlink(ONEPIECE_BINARY_DIR "/bin/onepiece-model", root_ + "/bin/onepiece-model");
  }

  void Help_NamesVerbsAndExitCodes() {
    const Outcome outcome = Run({"--help"});
    QCOMPARE(outcome.exit_code, 0);
    for (const char* word :
         {"up", "submit", "generate", "verify", "75 deadline", "78 bad configuration"}) {
      QVERIFY2(outcome.out.find(word) != std::string::npos, word);
    }
  }

  void BadUsage_Is2_AndStdoutStaysEmpty_data() {
    QTest::addColumn<QStringList>("arguments");
    QTest::newRow("no verb") << QStringList{};
    QTest::newRow("unknown verb") << QStringList{"frobnicate"};
    QTest::newRow("unknown flag") << QStringList{"status", "--frobnicate"};
    QTest::newRow("uid missing") << QStringList{"get"};
    QTest::newRow("steps is no number") << QStringList{"submit", "--steps", "many"};
    QTest::newRow("priority out of range") << QStringList{"submit", "--priority", "101"};
    QTest::newRow("negative deadline") << QStringList{"submit", "--deadline", "-1"};
    QTest::newRow("output without wait") << QStringList{"submit", "--prompt", "x", "-o", "out.mp4"};
    QTest::newRow("parameter without value") << QStringList{"submit", "--param", "x"};
    QTest::newRow("image is missing") << QStringList{"submit", "--image", "/nowhere/photo.png"};
    QTest::newRow("image is a folder") << QStringList{"submit", "--image", "/"};
    QTest::newRow("image is empty") << QStringList{"submit", "--image", "/dev/null"};
    QTest::newRow("image has no end") << QStringList{"submit", "--image", "/dev/zero"};
    QTest::newRow("even number of replicas") << QStringList{"up", "--nodemanagers", "2"};
    QTest::newRow("cluster, no verb") << QStringList{"cluster"};
    QTest::newRow("seat without address") << QStringList{"cluster", "add", "nodemanager-4"};
    QTest::newRow("log of no lines") << QStringList{"cluster", "log", "--limit", "0"};
    QTest::newRow("input without name") << QStringList{"submit", "--input", "=photo.png"};
    QTest::newRow("input without file") << QStringList{"submit", "--input", "image="};
    QTest::newRow("generate, image is missing")
        << QStringList{"generate", "--prompt", "x", "--image", "/nowhere/photo.png"};
    QTest::newRow("generate, an input that the application does not take") << QStringList{
        "generate", "--prompt", "x", "--input", "mask=" ONEPIECE_SOURCE_DIR "/LICENSE"};
  }
  void BadUsage_Is2_AndStdoutStaysEmpty() {
    QFETCH(QStringList, arguments);
    const Outcome outcome = Run(arguments);
    QCOMPARE(outcome.exit_code, 2);
    QVERIFY(outcome.out.empty());
    QVERIFY(!outcome.err.empty());
  }

  void BadUsage_WithJson_IsOneDocument() {
    const Outcome outcome = Run({"get", "--json"});
    QCOMPARE(outcome.exit_code, 2);
    QCOMPARE(outcome.Document()["error"].value("reason", ""), std::string("USAGE"));
  }

  void NodeManagerFlag_TakesOneArgument() {
    const QString file = ONEPIECE_SOURCE_DIR "/resources/workflows/tiny-wan-t2v.yaml";
    QCOMPARE(Run({"workflow", "check", "--nodemanager", "127.0.0.1:1", file}).exit_code, 0);
  }

  void NoCluster_Is69_WithOneJsonDocument() {
    for (const QStringList& verb :
         {QStringList{"status"}, QStringList{"jobs"}, QStringList{"cluster", "status"},
          QStringList{"cluster", "step-down"}, QStringList{"submit", "--prompt", "x"},
          QStringList{"get", "01234567-89ab-7def-8123-456789abcdef"}}) {
      const Outcome outcome = Run(verb + QStringList{"--json"});
      QCOMPARE(outcome.exit_code, 69);
      QCOMPARE(outcome.Document()["error"].value("reason", ""), std::string("NO_CLUSTER"));
    }
  }

  void ClusterStatus_NobodyAnswers_Is69AndSaysWhatToDo() {
    const Outcome outcome =
        Run({"cluster", "status", "--nodemanager", "127.0.0.1:1,127.0.0.1:2", "--json"});
    QCOMPARE(outcome.exit_code, 69);
    const json document = outcome.Document();
    QCOMPARE(document["replicas"].size(), std::size_t{2});
    QCOMPARE(document["replicas"][0].value("role", ""), std::string("unreachable"));
    QVERIFY(!document.value("healthy", true));
    QVERIFY2(document["advice"][0].get<std::string>().find("0 of 2 answer") != std::string::npos,
             outcome.out.c_str());
    QCOMPARE(Run({"cluster", "members", "--nodemanager", "127.0.0.1:1"}).exit_code, 69);
  }

  void ManagerVerbs_OnlyAProxyIsGiven_AreAUsageError() {
    for (const QStringList& verb :
         {QStringList{"cluster", "status"}, QStringList{"cluster", "step-down"},
          QStringList{"workflow", "list"}, QStringList{"rings"}}) {
      const Outcome outcome = Run(verb + QStringList{"--proxy", "127.0.0.1:1", "--json"});
      QCOMPARE(outcome.exit_code, 2);
      QCOMPARE(outcome.Document()["error"].value("reason", ""), std::string("NO_NODEMANAGER"));
    }
  }

  void ClusterHelp_NamesEveryVerb() {
    const Outcome outcome = Run({"cluster", "--help"});
    QCOMPARE(outcome.exit_code, 0);
    for (const char* verb :
         {"status", "members", "add", "remove", "replace", "step-down", "snapshot", "log"}) {
      QVERIFY2(outcome.out.find(std::string("  ") + verb + " ") != std::string::npos, verb);
    }
  }

  void Get_TextThatIsNoUid_Is3() { QCOMPARE(Run({"get", "nosuch"}).exit_code, 3); }

  void Down_NothingRan_Is0() {
    const Outcome outcome = Run({"down", "--json"});
    QCOMPARE(outcome.exit_code, 0);
    QCOMPARE(outcome.Document().value("stopped", true), false);
  }

  void WorkflowCheck_SaysWhere_data() {
    QTest::addColumn<QString>("text");
    QTest::addColumn<int>("exit_code");
    QTest::addColumn<QString>("says");
    QTest::newRow("unknown field")
        << "app_id: a\nstages:\n  - stage: x\n    plugin: y\n    colour: red\n"
        << 78 << ":5:";
    QTest::newRow("wrong type")
        << "app_id: a\nstages:\n  - stage: x\n    plugin: y\n    threads: many\n"
        << 78 << ":5:";
    QTest::newRow("not YAML") << "app_id: [\n" << 78 << ":";
    QTest::newRow("no stage") << "app_id: a\n" << 78 << "stage";
    QTest::newRow("good") << "app_id: a\nstages:\n  - stage: x\n    plugin: y\n" << 0 << "";
  }
  void WorkflowCheck_SaysWhere() {
    QFETCH(QString, text);
    QFETCH(int, exit_code);
    QFETCH(QString, says);
    const std::string file = root_ + "/workflow.yaml";
    std::ofstream(file) << text.toStdString();
    const Outcome outcome = Run({"workflow", "check", QString::fromStdString(file)});
    QVERIFY2(outcome.exit_code == exit_code, outcome.err.c_str());
    QVERIFY2(outcome.err.find(says.toStdString()) != std::string::npos, outcome.err.c_str());
  }

  void WorkflowCheck_ShippedExamples_AreGood() {
    for (const QString name :
         {"tiny-wan-t2v", "tiny-wan-i2v", "tiny-wan-t2v-fused", "tiny-wan-i2v-fused"}) {
      const QString file = ONEPIECE_SOURCE_DIR "/resources/workflows/" + name + ".yaml";
      const Outcome outcome = Run({"workflow", "check", file});
      QVERIFY2(outcome.exit_code == 0, outcome.err.c_str());
    }
  }

  void Up_ServiceDies_SaysWhyAndLeavesNothing() {
    std::ofstream(root_ + "/bin/behaviour.proxy-1") << "die";
    const Outcome outcome = Run({"up", "--json"});
    QCOMPARE(outcome.exit_code, 1);
    QVERIFY2(
        outcome.err.find("proxy-1 ended with exit code 3: the port is taken") != std::string::npos,
        outcome.err.c_str());
    QCOMPARE(outcome.Document()["error"].value("reason", ""), std::string("START_FAILED"));
    QVERIFY(!fs::exists(root_ + "/data/cluster.json"));
    QVERIFY(fs::is_empty(root_ + "/data/run"));
  }

  void Up_BadConfig_Is78_WithThePlace() {
    const std::string file = root_ + "/cluster.yaml";
    std::ofstream(file) << "proxies: 1\ndatabase: 2\n";
    const Outcome outcome = Run({"up", "--config", QString::fromStdString(file)});
    QCOMPARE(outcome.exit_code, 78);
    QVERIFY2(outcome.err.find(":2:") != std::string::npos, outcome.err.c_str());
    QCOMPARE(Run({"up", "--config", "/nonexistent.yaml"}).exit_code, 78);
  }

  void Up_DataDirIsAFile_NamesIt() {
    std::ofstream(root_ + "/data") << "x";
    const Outcome outcome = Run({"up"});
    QCOMPARE(outcome.exit_code, 4);
    QVERIFY(outcome.err.find(root_ + "/data") != std::string::npos);
  }

  void Up_FullDisk_SaysSo() {
    const std::string disk = root_ + "/data";
    fs::create_directories(disk);
    if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=1m") != 0)
      QSKIP("mounting a small disk needs privileges");
    const Outcome outcome = Run({"up", "--json"});
    umount(disk.c_str());
    QCOMPARE(outcome.exit_code, 1);
    QCOMPARE(outcome.Document()["error"].value("reason", ""), std::string("DISK_FULL"));
  }

  void Up_ProgramMissing_NamesIt() {
    fs::remove(root_ + "/bin/onepiece-database");
    const Outcome outcome = Run({"up"});
    QCOMPARE(outcome.exit_code, 3);
    QVERIFY(outcome.err.find("onepiece-database") != std::string::npos);
  }

  void Generate_UnknownApp_Is3() {
    QCOMPARE(Run({"generate", "--app", "nosuch", "--prompt", "x"}).exit_code, 3);
  }

  void Verify_NoSuchFolder_Is3() {
    QCOMPARE(Run({"verify", "/nonexistent", "--json"}).exit_code, 3);
  }

 private:
  Outcome Run(const QStringList& arguments) {
    return testing::RunProgram(ONEPIECE_BINARY_DIR "/bin/onepiece", arguments, 30,
                               {{"ONEPIECE_BIN_DIR", QString::fromStdString(root_ + "/bin")},
                                {"ONEPIECE_DATA_DIR", QString::fromStdString(root_ + "/data")},
                                {"ONEPIECE_NODEMANAGER", ""},
                                {"ONEPIECE_PROXIES", ""}});
  }

  std::unique_ptr<QTemporaryDir> temp_;
  std::string root_;
};

}  // namespace onepiece::cli

ONEPIECE_TEST(onepiece::cli::CliTest)
#include "cli_test.moc"
