#include "cluster/service/options.h"

#include <QTemporaryDir>
#include <QtTest>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/service/program.h"
#include "tests/test_main.h"

namespace onepiece::service {

class OptionsTest : public QObject {
  Q_OBJECT
 private:
  ServiceOptions::Parsed Parse(std::vector<const char*> arguments) {
    config_.Clear();
    options_ = std::make_unique<ServiceOptions>(ProgramInfo{.program = "onepiece-instance",
                                                            .role = "instance",
                                                            .description = "Computes stages.",
                                                            .device_field = "device"},
                                                &config_);
    options_->Bind("--pinned-stage", "pinned_stage", "Serve this stage only");
    options_->Bind("--device", "device", "Device");
    options_->Bind("--workers", "workers", "Workers");
    options_->Bind("--ring-bytes", "ring.capacity_bytes", "Payload bytes of the ring");
    arguments.insert(arguments.begin(), "onepiece-instance");
    return options_->Parse(static_cast<int>(arguments.size()), arguments.data());
  }
  std::string WriteFile(const std::string& text) {
    const std::string path = dir_.path().toStdString() + "/config.yaml";
    std::ofstream(path) << text;
    return path;
  }

 private Q_SLOTS:
  void cleanup() {
    qunsetenv("ONEPIECE_PINNED_STAGE");
    qunsetenv("ONEPIECE_NODEMANAGER");
  }

  void Parse_FillsInDefaults() {
    QCOMPARE(Parse({"--nodemanager", "localhost:1"}).outcome, ServiceOptions::Outcome::kRun);
    QVERIFY(options_->node().node_id().ends_with(".cpu"));
    QCOMPARE(options_->node().listen(), std::string("127.0.0.1:0"));
    QCOMPARE(options_->node().metrics_address(), std::string("127.0.0.1:0"));
    QCOMPARE(options_->node().workflow_set(), std::string("default"));
    QVERIFY(options_->node().data_dir().ends_with("/onepiece/" + options_->node().node_id()));
  }

  void Parse_FlagGoesBeforeEnvironmentBeforeFile() {
    const std::string file = WriteFile(
        "node: {node_id: from-file, nodemanagers: [\"a:1\"]}\npinned_stage: file\nworkers: 3\n");
    Parse({"--config", file.c_str()});
    QCOMPARE(config_.pinned_stage(), std::string("file"));
    QCOMPARE(config_.workers(), 3);
    qputenv("ONEPIECE_PINNED_STAGE", "environment");
    Parse({"--config", file.c_str()});
    QCOMPARE(config_.pinned_stage(), std::string("environment"));
    QCOMPARE(options_->node().node_id(), std::string("from-file"));
    Parse({"--config", file.c_str(), "--pinned-stage", "flag", "--workers", "5", "--node-id", "n",
           "--ring-bytes", "1099511627776"});
    QCOMPARE(config_.pinned_stage(), std::string("flag"));
    QCOMPARE(config_.workers(), 5);
    QCOMPARE(config_.node().node_id(), std::string("n"));
    QCOMPARE(config_.ring().capacity_bytes(), std::int64_t{1} << 40);
  }

  void Parse_TakesAListOfNodeManagers() {
    Parse({"--nodemanager", "a:1,b:2"});
    QCOMPARE(options_->node().nodemanagers_size(), 2);
    QCOMPARE(options_->node().nodemanagers(1), std::string("b:2"));
    Parse({"--nodemanager", "a:1,b:2", "--nodemanager", "e:5"});
    QCOMPARE(options_->node().nodemanagers_size(), 3);
    qputenv("ONEPIECE_NODEMANAGER", "c:3,d:4");
    QCOMPARE(Parse({}).outcome, ServiceOptions::Outcome::kRun);
    QCOMPARE(options_->node().nodemanagers(1), std::string("d:4"));
  }

