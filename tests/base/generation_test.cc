#include "cluster/base/generation.h"

#include <QtTest>
#include <limits>

#include "tests/test_main.h"

namespace onepiece::base {

class GenerationTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Epoch_OfALaterGeneration_IsGreaterThanAllEarlierOnes() {
    QCOMPARE(GenerationOf(0), 0U);
    QCOMPARE(GenerationOf(FirstEpochOf(0)), 0U);
    for (const std::uint32_t generation : {1U, 2U, 77U, kMaxGeneration}) {
      QCOMPARE(GenerationOf(FirstEpochOf(generation)), generation);
      QCOMPARE(GenerationOf(FirstEpochOf(generation) - 2), generation - 1);
    }
    QCOMPARE(GenerationOf(std::numeric_limits<std::uint64_t>::max()), kMaxGeneration);
  }

  void FormatEpoch_NamesTheGenerationOnceThereIsOne() {
    QCOMPARE(FormatEpoch(0), std::string("0"));
    QCOMPARE(FormatEpoch(1234), std::string("1234"));
    QCOMPARE(FormatEpoch(FirstEpochOf(3) + 1233), std::string("3.1234"));
    QCOMPARE(FormatEpoch(FirstEpochOf(kMaxGeneration)), std::string("16777215.1"));
  }
};

}  // namespace onepiece::base

ONEPIECE_TEST(onepiece::base::GenerationTest)
#include "generation_test.moc"
