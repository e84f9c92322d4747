// `onepiece-bench-control` from outside: real groups of three with light nodes, one document in the
// form that scripts rely on, and nothing left behind. The test does not judge the times.
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece::bench {
namespace {

using nlohmann::json;

const std::set<std::string> kRows = {"control.16.watch_p99.etcd",  "control.16.leader_cpu.etcd",
                                     "control.16.storm.etcd",      "control.16.watch_p50",
                                     "control.16.memory_per_node", "control.16.drain",
                                     "control.16.elections",       "control.16.deaths",
                                     "control.16.flood_rate",      "control.16.flood_watch"};
constexpr char kProgram[] = ONEPIECE_BINARY_DIR "/bin/onepiece-bench-control";

}  // namespace

class BenchControlPlaneTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Control_IsOneDocument_data() {
    QTest::addColumn<QString>("peer");
    QTest::newRow("alone") << "none";
    QTest::newRow("beside etcd") << "etcd";
  }
  void Control_IsOneDocument() {
    QFETCH(const QString, peer);
    if (peer == "etcd" && !std::filesystem::exists("/usr/bin/etcd"))
      QSKIP("the package etcd-server is not installed");
    const QTemporaryDir folder;
    const testing::Outcome outcome = testing::RunProgram(
        kProgram,
        {"control", "--json", "--nodes", "16", "--quick", "--peers", peer, "--dir", folder.path()},
        100);
    QVERIFY2(outcome.exit_code == 0, outcome.err.c_str());
    const json document = outcome.Document();
    QVERIFY2(document.is_object(), outcome.out.c_str());
    std::map<std::string, json> rows;
    for (const json& row : document["results"]) rows[row["name"].get<std::string>()] = row;
    std::set<std::string> names;
    for (const auto& [name, row] : rows) names.insert(name);
    QVERIFY2(names == kRows, outcome.out.c_str());
    for (const char* timed :
         {"watch_p99.etcd", "storm.etcd", "watch_p50", "drain", "flood_rate", "flood_watch"})
      QVERIFY2(rows["control.16." + std::string(timed)]["ours"].get<double>() > 0, timed);
    QVERIFY(rows["control.16.watch_p50"]["ours"] <= rows["control.16.watch_p99.etcd"]["ours"]);
    QCOMPARE(rows["control.16.watch_p99.etcd"]["runs"].get<int>(), 5);
    // Nobody was killed but a replica.
    QCOMPARE(rows["control.16.deaths"]["ours"].get<double>(), 0.0);
    for (const char* name : {"watch_p99", "leader_cpu", "storm"}) {
      const json& row = rows["control.16." + std::string(name) + ".etcd"];
      QCOMPARE(row["better"].get<std::string>(), std::string("lower"));
      if (peer == "none")
        QVERIFY(row["peer"].is_null() && row["theirs"].is_null() && row["ratio"].is_null());
      else
        QVERIFY2(row["theirs"].get<double>() >= 0, row.dump().c_str());
    }
    QVERIFY(QDir(folder.path()).isEmpty());
  }

  void Simulation_SaysThatItIsOne() {
    const QTemporaryDir folder;
    const testing::Outcome outcome =
        testing::RunProgram(kProgram,
                            {"control", "--json", "--nodes", "0", "--simulate", "64", "--quick",
                             "--dir", folder.path()},
                            100);
    QVERIFY2(outcome.exit_code == 0, outcome.err.c_str());
    const json document = outcome.Document();
    QVERIFY2(document.is_object(), outcome.out.c_str());
    std::map<std::string, double> rows;
    for (const json& row : document["results"]) {
      const auto name = row["name"].get<std::string>();
      QVERIFY2(name.starts_with("control.64.simulated."), name.c_str());
      QVERIFY(row["workload"].get<std::string>().starts_with("SIMULATION"));
      rows[name.substr(name.rfind('.') + 1)] = row["ours"].get<double>();
    }
    QCOMPARE(rows.size(), std::size_t{8});
    for (const auto& [name, value] : rows) QVERIFY2(value > 0, name.c_str());
    // A change is told as a difference, so all 64 get less than one table each.
    QVERIFY(rows["watch_bytes"] < 64 * rows["table_bytes"]);
  }

  void Signal_EndsEverything() {
    const QTemporaryDir folder;
    QProcess process;
    process.setReadChannel(QProcess::StandardError);
    process.start(kProgram, {"control", "--nodes", "16", "--window", "600", "--peers", "none",
                             "--dir", folder.path()});
    QVERIFY(process.waitForStarted());
    QByteArray said;
    while (!said.contains("READY") && process.waitForReadyRead(60'000))
      said += process.readAllStandardError();
    QVERIFY2(said.contains("READY"), said.constData());
    process.terminate();
    QVERIFY(process.waitForFinished(60'000));
    said += process.readAllStandardError();
    QVERIFY2(said.contains("interrupted"), said.constData());
    QCOMPARE(process.exitStatus(), QProcess::NormalExit);
    QCOMPARE(process.exitCode(), 1);
    QVERIFY(QDir(folder.path()).isEmpty());
    // The arguments of the replicas name the folder.
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      QFile arguments(QString::fromStdString(entry.path().string() + "/cmdline"));
      if (!arguments.open(QIODevice::ReadOnly)) continue;
      QVERIFY2(!arguments.readAll().contains(folder.path().toUtf8()), entry.path().c_str());
    }
  }

  void BadArguments_SayWhatIsAllowed() {
    const testing::Outcome outcome = testing::RunProgram(kProgram, {"control", "--nodes", "3"});
    QCOMPARE(outcome.exit_code, 2);
    QVERIFY2(outcome.Says("--nodes"), outcome.err.c_str());
  }
};

}  // namespace onepiece::bench

ONEPIECE_TEST(onepiece::bench::BenchControlPlaneTest)
#include "bench_control_plane_test.moc"
