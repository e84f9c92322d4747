// Tests `onepiece bench` from outside: the form of its report, and that it leaves nothing behind.
#include <set>
#include <string>

#include "tests/bench/leftovers.h"
#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece::bench {
namespace {

using nlohmann::json;
using testing::Outcome;

constexpr char kOnepiece[] = ONEPIECE_BINARY_DIR "/bin/onepiece";

}  // namespace

class HopTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Hop_ReportsEverySizeWithItsParts() {
    const Leftovers leftovers({"/dev/shm"}, "onepiece.bench-");
    const Outcome outcome =
        testing::RunProgram(kOnepiece, {"bench", "hop", "--runs", "3", "--json"}, 60);
    QCOMPARE(outcome.exit_code, 0);
    const json document = outcome.Document();
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
    const std::string left = leftovers.New();
    QVERIFY2(left.empty(), left.c_str());
  }

  void Hop_BadRuns_IsAUsageError() {
    const Outcome outcome = testing::RunProgram(kOnepiece, {"bench", "hop", "--runs", "0"});
    QCOMPARE(outcome.exit_code, 2);
    QVERIFY(outcome.out.empty());
  }
};

}  // namespace onepiece::bench

ONEPIECE_TEST(onepiece::bench::HopTest)
#include "hop_test.moc"
