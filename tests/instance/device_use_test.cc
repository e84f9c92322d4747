#include "stages/instance/device_use.h"

#include <QtTest>
#include <vector>

#include "tests/test_main.h"

namespace onepiece::instance {

class DeviceUseTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void PinBlocks_NothingOnTheCpu() { QVERIFY(PinBlocks("cpu") == nullptr); }

  void PinBlocks_GoesOnWithoutADevice() {
    const node::BlockHook hook = PinBlocks("cuda:0");
    QVERIFY(hook != nullptr);
    const auto pool = std::make_shared<node::BlockPool>(64 << 20, hook);
    const node::BlockPool::Block block = pool->Take(1 << 20);
    QCOMPARE(block.bytes.size(), std::size_t{1 << 20});
    block.bytes.back() = std::byte{1};
    // Both calls give the same: pinned memory where there is a device, and none elsewhere.
    std::vector<std::byte> memory(1 << 20);
    QCOMPARE(hook(memory) != nullptr, device::DeviceMemory(0).ok());
  }

  void MemoryOf_CpuIsThisProcess() {
    const auto before = MemoryOf("cpu");
    QVERIFY(before.ok());
    const std::vector<char> held(std::size_t{64} << 20, 'x');
    const auto after = MemoryOf("cpu");
    QVERIFY(after.ok());
    QVERIFY(after->used_bytes - before->used_bytes >
            static_cast<std::int64_t>(held.size()) * 9 / 10);
    QVERIFY(after->used_bytes < after->total_bytes);
  }

  void MemoryOf_CudaIsTheDevices() {
    QCOMPARE(MemoryOf("cuda:0").ok(), device::DeviceMemory(0).ok());
  }

  void MakeDeviceLoad_LeavesOutWhatIsUnknown() {
    const device::DeviceReading reading = {.product = "a device", .sm_active = 0, .power_w = 12.5};
    v1::DeviceLoad expected;
    expected.set_device("cuda:0");
    expected.set_product("a device");
    expected.set_sm_active(0);
    expected.set_power_w(12.5);
    QCOMPARE(MakeDeviceLoad("cuda:0", reading).DebugString(), expected.DebugString());
    const v1::DeviceLoad cpu = MakeDeviceLoad("cpu", device::ReadHost());
    QVERIFY(cpu.memory_used_bytes() > 0 && cpu.memory_used_bytes() < cpu.memory_bytes());
    QVERIFY(!cpu.has_sm_active() && !cpu.has_kernel_active() && !cpu.has_power_w());
  }

  void BusyOf_OnASharedDevice_IsWhatThisProcessDoes() {
    device::DeviceReading reading = {.sm_active = 0.9, .kernel_active = 0.95};
    QCOMPARE(BusyOf(reading, true)->share, 0.9);
    QCOMPARE(BusyOf(reading, true)->source, v1::SM_ACTIVE);
    QCOMPARE(BusyOf(reading, false)->share, 0.95);
    QCOMPARE(BusyOf(reading, false)->source, v1::GPU_COARSE);
    reading.is_shared = true;  // A busy neighbour.
    QVERIFY(!BusyOf(reading, true).has_value());
    reading.process_active = 0.1;
    QCOMPARE(BusyOf(reading, true)->share, 0.1);
    QCOMPARE(BusyOf(reading, true)->source, v1::GPU_COARSE);
    QCOMPARE(MakeDeviceLoad("cuda:0", reading).process_active(), 0.1);
    QVERIFY(!BusyOf({}, true).has_value());
  }

  void ExportDeviceMemory_ShowsBothKinds() {
    telemetry::Metrics metrics("instance", "i-1");
    ExportDeviceMemory("cpu", metrics);
    const auto value = [&](const char* kind) {
      return metrics.Gauge("onepiece_device_memory_bytes", "", {{"device", "cpu"}, {"kind", kind}})
          .Value();
    };
    QVERIFY(value("used") > 1e6);
    QVERIFY(value("total") > value("used"));
  }
};

}  // namespace onepiece::instance

ONEPIECE_TEST(onepiece::instance::DeviceUseTest)
#include "device_use_test.moc"
