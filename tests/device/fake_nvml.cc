// A library with the part of NVML that the product uses: one device, whose numbers the test sets.
#include "tests/device/fake_nvml.h"

#include <cstring>

namespace {

onepiece::device::FakeNvmlNumbers numbers;

struct Metric {
  unsigned id;
  int result;
  double value;
  const char* names[3];
};
struct Metrics {
  unsigned version, count;
  void *before, *after;
  Metric metrics[1];
};

struct ProcessSample {
  unsigned pid;
  unsigned long long time_us;
  unsigned sm, memory, encoder, decoder;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

int the_device;

}  // namespace

extern "C" {

void* fake_nvml_numbers() { return &numbers; }

int nvmlInit_v2() { return ++numbers.sessions, 0; }
int nvmlShutdown() { return --numbers.sessions, 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  *device = &the_device;
  return std::strcmp(bus_id, "0000:65:00.0") == 0 ? 0 : 6;  // NVML_ERROR_NOT_FOUND
}
int nvmlDeviceGetUtilizationRates(void*, unsigned* rates) {
  rates[0] = numbers.kernel_percent;
  rates[1] = numbers.memory_percent;
  return 0;
}
int nvmlDeviceGetName(void*, char* name, unsigned length) {
  std::strncpy(name, "Fake H100", length);
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* memory) {
  memory[0] = numbers.total_bytes;
  memory[1] = numbers.total_bytes - numbers.used_bytes - numbers.reserved_bytes;
  memory[2] = numbers.used_bytes + numbers.reserved_bytes;
  return numbers.result;
}

int nvmlDeviceGetMemoryInfo_v2(void*, MemoryV2* memory) {
  constexpr unsigned kVersion = 0x02000028;    // nvmlMemory_v2 of the API reference.
  if (!numbers.has_memory_v2) return 13;       // NVML_ERROR_FUNCTION_NOT_FOUND
  if (memory->version != kVersion) return 25;  // NVML_ERROR_ARGUMENT_VERSION_MISMATCH
  memory->total = numbers.total_bytes;
  memory->reserved = numbers.reserved_bytes;
  memory->free = numbers.total_bytes - numbers.used_bytes - numbers.reserved_bytes;
  memory->used = numbers.used_bytes;
  return numbers.result;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = numbers.power_mw;
  return numbers.result;
}
int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) {
  *milliwatts = numbers.power_limit_mw;
  return numbers.result;
}
int nvmlDeviceGetTemperature(void*, int sensor, unsigned* celsius) {
  *celsius = numbers.celsius;
  return sensor == 0 ? numbers.result : 2;  // NVML_ERROR_INVALID_ARGUMENT
}
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, void*) {
  const unsigned room = *count;
  *count = numbers.running;
  return room < numbers.running ? 7 : 0;  // NVML_ERROR_INSUFFICIENT_SIZE
}
int nvmlDeviceGetProcessUtilization(void*, ProcessSample* samples, unsigned* count,
                                    unsigned long long after_us) {
  if (numbers.process_result != 0) return numbers.process_result;
  const unsigned room = *count;
  *count = 0;
  for (unsigned i = 0; i < numbers.process_samples_count; ++i) {
    const auto& sample = numbers.process_samples[i];
    if (sample.time_us <= after_us) continue;
    if (*count < room) samples[*count] = {sample.pid, sample.time_us, sample.percent, 0, 0, 0};
    ++*count;
  }
  if (*count == 0) return 6;     // NVML_ERROR_NOT_FOUND
  return *count > room ? 7 : 0;  // NVML_ERROR_INSUFFICIENT_SIZE
}
int nvmlGpmQueryDeviceSupport(void*, unsigned* support) {
  support[1] = numbers.counts_multiprocessors;
  return support[0] == 1 ? 0 : 25;  // NVML_ERROR_ARGUMENT_VERSION_MISMATCH
}
int nvmlGpmSampleAlloc(void** sample) {
  *sample = new int(0);
  return ++numbers.samples, 0;
}
int nvmlGpmSampleFree(void* sample) {
  delete static_cast<int*>(sample);
  return --numbers.samples, 0;
}
int nvmlGpmSampleGet(void*, void* sample) {
  static int taken = 0;
  *static_cast<int*>(sample) = ++taken;
  return 0;
}
int nvmlGpmMetricsGet(Metrics* metrics) {
  const bool good = metrics->version == 1 && metrics->count == 1 && metrics->metrics[0].id == 2 &&
                    *static_cast<int*>(metrics->before) < *static_cast<int*>(metrics->after);
  metrics->metrics[0].value = numbers.active_percent;
  return good ? 0 : 2;  // NVML_ERROR_INVALID_ARGUMENT
}
}
