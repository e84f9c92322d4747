// `onepiece-bench-database` from outside: real servers, one document in the form that scripts rely
// on, and nothing left behind. What it measures is not judged here.
#include <QtTest>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

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
    QProcess process;
    QProcessEnvironment environment = QProcessEnvironment::systemEnvironment();
    environment.insert("TMPDIR", folder.path());
    process.setProcessEnvironment(environment);
    process.start(ONEPIECE_BINARY_DIR "/bin/onepiece-bench-database",
                  {"database", "--json", "--quick", "--sizes", "64KiB", "--peers", peer});
    if (!process.waitForFinished(60'000)) {
      process.kill();
      process.waitForFinished();
      QFAIL("it did not end");
    }
    QVERIFY2(process.exitCode() == 0, process.readAllStandardError().constData());
    const QByteArray out = process.readAllStandardOutput();
    const json document = json::parse(out.toStdString(), nullptr, false);
    QVERIFY2(document.is_object(), out.constData());
    std::set<std::string> names;
    for (const json& row : document["results"]) {
      names.insert(row["name"].get<std::string>());
      QVERIFY2(row["ours"].get<double>() > 0, row.dump().c_str());
      QVERIFY2(row["theirs"].is_null() == (peer == "none"), row.dump().c_str());
      if (peer != "none") QVERIFY2(row["theirs"].get<double>() > 0, row.dump().c_str());
    }
    QVERIFY2(names == NamesFor(peer.toStdString()), out.constData());
    QVERIFY(QDir(folder.path()).isEmpty());
  }
};

}  // namespace onepiece::bench

QTEST_GUILESS_MAIN(onepiece::bench::BenchDatabaseTest)
#include "bench_database_test.moc"
