#include "stages/tensor/torch_convert.h"

#include <QTemporaryDir>
#include <QtTest>

#include "cluster/base/status.h"
#include "stages/tensor/compute.h"
#include "tests/tensor/safetensors_bytes.h"
#include "tests/test_main.h"

namespace onepiece::tensor {

class TorchConvertTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void ToArtifact_SharesTheTensorsMemory() {
    at::Tensor tensor = at::arange(6, at::TensorOptions(at::kFloat)).view({2, 3});
    const void* memory = tensor.data_ptr();
    const auto artifact = ToArtifact("x", tensor);
    QVERIFY(artifact.ok());
    tensor = at::Tensor();  // The artifact alone keeps the memory now.
    QCOMPARE(static_cast<const void*>(artifact->data.bytes().data()), memory);
    QCOMPARE(artifact->shape, (std::vector<std::int64_t>{2, 3}));
    const auto back = ToTensor(*artifact);
    QVERIFY(back.ok());
    QCOMPARE(static_cast<const void*>(back->data_ptr()), memory);
    QVERIFY(at::equal(*back, at::arange(6, at::TensorOptions(at::kFloat)).view({2, 3})));
  }

  void ToArtifact_CopiesWhatIsNotContiguous() {
    const at::Tensor tensor = at::arange(6, at::TensorOptions(at::kLong)).view({2, 3}).t();
    const auto artifact = ToArtifact("x", tensor);
    QVERIFY(artifact.ok());
    QVERIFY(at::equal(*ToTensor(*artifact), tensor));
  }

  void ToTensor_KeepsTheArtifactsBytesAlive() {
    at::Tensor tensor;
    {
      message::Artifact artifact;
      artifact.dtype = message::DType::kI32;
      artifact.shape = {2};
      auto bytes = std::make_shared<std::vector<std::int32_t>>(std::vector<std::int32_t>{7, -8});
      artifact.data = message::Buffer(bytes, std::as_bytes(std::span(*bytes)));
      tensor = *ToTensor(artifact);
    }
    QCOMPARE(tensor[1].item<int>(), -8);
  }

  void ToTensor_RefusesAShapeThatDoesNotFit_data() {
    QTest::addColumn<qint64>("first");
    QTest::addColumn<qint64>("second");
    QTest::newRow("too many") << qint64{3} << qint64{1};
    QTest::newRow("too few") << qint64{1} << qint64{1};
    QTest::newRow("negative") << qint64{-2} << qint64{-1};
    QTest::newRow("overflow") << qint64{1} << std::numeric_limits<qint64>::max();
  }
  void ToTensor_RefusesAShapeThatDoesNotFit() {
    QFETCH(qint64, first);
    QFETCH(qint64, second);
    const auto bytes = std::make_shared<std::vector<float>>(2);
    message::Artifact artifact;
    artifact.name = "x";
    artifact.dtype = message::DType::kF32;
    artifact.shape = {first, second};
    artifact.data = message::Buffer(bytes, std::as_bytes(std::span(*bytes)));
    QCOMPARE(base::GetReason(ToTensor(artifact).status()).reason, std::string("BAD_ARTIFACT"));
  }

  void ViewTensor_ViewsTheMappingAndCopiesOnlyWhatIsMisaligned() {
    const QTemporaryDir dir;
    const std::string path = dir.filePath("m.safetensors").toStdString();
    // The data of "b" begin 4 bytes after those of "a". The header's length decides whether they
    // are aligned for F32.
    for (int pad = 0; pad < 4; ++pad) {
      const std::string header = R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
                                 R"("b":{"dtype":"F32","shape":[],"data_offsets":[4,8]}})";
      WriteFile(path, SafetensorsBytes(header + std::string(static_cast<std::size_t>(pad), ' '),
                                       std::string("\x80\x3f\x00\x40\x00\x00\x40\x40", 8)));
      at::Tensor a, b;
      bool in_place = false;
      {
        const auto file = *SafetensorsFile::Open(path);
        const TensorEntry& entry = *file->index().Find("b");
        a = *LoadTensor(file, *file->index().Find("a"), at::kFloat, at::kCPU);
        b = *ViewTensor(file, entry);
        in_place = b.data_ptr() == static_cast<const void*>(file->Data(entry).data());
        QCOMPARE(in_place, reinterpret_cast<std::uintptr_t>(file->Data(entry).data()) % 4 == 0);
      }
      QCOMPARE(a[0].item<float>(), 1.0F);
      QCOMPARE(a[1].item<float>(), 2.0F);
      QCOMPARE(b.item<float>(), 3.0F);
    }
  }

  void ViewTensor_RefusesTypesThatLibTorchLacks() {
    const QTemporaryDir dir;
    const std::string path = dir.filePath("m.safetensors").toStdString();
    WriteFile(path, SafetensorsBytes(R"({"a":{"dtype":"U32","shape":[1],"data_offsets":[0,4]}})",
                                     "0000"));
    const auto file = *SafetensorsFile::Open(path);
    QCOMPARE(base::GetReason(ViewTensor(file, file->index().tensors[0]).status()).reason,
             std::string("BAD_SAFETENSORS"));
  }

  void Guarded_TurnsExceptionsIntoStatus() {
    const auto result =
        Guarded([]() -> absl::StatusOr<at::Tensor> { return at::ones({2}) + at::ones({3}); });
    QCOMPARE(result.status().code(), absl::StatusCode::kInternal);
    const auto huge =
        Guarded([]() -> absl::StatusOr<at::Tensor> { return at::empty({std::int64_t{1} << 50}); });
    QCOMPARE(huge.status().code(), absl::StatusCode::kResourceExhausted);
  }

  void ParseDevice_TakesCpuAndCuda() {
    QVERIFY(ParseDevice("cpu")->is_cpu());
    QCOMPARE(static_cast<int>(ParseDevice("cuda:3")->index()), 3);
    for (const char* bad :
         {"", "gpu", "cuda", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:4096"}) {
      QCOMPARE(ParseDevice(bad).status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
};

}  // namespace onepiece::tensor

ONEPIECE_TEST(onepiece::tensor::TorchConvertTest)
#include "torch_convert_test.moc"
