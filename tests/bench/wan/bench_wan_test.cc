// `onepiece-bench-wan` from outside: one document in the form that scripts rely on, a peer that is
// not installed, and nothing left behind. The test does not judge the measurements.
#include <set>
#include <string>

#include "tests/bench/leftovers.h"
#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece::bench {
namespace {

using nlohmann::json;
using testing::Outcome;

Outcome RunBench(const QStringList& arguments) {
  return testing::RunProgram(ONEPIECE_BINARY_DIR "/bin/onepiece-bench-wan", arguments, 100);
}

}  // namespace

class BenchWanTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Wan_BesideThePort_HasTimeAndMemoryOfEveryComponent() {
    const Leftovers leftovers({std::filesystem::temp_directory_path()}, "onepiece-bench-wan-");
    const Outcome result = RunBench(
        {"wan", "--json", "--runs", "1", "--threads", "1", "--peers", "port", "--only", "tiny"});
    QCOMPARE(result.exit_code, 0);
    const json document = result.Document();
    QVERIFY2(document.is_object(), result.out.c_str());
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
    const std::string left = leftovers.New();
    QVERIFY2(left.empty(), left.c_str());
  }

  void Wan_WithoutPython_HasRowsWithoutAPeer() {
    const Outcome result =
        RunBench({"wan", "--json", "--runs", "1", "--threads", "1", "--peers", "torch", "--only",
                  "tiny_text", "--python", "/nonexistent/python3"});
    QCOMPARE(result.exit_code, 0);
    const json document = result.Document();
    QVERIFY2(document.is_object(), result.out.c_str());
    QCOMPARE(document["results"].size(), std::size_t{2});
    for (const json& row : document["results"]) {
      QVERIFY(row["ours"].get<double>() > 0);
      for (const char* absent : {"peer", "theirs", "ratio"})
        QVERIFY2(row.at(absent).is_null(), absent);
    }
  }
};

}  // namespace onepiece::bench

ONEPIECE_TEST(onepiece::bench::BenchWanTest)
#include "bench_wan_test.moc"
