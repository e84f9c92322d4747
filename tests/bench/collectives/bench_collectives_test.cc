// `onepiece-bench-collectives` from outside: one document, a row for each operation, and nothing
// left behind. The test does not judge the measurements.
#include <set>
#include <string>

#include "tests/bench/leftovers.h"
#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece::bench {

class BenchCollectivesTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Gloo_IsComparedInEachOperation() {
    const Leftovers segments({"/dev/shm", "/tmp"}, "bench-collectives-");
    const testing::Outcome result = testing::RunProgram(
        ONEPIECE_BINARY_DIR "/bin/onepiece-bench-collectives",
        {"collectives", "--json", "--quick", "--ranks", "2", "--peers", "gloo"}, 100);
    QVERIFY2(result.exit_code == 0, result.err.c_str());
    const nlohmann::json document = result.Document();
    QVERIFY2(document.is_object(), result.out.c_str());
    QVERIFY2(segments.New().empty(), segments.New().c_str());
    if (document["results"].empty()) QSKIP("this build has no gloo");
    std::set<std::string> names;
    for (const auto& row : document["results"]) {
      QCOMPARE(row["peer"].get<std::string>(), std::string("gloo"));
      QVERIFY2(row["ours"].get<double>() > 0 && row["theirs"].get<double>() > 0,
               row.dump().c_str());
      QVERIFY(names.insert(row["name"].get<std::string>()).second);
    }
    for (const char* operation : {"broadcast", "all_gather", "all_reduce", "all_to_all"}) {
      for (const char* size : {"1KiB", "64KiB", "1MiB", "16MiB"}) {
        const auto name = std::string("collectives.fabric.") + operation + "." + size + ".2p.gloo";
        QVERIFY2(names.contains(name), name.c_str());
      }
    }
    QVERIFY(names.contains("collectives.fabric.barrier.2p.gloo"));
    QVERIFY(names.contains("collectives.group_change.gloo"));
  }
};

}  // namespace onepiece::bench

ONEPIECE_TEST(onepiece::bench::BenchCollectivesTest)
#include "bench_collectives_test.moc"
