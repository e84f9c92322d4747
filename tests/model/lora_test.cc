#include "stages/model/lora.h"

#include <ATen/CPUGeneratorImpl.h>

#include <QTemporaryDir>
#include <QtTest>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "cluster/base/status.h"
#include "stages/tensor/safetensors_writer.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::model {
namespace {

constexpr std::int64_t kDim = 128, kRank = 4;

at::Tensor Random(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed)) * 0.1;
}

}  // namespace

class LoraTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Open_NamesWhatIsWrong_data() {
    QTest::addColumn<QString>("kind");
    QTest::addColumn<QString>("named");
    QTest::newRow("unknown key") << "unknown"
                                 << "blocks.0.attn1.to_q.lora_magnitude_vector";
    QTest::newRow("a half is missing") << "half"
                                       << "blocks.0.attn1.to_q";
    QTest::newRow("ranks differ") << "ranks"
                                  << "ranks 4 and 3";
    QTest::newRow("not finite") << "nan"
                                << "not finite";
    QTest::newRow("not a matrix") << "vector"
                                  << "not a matrix";
    QTest::newRow("empty") << "empty"
                           << "no tensors";
    QTest::newRow("alpha of many numbers") << "alpha"
                                           << "not one number";
  }
  void Open_NamesWhatIsWrong() {
    QFETCH(QString, kind);
    QFETCH(QString, named);
    const std::string module = "blocks.0.attn1.to_q", a = module + ".lora_A.weight",
                      b = module + ".lora_B.weight";
    std::map<std::string, at::Tensor> tensors = {{a, Random({kRank, kDim}, 1)},
                                                 {b, Random({kDim, kRank}, 2)}};
    if (kind == "unknown") tensors[module + ".lora_magnitude_vector"] = at::ones({kDim});
    if (kind == "half") tensors.erase(b);
    if (kind == "ranks") tensors[b] = Random({kDim, 3}, 2);
    if (kind == "nan") tensors[a] = tensors[a] * std::nan("");
    if (kind == "vector") tensors[a] = at::ones({kDim});
    if (kind == "empty") tensors.clear();
    if (kind == "alpha") tensors[module + ".alpha"] = at::ones({2});
    QVERIFY(tensor::WriteSafetensors(Path("bad.safetensors"), tensors).ok());
    const auto lora = LoraAdapter::Open(Path("bad.safetensors"));
    QCOMPARE(Reason(lora.status()), std::string("BAD_LORA"));
    QVERIFY2(std::string(lora.status().message()).find(named.toStdString()) != std::string::npos,
             lora.status().ToString().c_str());
  }

  void ParseLoras_ReadsNamesAndScales() {
    QVERIFY(ParseLoras("loras", "")->empty());
    const auto two = ParseLoras("loras", "film-grain:0.5,style_2");
    QVERIFY(two.ok());
    QVERIFY((*two == std::vector<LoraChoice>{{"film-grain", 0.5}, {"style_2", 1}}));
    for (const char* bad : {"a,,b", "../a", "a/b", "a:x", "a:1:2", "a:nan", "a:11", "a,a:2",
                            ".hidden", "a,b,c,d,e,f,g,h,i"}) {
      QCOMPARE(Reason(ParseLoras("loras", bad).status()), std::string("BAD_PARAMETER"));
    }
  }

 private:
  std::string Path(const char* name) const { return folder_.path().toStdString() + "/" + name; }

  QTemporaryDir folder_;
};

}  // namespace onepiece::model

ONEPIECE_TEST(onepiece::model::LoraTest)
#include "lora_test.moc"
