#include "stages/device/device_meter.h"

#include <dlfcn.h>
#include <unistd.h>

#include <QTemporaryDir>
#include <QtTest>
#include <limits>
#include <utility>

#include "tests/device/fake_nvml.h"
#include "tests/test_main.h"

namespace onepiece::device {
namespace {

constexpr char kBus[] = "0000:65:00.0";

}  // namespace

class DeviceMeterTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    library_ = dlopen(ONEPIECE_FAKE_NVML, RTLD_NOW);
    QVERIFY2(library_ != nullptr, dlerror());
    const auto numbers =
        reinterpret_cast<FakeNvmlNumbers* (*)()>(dlsym(library_, "fake_nvml_numbers"));
    QVERIFY(numbers != nullptr);
    numbers_ = numbers();
  }
  void init() { *numbers_ = {}; }
  void cleanup() {
    QCOMPARE(numbers_->sessions, 0);
    QCOMPARE(numbers_->samples, 0);
  }
  void cleanupTestCase() { dlclose(library_); }

  void Read_CountsActiveMultiprocessors() {
    numbers_->counts_multiprocessors = 1;
    numbers_->active_percent = 37.5;
    numbers_->kernel_percent = 100;
    DeviceMeter meter(kBus, ONEPIECE_FAKE_NVML);
    QVERIFY(meter.counts_multiprocessors());
    const DeviceReading reading = meter.Read();
    QCOMPARE(reading.sm_active.value(), 0.375);
    QCOMPARE(reading.kernel_active.value(), 1.0);
    // A number that two samples do not give stays as it was.
    numbers_->active_percent = std::numeric_limits<double>::quiet_NaN();
    QCOMPARE(meter.Read().sm_active.value(), 0.375);
    for (int i = 0; i < 10; ++i) (void)meter.Read();
    QVERIFY(!meter.Read().sm_active.has_value());
    numbers_->active_percent = 250;
    QCOMPARE(meter.Read().sm_active.value(), 1.0);
  }

  void Read_OlderDevice_IsCoarse() {
    numbers_->kernel_percent = 80;
    DeviceMeter meter(kBus, ONEPIECE_FAKE_NVML);
    QVERIFY(!meter.counts_multiprocessors());
    const DeviceReading reading = meter.Read();
    QVERIFY(!reading.sm_active.has_value());
    QCOMPARE(reading.kernel_active.value(), 0.8);
  }

  void Read_TellsWhatTheDeviceHas() {
    numbers_->memory_percent = 250;
    numbers_->total_bytes = 80ULL << 30;
    numbers_->used_bytes = 3ULL << 30;
    numbers_->power_mw = 312'500;
    numbers_->power_limit_mw = 700'000;
    numbers_->celsius = 61;
    DeviceMeter meter(kBus, ONEPIECE_FAKE_NVML);
    DeviceReading reading = meter.Read();
    QCOMPARE(reading.product, std::string("Fake H100"));
    QCOMPARE(reading.memory_active.value(), 1.0);
    QCOMPARE(reading.memory_bytes.value(), std::int64_t{80} << 30);
    QCOMPARE(reading.memory_used_bytes.value(), std::int64_t{3} << 30);
    QCOMPARE(reading.power_w.value(), 312.5);
    QCOMPARE(reading.power_limit_w.value(), 700.0);
    QCOMPARE(reading.temperature_c.value(), 61.0);
    // What the driver keeps for itself is not used, except that an older library cannot tell.
    numbers_->reserved_bytes = 1ULL << 30;
    QCOMPARE(meter.Read().memory_used_bytes.value(), std::int64_t{3} << 30);
    numbers_->has_memory_v2 = false;
    QCOMPARE(meter.Read().memory_used_bytes.value(), std::int64_t{4} << 30);
    // An unsupported number is absent, not zero.
    numbers_->result = 3;  // NVML_ERROR_NOT_SUPPORTED
    reading = meter.Read();
    QVERIFY(!reading.memory_bytes && !reading.memory_used_bytes && !reading.power_w);
    QVERIFY(!reading.power_limit_w && !reading.temperature_c);
    QVERIFY(reading.kernel_active.has_value());
  }

  void Read_TellsWhatThisProcessDoesOnASharedDevice() {
    const unsigned own = static_cast<unsigned>(getpid());
    AddSample(own, 10, 90);  // Before the meter begins.
    DeviceMeter meter(kBus, ONEPIECE_FAKE_NVML);
    numbers_->running = 2;
    DeviceReading reading = meter.Read();
    QVERIFY(reading.is_shared);
    QVERIFY(!reading.process_active.has_value());  // Nobody has named this process yet.
    AddSample(own, 20, 30);
    AddSample(own + 1, 20, 70);
    AddSample(own, 30, 50);
    QCOMPARE(meter.Read().process_active.value(), 0.4);
    // A quiet process has no samples.
    AddSample(own + 1, 40, 100);
    reading = meter.Read();
    QCOMPARE(reading.process_active.value(), 0.0);
    QVERIFY(reading.is_shared);
    numbers_->running = 1;
    reading = meter.Read();  // Nobody did anything, and the other one has left.
    QCOMPARE(reading.process_active.value(), 0.0);
    QVERIFY(!reading.is_shared);
    for (unsigned i = 0; i < 80; ++i) AddSample(own, 50 + i, i < 40 ? 200 : 0);
    QCOMPARE(meter.Read().process_active.value(), 0.5);
    numbers_->process_result = 3;  // NVML_ERROR_NOT_SUPPORTED
    QVERIFY(!meter.Read().process_active.has_value());
    numbers_->running = 2;
    DeviceMeter other(kBus, ONEPIECE_FAKE_NVML);
    reading = other.Read();
    QVERIFY(reading.is_shared && !reading.process_active);
  }

  void Read_WithoutDeviceOrDriver_SaysNothing() {
    for (const auto& [bus, library] :
         {std::pair("0000:01:00.0", ONEPIECE_FAKE_NVML), std::pair(kBus, "libno-such-nvml.so.1"),
          std::pair(kBus, "libc.so.6")}) {
      DeviceMeter meter(bus, library);
      QVERIFY(!meter.counts_multiprocessors());
      const DeviceReading reading = meter.Read();
      QVERIFY(reading.product.empty() && !reading.sm_active && !reading.kernel_active);
      QVERIFY(!reading.memory_active && !reading.memory_bytes && !reading.power_w);
    }
  }

  void ReadHost_TellsProcessorAndMemory() {
    QTemporaryDir proc;
    const auto write = [&](const char* name, const char* text) {
      QFile file(proc.filePath(name));
      QVERIFY(file.open(QIODevice::WriteOnly));
      file.write(text);
    };
    const std::string path = proc.path().toStdString();
    QVERIFY(!ReadHost(path).memory_bytes.has_value());
    write("cpuinfo",
          "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n\nprocessor\t: 1\nmodel name\t: B\n");
    write("meminfo", "MemTotal:        1000 kB\nMemFree:  10 kB\nMemAvailable:   400 kB\n");
    const DeviceReading reading = ReadHost(path);
    QCOMPARE(reading.product, std::string("A CPU @ 2 GHz"));
    QCOMPARE(reading.memory_bytes.value(), std::int64_t{1'024'000});
    QCOMPARE(reading.memory_used_bytes.value(), std::int64_t{614'400});
    QVERIFY(!reading.sm_active && !reading.kernel_active && !reading.memory_active);
    QVERIFY(!reading.power_w && !reading.power_limit_w && !reading.temperature_c);
  }

 private:
  void AddSample(unsigned pid, unsigned long long time_us, unsigned percent) {
    numbers_->process_samples[numbers_->process_samples_count++] = {pid, time_us, percent};
  }

  void* library_ = nullptr;
  FakeNvmlNumbers* numbers_ = nullptr;
};

}  // namespace onepiece::device

ONEPIECE_TEST(onepiece::device::DeviceMeterTest)
#include "device_meter_test.moc"