  void Labels_AreKeysAndValues() {
    const std::string file =
        WriteFile("node: {nodemanagers: [\"a:1\"], zone: rack-1, labels: {gpu: h100, team: x}}\n");
    Parse({"--config", file.c_str()});
    QCOMPARE(options_->node().labels().at("gpu"), std::string("h100"));
    QCOMPARE(options_->node().zone(), std::string("rack-1"));
    QVERIFY(!options_->node().host().empty());
    // Flags replace the file's labels. A value may have '=', and may be empty.
    Parse({"--config", file.c_str(), "--zone", "z", "--host", "h", "--label", "a=b=c,d=", "--label",
           "a=2"});
    QCOMPARE(options_->node().labels_size(), 2);
    QCOMPARE(options_->node().labels().at("a"), std::string("2"));
    QCOMPARE(options_->node().labels().at("d"), std::string());
    QCOMPARE(options_->node().zone(), std::string("z"));
    QCOMPARE(options_->node().host(), std::string("h"));
    for (const char* bad : {"=x", "x"})
      QCOMPARE(Parse({"--nodemanager", "a:1", "--label", bad}).exit_code, kExitBadConfig);
  }

  void NodeId_OfAnInstanceNamesHostAndDevice() {
    QCOMPARE(DefaultNodeId("proxy", "rack7", ""), std::string("proxy-rack7"));
    QCOMPARE(DefaultNodeId("instance", "rack7", "cpu"), std::string("rack7.cpu"));
    std::set<std::string> ids;
    for (int gpu = 0; gpu < 8; ++gpu) {
      const std::string device = "cuda:" + std::to_string(gpu);
      QCOMPARE(Parse({"--nodemanager", "a:1", "--device", device.c_str()}).outcome,
               ServiceOptions::Outcome::kRun);
      QVERIFY(options_->node().node_id().ends_with(".gpu" + std::to_string(gpu)));
      QVERIFY(!options_->node().node_id().starts_with("."));
      ids.insert(options_->node().node_id());
    }
    QCOMPARE(ids.size(), std::size_t{8});
    Parse({"--nodemanager", "a:1", "--device", "cuda:1", "--node-id", "given"});
    QCOMPARE(options_->node().node_id(), std::string("given"));
  }

  void NodeId_IsUpTo128Characters() {
    const std::string longest = std::string(120, 'a') + "-_.Z9-_.";
    QCOMPARE(longest.size(), std::size_t{128});
    QCOMPARE(Parse({"--nodemanager", "a:1", "--node-id", longest.c_str()}).outcome,
             ServiceOptions::Outcome::kRun);
    QCOMPARE(options_->node().node_id(), longest);
    for (const std::string& bad : {longest + "a", std::string("a b"), std::string("a/b"),
                                   std::string("ä"), std::string("a\nb"), std::string("a:b")}) {
      std::stringstream said;
      std::streambuf* const before = std::cerr.rdbuf(said.rdbuf());
      const ServiceOptions::Parsed parsed =
          Parse({"--nodemanager", "a:1", "--check-config", "--node-id", bad.c_str()});
      std::cerr.rdbuf(before);
      QCOMPARE(parsed.exit_code, kExitBadConfig);
      QVERIFY2(said.str().find("1 to 128 letters, digits") != std::string::npos,
               said.str().c_str());
    }
  }

  void Parse_ExitCodes_data() {
    QTest::addColumn<QStringList>("arguments");
    QTest::addColumn<int>("exit_code");
    QTest::newRow("help") << QStringList{"--help"} << kExitOk;
    QTest::newRow("version") << QStringList{"--version"} << kExitOk;
    QTest::newRow("unknown flag") << QStringList{"--bogus"} << kExitUsage;
    QTest::newRow("value missing") << QStringList{"--listen"} << kExitUsage;
    QTest::newRow("stray argument") << QStringList{"--nodemanager", "a:1", "stray"} << kExitUsage;
    QTest::newRow("no NodeManager") << QStringList{} << kExitBadConfig;
    QTest::newRow("no port") << QStringList{"--nodemanager", "host"} << kExitBadConfig;
    QTest::newRow("port too large")
        << QStringList{"--nodemanager", "a:1", "--listen", "a:65536"} << kExitBadConfig;
    QTest::newRow("nothing to dial")
        << QStringList{"--nodemanager", "a:1", "--listen", "0.0.0.0:0"} << kExitBadConfig;
    QTest::newRow("bad node id") << QStringList{"--nodemanager", "a:1", "--node-id", "a/b"}
                                 << kExitBadConfig;
    QTest::newRow("not a number") << QStringList{"--nodemanager", "a:1", "--workers", "two"}
                                  << kExitBadConfig;
    QTest::newRow("no such file") << QStringList{"--nodemanager", "a:1", "--config",
                                                 "/no/such/file"}
                                  << kExitBadConfig;
  }
  void Parse_ExitCodes() {
    QFETCH(QStringList, arguments);
    QFETCH(int, exit_code);
    std::vector<QByteArray> bytes;
    for (const QString& argument : arguments) bytes.push_back(argument.toUtf8());
    const ServiceOptions::Parsed parsed =
        Parse(std::vector<const char*>(bytes.begin(), bytes.end()));
    QCOMPARE(parsed.outcome, ServiceOptions::Outcome::kExit);
    QCOMPARE(parsed.exit_code, exit_code);
  }

