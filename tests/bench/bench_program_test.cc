// `onepiece-bench` from outside: one document in the form that scripts rely on, and nothing left
// behind. The test does not judge the measurements.
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
  return testing::RunProgram(ONEPIECE_BINARY_DIR "/bin/onepiece-bench", arguments, 100);
}

void CheckRow(const json& row) {
  const std::set<std::string> expected = {"name", "workload", "metric", "unit",  "better",
                                          "ours", "peer",     "theirs", "ratio", "runs"};
  std::set<std::string> keys;
  for (const auto& [key, value] : row.items()) keys.insert(key);
  QVERIFY2(keys == expected, row.dump().c_str());
  const std::string better = row["better"].get<std::string>();
  QVERIFY2(better == "higher" || better == "lower", row.dump().c_str());
  QVERIFY2(row["ours"].get<double>() >= 0, row.dump().c_str());
  QVERIFY(row["runs"].get<int>() >= 1);
}

}  // namespace

class BenchProgramTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Ring_WithoutPeers_IsOneDocument() {
    const Leftovers leftovers({"/dev/shm", "/tmp"}, "onepiece-bench-");
    const Outcome result = RunBench({"ring", "--quick", "--json", "--peers", "none", "--sizes",
                                     "64B,4MiB", "--producers", "1,2"});
    QCOMPARE(result.exit_code, 0);
    const json document = result.Document();
    QVERIFY2(document.is_object(), result.out.c_str());
    QVERIFY(document["machine"]["cores"].get<int>() > 0);
    std::set<std::string> names;
    for (const json& row : document["results"]) {
      CheckRow(row);
      QVERIFY2(names.insert(row["name"].get<std::string>()).second, row.dump().c_str());
    }
    const std::set<std::string> expected = {
        "ring.shm.64B.1p.rate",           "ring.shm.64B.1p.p50",
        "ring.shm.64B.2p.rate",           "ring.shm.64B.1p.wakeup.futex",
        "ring.shm.64B.1p.idle_cpu",       "ring.shm.4MiB.1p.bandwidth",
        "ring.shm.4MiB.1p.bandwidth_crc", "ring.shm.4MiB.2p.bandwidth_crc"};
    QVERIFY2(names == expected, result.out.c_str());
    const std::string left = leftovers.New();
    QVERIFY2(left.empty(), left.c_str());
  }

  void Ring_WithPeers_SaysTheRatio() {
    const Outcome result =
        RunBench({"ring", "--quick", "--json", "--peers", "zeromq,ucx,grpc,boost,pingpong",
                  "--sizes", "64B", "--producers", "1"});
    QCOMPARE(result.exit_code, 0);
    const json document = result.Document();
    QVERIFY2(document.is_object(), result.out.c_str());
    int compared = 0;
    for (const json& row : document["results"]) {
      CheckRow(row);
      if (row["peer"].is_null()) continue;
      ++compared;
      const std::string name = row["name"].get<std::string>();
      QVERIFY2(name.ends_with("." + row["peer"].get<std::string>()), name.c_str());
      QVERIFY2(row["ratio"].get<double>() > 0 && row["theirs"].get<double>() > 0, name.c_str());
    }
    QCOMPARE(compared, 10);  // The rates of four, the p50 of five, one wake-up.
  }

  void Fabric_IsOneDocument() {
    const Outcome result = RunBench({"fabric", "--quick", "--json", "--sizes", "64B,4MiB"});
    QCOMPARE(result.exit_code, 0);
    const json document = result.Document();
    QVERIFY2(document.is_object(), result.out.c_str());
    std::set<std::string> names;
    for (const json& row : document["results"]) {
      CheckRow(row);
      names.insert(row["name"].get<std::string>());
    }
    const std::set<std::string> expected = {
        "fabric.shm.write.64B.memcpy",  "fabric.shm.read.64B.memcpy",
        "fabric.shm.write.4MiB.memcpy", "fabric.shm.read.4MiB.memcpy",
        "fabric.shm.fetch_add.8B.raw",  "fabric.shm.cas.8B.raw"};
    QVERIFY2(names == expected, result.out.c_str());
  }

  void Ring_BadArguments_AreUsageErrors() {
    for (const QStringList& arguments :
         {QStringList{"ring", "--peers", "pigeon"}, QStringList{"ring", "--sizes", "64"},
          QStringList{"ring", "--producers", "0"}, QStringList{}}) {
      const Outcome result = RunBench(arguments);
      QCOMPARE(result.exit_code, 2);
      QVERIFY(result.out.empty());
    }
  }
};

}  // namespace onepiece::bench

ONEPIECE_TEST(onepiece::bench::BenchProgramTest)
#include "bench_program_test.moc"
