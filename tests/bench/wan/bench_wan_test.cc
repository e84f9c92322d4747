// `onepiece-bench-wan` from outside: one document in the form that scripts rely on, a peer that is
// not there, and nothing left behind. What it measures is not judged here.
#include <QtTest>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace onepiece::bench {
namespace {

using nlohmann::json;

struct Result {
  int exit_code = -1;
  QByteArray out;
};

Result RunProgram(const QStringList& arguments) {
  QProcess process;
  process.start(ONEPIECE_BINARY_DIR "/bin/onepiece-bench-wan", arguments);
  if (!process.waitForFinished(100'000)) {
    process.kill();
    process.waitForFinished();
    return {};
  }
  return {process.exitCode(), process.readAllStandardOutput()};
}

std::set<std::string> Leftovers() {
  std::set<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::temp_directory_path())) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("onepiece-bench-wan-")) names.insert(name);
  }
  return names;
}

}  // namespace

class BenchWanTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Wan_BesideThePort_HasTimeAndMemoryOfEveryComponent() {
    const std::set<std::string> before = Leftovers();
    const Result result = RunProgram(
        {"wan", "--json", "--runs", "1", "--threads", "1", "--peers", "port", "--only", "tiny"});
    QCOMPARE(result.exit_code, 0);
    const json document = json::parse(result.out.toStdString(), nullptr, false);
    QVERIFY2(document.is_object(), result.out.constData());
    std::set<std::string> names;
    for (const json& row : document["results"]) {
      names.insert(row["name"].get<std::string>());
      QCOMPARE(row["better"].get<std::string>(), std::string("lower"));
      QCOMPARE(row["peer"].get<std::string>(), std::string("port"));
      QVERIFY2(row["ours"].get<double>() > 0, row.dump().c_str());
      QVERIFY2(row["ratio"].get<double>() > 0, row.dump().c_str());
    }
    for (const char* component : {"text_encode", "transformer", "vae_encode", "vae_decode"}) {
      for (const char* metric : {"time", "memory"}) {
        const std::string name = std::string("wan.tiny_") + component + "." + metric + ".port";
        QVERIFY2(names.contains(name), name.c_str());
      }
    }
    std::set<std::string> left = Leftovers();
    for (const std::string& name : before) left.erase(name);
    QVERIFY2(left.empty(), left.empty() ? "" : left.begin()->c_str());
  }

  void Wan_WithoutPython_HasRowsWithoutAPeer() {
    const Result result =
        RunProgram({"wan", "--json", "--runs", "1", "--threads", "1", "--peers", "torch", "--only",
                    "tiny_text", "--python", "/nonexistent/python3"});
    QCOMPARE(result.exit_code, 0);
    const json document = json::parse(result.out.toStdString(), nullptr, false);
    QVERIFY2(document.is_object(), result.out.constData());
    QCOMPARE(document["results"].size(), std::size_t{2});
    for (const json& row : document["results"]) {
      QVERIFY(row["ours"].get<double>() > 0);
      for (const char* absent : {"peer", "theirs", "ratio"})
        QVERIFY2(row.at(absent).is_null(), absent);
    }
  }
};

}  // namespace onepiece::bench

QTEST_GUILESS_MAIN(onepiece::bench::BenchWanTest)
#include "bench_wan_test.moc"
