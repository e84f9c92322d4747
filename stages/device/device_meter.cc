#include "stages/device/device_meter.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "spdlog/spdlog.h"

namespace onepiece::device {
namespace {

// Numbers of NVML (NVIDIA Management Library, API reference).
constexpr int kSuccess = 0;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;
constexpr unsigned kGpmVersion = 1;
constexpr unsigned kSmUtilization = 2;  // Percentage of multiprocessors that were busy.
// At least as many as the library's structure has. The library reads only the first `count`.
constexpr int kMaxMetrics = 512;
// After this many useless answers in a row the last useful one is out of date.
constexpr int kMaxSilent = 5;
constexpr std::size_t kMaxName = 96;  // NVML_DEVICE_NAME_V2_BUFFER_SIZE
constexpr int kCoreSensor = 0;        // NVML_TEMPERATURE_GPU
// More processes than this do not compute on one device.
constexpr unsigned kMaxProcesses = 1024;

struct Closer {
  void operator()(void* library) const { dlclose(library); }
};

}  // namespace

class DeviceMeter::Session {
  // The part of NVML's binary interface that is used here. It is declared here so that the build
  // does not need the CUDA toolkit. It is not in an anonymous namespace, because g++ 13 crashes in
  // a unity build on a member that points to a function of such types.
  using Device = struct NvmlDevice*;
  using Sample = struct NvmlGpmSample*;
  struct Utilization {
    unsigned gpu = 0, memory = 0;  // Percent.
  };
  struct Memory {
    unsigned long long total = 0, free = 0, used = 0;  // Bytes.
  };
  // The newer form, which does not count what the driver keeps for itself as used.
  struct MemoryV2 {
    unsigned version = sizeof(MemoryV2) | (2U << 24);
    unsigned long long total = 0, reserved = 0, free = 0, used = 0;  // Bytes.
  };
  struct ProcessSample {
    unsigned pid = 0;
    unsigned long long time_us = 0;
    unsigned sm = 0, memory = 0, encoder = 0, decoder = 0;  // Percent.
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

 public:
  // Returns null when something is missing, and sets `why`.
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
    session->FindTheRest();
    session->BeginSampling();
    session->BeginProcesses();
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

  DeviceReading Read() {
    DeviceReading reading;
    reading.product = product_;
    if (after_ != nullptr) reading.sm_active = TakeActive();
    if (Utilization rates; rates_(device_, &rates) == kSuccess) {
      reading.kernel_active = std::min(rates.gpu, 100U) / 100.0;
      reading.memory_active = std::min(rates.memory, 100U) / 100.0;
    }
    AddMemory(reading);
    reading.power_w = Watts(power_);
    reading.power_limit_w = Watts(power_limit_);
    if (unsigned degrees = 0;
        temperature_ != nullptr && temperature_(device_, kCoreSensor, &degrees) == kSuccess)
      reading.temperature_c = degrees;
    AddProcesses(reading);
    return reading;
  }

  [[nodiscard]] bool counts_multiprocessors() const { return after_ != nullptr; }

 private:
  Session() = default;