  void Parse_ReadOnly_OnlyWhereItIsHeeded() {
    const std::string file = WriteFile("node: {nodemanagers: [\"a:1\"], read_only: true}\n");
    QCOMPARE(Parse({"--config", file.c_str()}).exit_code, kExitBadConfig);
    QCOMPARE(Parse({"--nodemanager", "a:1", "--read-only"}).exit_code, kExitUsage);
    v1::ProxyConfig config;
    for (const std::vector<const char*>& arguments :
         {std::vector<const char*>{"onepiece-proxy", "--config", file.c_str()},
          {"onepiece-proxy", "--nodemanager", "a:1", "--read-only"}}) {
      config.Clear();
      ServiceOptions options({.program = "onepiece-proxy", .role = "proxy", .description = "x"},
                             &config);
      options.BindReadOnly();
      QCOMPARE(options.Parse(static_cast<int>(arguments.size()), arguments.data()).outcome,
               ServiceOptions::Outcome::kRun);
      QVERIFY(options.node().read_only());
    }
  }

  void Parse_DatabaseNeedsNoFolder_AndSpellsAsInAFile() {
    v1::DatabaseConfig config;
    const auto parse = [&](std::vector<const char*> arguments) {
      config.Clear();
      ServiceOptions options({.program = "onepiece-database",
                              .role = "database",
                              .description = "x",
                              .needs_data_dir = false},
                             &config);
      options.Bind("--when-full", "when_full", "x");
      arguments.insert(arguments.begin(), {"onepiece-database", "--nodemanager", "a:1"});
      return options.Parse(static_cast<int>(arguments.size()), arguments.data());
    };
    QCOMPARE(parse({}).outcome, ServiceOptions::Outcome::kRun);
    QVERIFY(config.node().data_dir().empty());
    for (const char* spelling : {"spill", "SPILL", "WHEN_FULL_SPILL"}) {
      QCOMPARE(parse({"--when-full", spelling, "--data-dir", "/x"}).outcome,
               ServiceOptions::Outcome::kRun);
      QCOMPARE(config.when_full(), v1::WHEN_FULL_SPILL);
      QCOMPARE(config.node().data_dir(), std::string("/x"));
    }
    for (const char* wrong : {"spil", "x\"y", "2", "a: b"})
      QCOMPARE(parse({"--when-full", wrong}).outcome, ServiceOptions::Outcome::kExit);
    QCOMPARE(parse({"--when-full", "spil"}).exit_code, kExitBadConfig);
  }

  void Parse_CheckConfigRunsNothing() {
    QCOMPARE(Parse({"--nodemanager", "a:1", "--check-config"}).outcome,
             ServiceOptions::Outcome::kCheckOnly);
  }

  void WriteFileAtomically_ReplacesOrFails() {
    const std::string path = dir_.path().toStdString() + "/ready";
    QVERIFY(WriteFileAtomically(path, "first").ok());
    QVERIFY(WriteFileAtomically(path, "second").ok());
    std::ifstream file(path);
    QCOMPARE(std::string(std::istreambuf_iterator<char>(file), {}), std::string("second"));
    QCOMPARE(QDir(dir_.path()).entryList({"ready*"}, QDir::Files).size(), 1);
    QCOMPARE(base::GetReason(WriteFileAtomically("/no/such/folder/ready", "x")).reason,
             std::string("FILE_NOT_WRITTEN"));
  }

 private:
  QTemporaryDir dir_;
  v1::InstanceConfig config_;
  std::unique_ptr<ServiceOptions> options_;
};

}  // namespace onepiece::service

ONEPIECE_TEST(onepiece::service::OptionsTest)
#include "options_test.moc"
