// `onepiece-bench-consensus` from outside: real groups of three, one document in the form that
// scripts rely on, and nothing left behind. The test does not judge the measurements.
#include <filesystem>
#include <set>
#include <string>

#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece::bench {
namespace {

using nlohmann::json;

const std::set<std::string> kNames = {
    "consensus.2c.commits_per_s.etcd",     "consensus.2c.write_p50.etcd",
    "consensus.2c.write_p99.etcd",         "consensus.watched.2c.commits_per_s.etcd",
    "consensus.watched.2c.write_p50.etcd", "consensus.watched.2c.write_p99.etcd",
    "consensus.failover_s.etcd",           "consensus.failover_max_s.etcd"};

}  // namespace

class BenchConsensusTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Consensus_IsOneDocument_data() {
    QTest::addColumn<QString>("peer");
    QTest::newRow("alone") << "none";
    QTest::newRow("beside etcd") << "etcd";
  }
  void Consensus_IsOneDocument() {
    QFETCH(const QString, peer);
    if (peer == "etcd" && !std::filesystem::exists("/usr/bin/etcd"))
      QSKIP("the package etcd-server is not installed");
    const QTemporaryDir folder;
    const testing::Outcome outcome =
        testing::RunProgram(ONEPIECE_BINARY_DIR "/bin/onepiece-bench-consensus",
                            {"consensus", "--json", "--pairs", "1", "--window", "0.3", "--clients",
                             "2", "--watchers", "5", "--peers", peer, "--dir", folder.path()},
                            100);
    QVERIFY2(outcome.exit_code == 0, outcome.err.c_str());
    const json document = outcome.Document();
    QVERIFY2(document.is_object(), outcome.out.c_str());
    std::set<std::string> names;
    for (const json& row : document["results"]) {
      names.insert(row["name"].get<std::string>());
      QVERIFY2(row["ours"].get<double>() > 0, row.dump().c_str());
      QCOMPARE(row["runs"].get<int>(), 1);
      if (peer == "none") {
        QVERIFY(row["peer"].is_null() && row["theirs"].is_null() && row["ratio"].is_null());
      } else {
        QCOMPARE(row["peer"].get<std::string>(), std::string("etcd"));
        QVERIFY2(row["theirs"].get<double>() > 0, row.dump().c_str());
        QVERIFY2(row["ratio"].get<double>() > 0, row.dump().c_str());
      }
    }
    QVERIFY2(names == kNames, outcome.out.c_str());
    QVERIFY(QDir(folder.path()).isEmpty());
  }
};

}  // namespace onepiece::bench

ONEPIECE_TEST(onepiece::bench::BenchConsensusTest)
#include "bench_consensus_test.moc"
