#include "stages/tensor/device_copy.h"

#include <QtTest>

#include "cluster/base/status.h"
#include "tests/test_main.h"

namespace onepiece::tensor {

class DeviceCopyTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void ToDevice_OnTheCpuIsTheTensorItself() {
    const at::Tensor host = at::arange(6, at::TensorOptions(at::kFloat));
    const auto same = ToDevice(host, at::kCPU);
    QVERIFY(same.ok());
    QVERIFY(same->is_same(host));
  }

  // The first half runs if LibTorch sees a GPU, the second half otherwise.
  void ToDevice_CopiesOrSaysWhyNot() {
    const at::Tensor host = at::arange(1 << 20, at::TensorOptions(at::kFloat)).view({1 << 10, -1});
    const at::Device device(at::kCUDA, 0);
    auto copy = ToDevice(host, device);
    if (at::hasCUDA()) {
      QVERIFY2(copy.ok(), base::Message(copy.status()).c_str());
      QVERIFY(copy->device() == device);
      QVERIFY(at::equal(copy->to(at::kCPU), host));
      copy = ToDevice(host.t(), device);  // Not contiguous.
      QVERIFY(copy.ok());
      QVERIFY(at::equal(copy->to(at::kCPU), host.t()));
      return;
    }
    QCOMPARE(base::GetReason(copy.status()).reason, std::string("COMPUTE_FAILED"));
    QVERIFY2(base::Message(copy.status()).find("cuda") != std::string::npos,
             base::Message(copy.status()).c_str());
  }
};

}  // namespace onepiece::tensor

ONEPIECE_TEST(onepiece::tensor::DeviceCopyTest)
#include "device_copy_test.moc"