  template <typename Function>
  bool Find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library_.get(), name));
    return function != nullptr;
  }

  // Finds the functions that an older library or a device may lack.
  void FindTheRest() {
    int (*name)(Device, char*, unsigned) = nullptr;
    std::array<char, kMaxName> text{};
    if (Find("nvmlDeviceGetName", name) && name(device_, text.data(), kMaxName) == kSuccess)
      product_.assign(text.data(), strnlen(text.data(), kMaxName));
    (void)Find("nvmlDeviceGetMemoryInfo", memory_);
    (void)Find("nvmlDeviceGetMemoryInfo_v2", memory_v2_);
    (void)Find("nvmlDeviceGetPowerUsage", power_);
    (void)Find("nvmlDeviceGetEnforcedPowerLimit", power_limit_);
    (void)Find("nvmlDeviceGetTemperature", temperature_);
  }

  void AddMemory(DeviceReading& reading) const {
    if (MemoryV2 memory; memory_v2_ != nullptr && memory_v2_(device_, &memory) == kSuccess) {
      reading.memory_used_bytes = static_cast<std::int64_t>(memory.used);
      reading.memory_bytes = static_cast<std::int64_t>(memory.total);
    } else if (Memory old; memory_ != nullptr && memory_(device_, &old) == kSuccess) {
      reading.memory_used_bytes = static_cast<std::int64_t>(old.used);
      reading.memory_bytes = static_cast<std::int64_t>(old.total);
    }
  }

  std::optional<double> Watts(int (*milliwatts_of)(Device, unsigned*)) const {
    unsigned milliwatts = 0;
    if (milliwatts_of == nullptr || milliwatts_of(device_, &milliwatts) != kSuccess)
      return std::nullopt;
    return milliwatts / 1000.0;
  }

  // Starts the counters of the multiprocessors, if library and device have them (Hopper and later).
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
    // The device claims to support the counters but does not: use the coarse number.
    for (Sample* sample : {&before_, &after_}) {
      if (*sample != nullptr) sample_free_(*sample);
      *sample = nullptr;
    }
  }

  // Leaves behind what processes did before.
  void BeginProcesses() {
    (void)Find("nvmlDeviceGetComputeRunningProcesses_v3", running_);
    if (!Find("nvmlDeviceGetProcessUtilization", processes_of_)) return;
    if (const int result = TakeSamples(); result != kSuccess && result != kNotFound)
      processes_of_ = nullptr;  // The device does not count processes.
  }

  // Reads the samples since the last ones into `samples_`. Only processes that were active have
  // any, so NVML finds none when all were idle.
  int TakeSamples() {
    unsigned count = static_cast<unsigned>(samples_.size());
    int result = processes_of_(device_, samples_.data(), &count, last_sample_us_);
    if (result == kInsufficientSize && count > samples_.size() && count <= kMaxProcesses) {
      samples_.resize(count);
      result = processes_of_(device_, samples_.data(), &count, last_sample_us_);
    }
    samples_taken_ = result == kSuccess ? std::min<std::size_t>(count, samples_.size()) : 0;
    for (std::size_t i = 0; i < samples_taken_; ++i)
      last_sample_us_ = std::max(last_sample_us_, samples_[i].time_us);
    return result;
  }

  void AddProcesses(DeviceReading& reading) {
    unsigned running = 0;
    // Without room for their names, the answer is how many there are.
    if (running_ != nullptr && running_(device_, &running, nullptr) == kInsufficientSize)
      reading.is_shared = running > 1;
    if (processes_of_ == nullptr) return;
    if (const int result = TakeSamples(); result != kSuccess && result != kNotFound) return;
    double sum = 0;
    int own = 0;
    for (std::size_t i = 0; i < samples_taken_; ++i) {
      const ProcessSample& sample = samples_[i];
      if (sample.pid != pid_) {
        reading.is_shared = true;
      } else {
        sum += std::min(sample.sm, 100U) / 100.0;
        ++own;
      }
    }
    is_named_ = is_named_ || own > 0;
    if (is_named_) reading.process_active = own > 0 ? sum / own : 0;
  }

  std::optional<double> TakeActive() {
    if (sample_get_(device_, after_) != kSuccess) return std::nullopt;
    metrics_.count = 1;
    metrics_.before = before_;
    metrics_.after = after_;
    metrics_.metrics[0] = {.id = kSmUtilization};
    const int result = metrics_get_(&metrics_);
    const GpmMetric& active = metrics_.metrics[0];
    // Two samples that are too close to each other give no number. The older one stays.
    if (result != kSuccess || active.result != kSuccess || !std::isfinite(active.value)) {
      if (++silent_ >= kMaxSilent) last_.reset();
      return last_;
    }
    silent_ = 0;
    std::swap(before_, after_);
    last_ = std::clamp(active.value / 100, 0.0, 1.0);
    return last_;
  }

  std::unique_ptr<void, Closer> library_;
  int (*shutdown_)() = nullptr;
  int (*rates_)(Device, Utilization*) = nullptr;
  // Null when the library does not have the function.
  int (*memory_)(Device, Memory*) = nullptr;
  int (*memory_v2_)(Device, MemoryV2*) = nullptr;
  int (*power_)(Device, unsigned*) = nullptr;
  int (*power_limit_)(Device, unsigned*) = nullptr;
  int (*temperature_)(Device, int, unsigned*) = nullptr;
  int (*running_)(Device, unsigned*, void*) = nullptr;
  int (*processes_of_)(Device, ProcessSample*, unsigned*, unsigned long long) = nullptr;
  int (*sample_get_)(Device, Sample) = nullptr;
  int (*sample_free_)(Sample) = nullptr;
  int (*metrics_get_)(GpmMetrics*) = nullptr;
  Device device_ = nullptr;
  std::string product_;
  Sample before_ = nullptr, after_ = nullptr;  // Null when there are no such counters.
  GpmMetrics metrics_;
  std::optional<double> last_;
  int silent_ = 0;
  const unsigned pid_ = static_cast<unsigned>(getpid());
  std::vector<ProcessSample> samples_ = std::vector<ProcessSample>(64);
  std::size_t samples_taken_ = 0;
  unsigned long long last_sample_us_ = 0;
  bool is_named_ = false;  // The driver knows this process by the number that we know.
};

DeviceMeter::DeviceMeter(const std::string& pci_bus_id, const std::string& library) {
  std::string why;
  session_ = Session::Open(pci_bus_id, library, why);
  if (session_ == nullptr)
    spdlog::warn("the use of device {} is not measured, that of the workers is: {}", pci_bus_id,
                 why);
}

DeviceMeter::~DeviceMeter() = default;

DeviceReading DeviceMeter::Read() {
  return session_ == nullptr ? DeviceReading() : session_->Read();
}

bool DeviceMeter::counts_multiprocessors() const {
  return session_ != nullptr && session_->counts_multiprocessors();
}

DeviceReading ReadHost(const std::string& proc) {
  DeviceReading reading;
  std::ifstream processors(proc + "/cpuinfo");
  for (std::string line; reading.product.empty() && std::getline(processors, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos)
      reading.product = line.substr(colon + 2);
  }
  std::ifstream memory(proc + "/meminfo");
  std::optional<std::int64_t> available;
  for (std::string line; std::getline(memory, line);) {
    std::istringstream words(line);
    std::string name, unit;
    std::int64_t kibibytes = 0;
    if (!(words >> name >> kibibytes >> unit) || unit != "kB") continue;
    if (name == "MemTotal:") reading.memory_bytes = kibibytes * 1024;
    if (name == "MemAvailable:") available = kibibytes * 1024;
  }
  if (reading.memory_bytes && available)
    reading.memory_used_bytes = *reading.memory_bytes - *available;
  return reading;
}

}  // namespace onepiece::device
