// `onepiece-bench-database` from outside: real servers, one document in the form that scripts rely
// on, and nothing left behind. The test does not judge the measurements.
#include <set>
#include <string>

#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece::bench {
namespace {

using nlohmann::json;

std::set<std::string> NamesFor(const std::string& peer) {
  std::set<std::string> names = {"database.fabric.put.64KiB.memory." + peer};
  for (const char* metric : {"rate", "p50", "p99", "cpu"}) {
    for (const char* what : {"fabric.put", "fabric.get", "grpc.get"})
      names.insert(std::string("database.") + what + ".64KiB." + metric + "." + peer);
  }
  return names;
}

}  // namespace

class BenchDatabaseTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Database_IsOneDocument_data() {
    QTest::addColumn<QString>("peer");
    for (const char* peer : {"none", "redis", "memcached"}) QTest::newRow(peer) << peer;
  }
  void Database_IsOneDocument() {
    QFETCH(const QString, peer);
    if (peer != "none" &&
        !QFile::exists(peer == "redis" ? "/usr/bin/redis-server" : "/usr/bin/memcached"))
      QSKIP("its package is not installed");
    const QTemporaryDir folder;
    const testing::Outcome outcome =
        testing::RunProgram(ONEPIECE_BINARY_DIR "/bin/onepiece-bench-database",
                            {"database", "--json", "--quick", "--sizes", "64KiB", "--peers", peer},
                            60, {{"TMPDIR", folder.path()}});
    QVERIFY2(outcome.exit_code == 0, outcome.err.c_str());
    const json document = outcome.Document();
    QVERIFY2(document.is_object(), outcome.out.c_str());
    std::set<std::string> names;
    for (const json& row : document["results"]) {
      names.insert(row["name"].get<std::string>());
      QVERIFY2(row["ours"].get<double>() > 0, row.dump().c_str());
      QVERIFY2(row["theirs"].is_null() == (peer == "none"), row.dump().c_str());
      if (peer != "none") QVERIFY2(row["theirs"].get<double>() > 0, row.dump().c_str());
    }
    QVERIFY2(names == NamesFor(peer.toStdString()), outcome.out.c_str());
    QVERIFY(QDir(folder.path()).isEmpty());
  }
};

}  // namespace onepiece::bench

ONEPIECE_TEST(onepiece::bench::BenchDatabaseTest)
#include "bench_database_test.moc"
