// Runs with and without a device. Without one, the functions must say so and change nothing.
#include "stages/device/device.h"

#include <QtTest>
#include <vector>

#include "cluster/base/status.h"
#include "tests/test_main.h"

namespace onepiece::device {
namespace {

/// Returns the reason of every function without a device, or without CUDA in the build.
void CheckRefusal(const absl::Status& status) {
  QVERIFY(!status.ok());
  const std::string reason = base::GetReason(status).reason;
  if (reason == "NO_CUDA") {
    QCOMPARE(status.code(), absl::StatusCode::kUnimplemented);
    return;
  }
  QCOMPARE(reason, std::string("CUDA_FAILED"));
  QCOMPARE(status.code(), absl::StatusCode::kFailedPrecondition);
  QVERIFY2(base::Message(status).starts_with("cuda:"), base::Message(status).c_str());
}

}  // namespace

class DeviceTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void PinHostMemory_HoldsUntilItIsLetGo() {
    std::vector<std::byte> memory(1 << 20);
    auto pinned = PinHostMemory(0, memory);
    if (!DeviceMemory(0).ok()) return CheckRefusal(pinned.status());
    QVERIFY2(pinned.ok(), base::Message(pinned.status()).c_str());
    QVERIFY(!PinHostMemory(0, memory).ok());  // CUDA refuses memory that is pinned already.
    pinned = nullptr;
    QVERIFY(PinHostMemory(0, memory).ok());
  }

  void DeviceMemory_IsUsedInPart() {
    const auto memory = DeviceMemory(0);
    if (!memory.ok()) return CheckRefusal(memory.status());
    QVERIFY(memory->used_bytes > 0);
    QVERIFY(memory->used_bytes <= memory->total_bytes);
  }

  void PciBusId_NamesTheDevice() {
    const auto bus_id = PciBusId(0);
    if (!DeviceMemory(0).ok()) return CheckRefusal(bus_id.status());
    QVERIFY2(bus_id.ok(), base::Message(bus_id.status()).c_str());
    QVERIFY(QString::fromStdString(*bus_id).contains(":"));
  }

  void NoSuchDevice_IsAnError() {
    std::vector<std::byte> memory(4096);
    CheckRefusal(PinHostMemory(127, memory).status());
    CheckRefusal(DeviceMemory(127).status());
    CheckRefusal(PciBusId(127).status());
  }
};

}  // namespace onepiece::device

ONEPIECE_TEST(onepiece::device::DeviceTest)
#include "device_test.moc"
