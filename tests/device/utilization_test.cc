#include "stages/device/utilization.h"

#include <dlfcn.h>

#include <QtTest>
#include <limits>

namespace onepiece::device {
namespace {

constexpr char kBus[] = "0000:65:00.0";

// As in fake_nvml.cc.
struct Numbers {
  unsigned counts_multiprocessors = 0;
  double active_percent = 0;
  unsigned kernel_percent = 0;
  int sessions = 0;
  int samples = 0;
};

}  // namespace

class UtilizationTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    library_ = dlopen(ONEPIECE_FAKE_NVML, RTLD_NOW);
    QVERIFY2(library_ != nullptr, dlerror());
    const auto numbers = reinterpret_cast<Numbers* (*)()>(dlsym(library_, "fake_nvml_numbers"));
    QVERIFY(numbers != nullptr);
    numbers_ = numbers();
  }
  void init() { *numbers_ = {}; }
  void cleanup() {
    QCOMPARE(numbers_->sessions, 0);
    QCOMPARE(numbers_->samples, 0);
  }
  void cleanupTestCase() { dlclose(library_); }

  void Take_CountsActiveMultiprocessors() {
    numbers_->counts_multiprocessors = 1;
    numbers_->active_percent = 37.5;
    numbers_->kernel_percent = 100;
    UtilizationMeter meter(kBus, ONEPIECE_FAKE_NVML);
    auto busy = meter.Take();
    QVERIFY(busy.has_value());
    QCOMPARE(busy->share, 0.375);
    QVERIFY(!busy->coarse);
    // What could not be told of two samples stays as it was.
    numbers_->active_percent = std::numeric_limits<double>::quiet_NaN();
    QCOMPARE(meter.Take()->share, 0.375);
    for (int i = 0; i < 10; ++i) (void)meter.Take();
    QVERIFY(!meter.Take().has_value());
    numbers_->active_percent = 250;
    QCOMPARE(meter.Take()->share, 1.0);
  }

  void Take_OlderDevice_IsCoarse() {
    numbers_->kernel_percent = 80;
    UtilizationMeter meter(kBus, ONEPIECE_FAKE_NVML);
    const auto busy = meter.Take();
    QVERIFY(busy.has_value());
    QCOMPARE(busy->share, 0.8);
    QVERIFY(busy->coarse);
  }

  void Take_WithoutDeviceOrDriver_SaysNothing() {
    UtilizationMeter other("0000:01:00.0", ONEPIECE_FAKE_NVML);
    QVERIFY(!other.Take().has_value());
    UtilizationMeter none(kBus, "libno-such-nvml.so.1");
    QVERIFY(!none.Take().has_value());
    UtilizationMeter foreign(kBus, "libc.so.6");
    QVERIFY(!foreign.Take().has_value());
  }

 private:
  void* library_ = nullptr;
  Numbers* numbers_ = nullptr;
};

}  // namespace onepiece::device

QTEST_GUILESS_MAIN(onepiece::device::UtilizationTest)
#include "utilization_test.moc"
