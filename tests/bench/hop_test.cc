// `onepiece bench` from outside: the shape of its report, and that it leaves nothing behind.
#include <QtTest>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace onepiece::cli {
namespace {

using nlohmann::json;

std::set<std::string> BenchSegments() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("onepiece.bench-")) names.insert(name);
  }
  return names;
}

}  // namespace

class BenchTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Hop_ReportsEverySizeWithItsParts() {
    const std::set<std::string> before = BenchSegments();
    QProcess process;
    process.start(ONEPIECE_BINARY_DIR "/bin/onepiece", {"bench", "hop", "--runs", "3", "--json"});
    QVERIFY(process.waitForFinished(60'000));
    QCOMPARE(process.exitCode(), 0);
    const json document =
        json::parse(process.readAllStandardOutput().toStdString(), nullptr, false);
    QVERIFY(document.is_object());
    QVERIFY(document["machine"]["cores"].get<int>() > 0);
    std::set<std::string> names;
    for (const json& row : document["results"]) {
      names.insert(row["name"].get<std::string>());
      QCOMPARE(row["unit"].get<std::string>(), std::string("us"));
      QCOMPARE(row["better"].get<std::string>(), std::string("lower"));
      QCOMPARE(row["runs"].get<int>(), 3);
      QVERIFY(row["ours"].get<double>() > 0);
      for (const char* absent : {"peer", "theirs", "ratio"})
        QVERIFY2(row.at(absent).is_null(), absent);
      for (const char* part : {"serialise", "ring", "wake_up", "deserialise"}) {
        const double value = row["split"].at(part).get<double>();
        QVERIFY2(value >= 0 && value <= row["ours"].get<double>(), part);
      }
    }
    const std::set<std::string> expected = {"hop.4KiB.p50",  "hop.4KiB.p99",  "hop.200kB.p50",
                                            "hop.200kB.p99", "hop.4.2MB.p50", "hop.4.2MB.p99",
                                            "hop.28MB.p50",  "hop.28MB.p99"};
    QVERIFY(names == expected);
    std::set<std::string> left = BenchSegments();
    for (const std::string& name : before) left.erase(name);
    QVERIFY2(left.empty(), left.empty() ? "" : left.begin()->c_str());
  }

  void Hop_BadRuns_IsAUsageError() {
    QProcess process;
    process.start(ONEPIECE_BINARY_DIR "/bin/onepiece", {"bench", "hop", "--runs", "0"});
    QVERIFY(process.waitForFinished(30'000));
    QCOMPARE(process.exitCode(), 2);
    QVERIFY(process.readAllStandardOutput().isEmpty());
  }
};

}  // namespace onepiece::cli

QTEST_GUILESS_MAIN(onepiece::cli::BenchTest)
#include "bench_test.moc"
