#include "stages/device/utilization.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "spdlog/spdlog.h"

namespace onepiece::device {
namespace {

// What is used of NVML's binary interface (NVIDIA Management Library, API reference), declared here
// so that nothing of the CUDA toolkit is needed to build.
using Device = struct NvmlDevice*;
using Sample = struct NvmlGpmSample*;
constexpr int kSuccess = 0;
constexpr unsigned kGpmVersion = 1;
constexpr unsigned kSmUtilization = 2;  // Percentage of multiprocessors that were busy.
// At least as many as the library's structure has; it looks at the first numMetrics only.
constexpr int kMaxMetrics = 512;
// After so many answers in a row that say nothing the last one is out of date.
constexpr int kMaxSilent = 5;

struct Utilization {
  unsigned gpu = 0, memory = 0;  // Percent.
};
struct GpmSupport {
  unsigned version = kGpmVersion;
  unsigned supported = 0;
};
struct GpmMetric {
  unsigned id = 0;
  int result = 0;
  double value = 0;
  const char* names[3] = {};
};
struct GpmMetrics {
  unsigned version = kGpmVersion;
  unsigned count = 0;
  Sample before = nullptr, after = nullptr;
  GpmMetric metrics[kMaxMetrics];
};

struct Closer {
  void operator()(void* library) const { dlclose(library); }
};

}  // namespace

class UtilizationMeter::Session {
 public:
  // Null when something is missing; `why` says what.
  static std::unique_ptr<Session> Open(const std::string& pci_bus_id, const std::string& library,
                                       std::string& why) {
    std::unique_ptr<Session> session(new Session);
    session->library_.reset(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
    if (session->library_ == nullptr) {
      const char* error = dlerror();
      why = error == nullptr ? library : error;
      return nullptr;
    }
    int (*init)() = nullptr;
    int (*by_bus)(const char*, Device*) = nullptr;
    if (!session->Find("nvmlInit_v2", init) || !session->Find("nvmlShutdown", session->shutdown_) ||
        !session->Find("nvmlDeviceGetHandleByPciBusId_v2", by_bus) ||
        !session->Find("nvmlDeviceGetUtilizationRates", session->rates_)) {
      session->shutdown_ = nullptr;  // Nothing to shut down.
      why = library + " lacks what is needed of NVML";
      return nullptr;
    }
    if (const int result = init(); result != kSuccess) {
      session->shutdown_ = nullptr;
      why = "nvmlInit_v2: error " + std::to_string(result);
      return nullptr;
    }
    if (const int result = by_bus(pci_bus_id.c_str(), &session->device_); result != kSuccess) {
      why = "NVML does not know device " + pci_bus_id + ": error " + std::to_string(result);
      return nullptr;
    }
    session->BeginSampling();
    return session;
  }

  ~Session() {
    for (Sample sample : {before_, after_}) {
      if (sample != nullptr) sample_free_(sample);
    }
    if (shutdown_ != nullptr) shutdown_();
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  std::optional<BusyShare> Take() {
    if (after_ != nullptr) return TakeActive();
    Utilization rates;
    if (rates_(device_, &rates) != kSuccess) return std::nullopt;
    return BusyShare{std::min(rates.gpu, 100U) / 100.0, true};
  }

 private:
  Session() = default;

  template <typename Function>
  bool Find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library_.get(), name));
    return function != nullptr;
  }

  // Counters of the multiprocessors, where library and device have them (Hopper and later).
  void BeginSampling() {
    int (*query)(Device, GpmSupport*) = nullptr;
    int (*alloc)(Sample*) = nullptr;
    GpmSupport support;
    const bool there =
        Find("nvmlGpmQueryDeviceSupport", query) && Find("nvmlGpmSampleAlloc", alloc) &&
        Find("nvmlGpmSampleFree", sample_free_) && Find("nvmlGpmSampleGet", sample_get_) &&
        Find("nvmlGpmMetricsGet", metrics_get_) && query(device_, &support) == kSuccess &&
        support.supported != 0;
    if (!there || alloc(&before_) != kSuccess) return;
    if (alloc(&after_) == kSuccess && sample_get_(device_, before_) == kSuccess) return;
    // The device says that it can and cannot: the coarse number then.
    for (Sample* sample : {&before_, &after_}) {
      if (*sample != nullptr) sample_free_(*sample);
      *sample = nullptr;
    }
  }

  std::optional<BusyShare> TakeActive() {
    if (sample_get_(device_, after_) != kSuccess) return std::nullopt;
    metrics_.count = 1;
    metrics_.before = before_;
    metrics_.after = after_;
    metrics_.metrics[0] = {.id = kSmUtilization};
    const int result = metrics_get_(&metrics_);
    const GpmMetric& active = metrics_.metrics[0];
    // Two samples too close to each other say nothing: the older one stays.
    if (result != kSuccess || active.result != kSuccess || !std::isfinite(active.value)) {
      if (++silent_ >= kMaxSilent) last_.reset();
      return last_;
    }
    silent_ = 0;
    std::swap(before_, after_);
    last_ = BusyShare{std::clamp(active.value / 100, 0.0, 1.0), false};
    return last_;
  }

  std::unique_ptr<void, Closer> library_;
  int (*shutdown_)() = nullptr;
  int (*rates_)(Device, Utilization*) = nullptr;
  int (*sample_get_)(Device, Sample) = nullptr;
  int (*sample_free_)(Sample) = nullptr;
  int (*metrics_get_)(GpmMetrics*) = nullptr;
  Device device_ = nullptr;
  Sample before_ = nullptr, after_ = nullptr;  // Null: no such counters.
  GpmMetrics metrics_;
  std::optional<BusyShare> last_;
  int silent_ = 0;
};

UtilizationMeter::UtilizationMeter(const std::string& pci_bus_id, const std::string& library) {
  std::string why;
  session_ = Session::Open(pci_bus_id, library, why);
  if (session_ == nullptr)
    spdlog::warn("the use of device {} is not measured, that of the workers is: {}", pci_bus_id,
                 why);
}

UtilizationMeter::~UtilizationMeter() = default;

std::optional<BusyShare> UtilizationMeter::Take() {
  return session_ == nullptr ? std::nullopt : session_->Take();
}

}  // namespace onepiece::device
