// The numbers that the fake NVML library (fake_nvml.cc) returns. A test that has loaded the library
// sets them.
#pragma once

namespace onepiece::device {

struct FakeProcessSample {
  unsigned pid = 0;
  unsigned long long time_us = 0;
  unsigned percent = 0;
};

struct FakeNvmlNumbers {
  unsigned counts_multiprocessors = 0;
  double active_percent = 0;  // Activity of the multiprocessors between any two samples.
  unsigned kernel_percent = 0;
  int sessions = 0;
  int samples = 0;
  unsigned memory_percent = 0;
  unsigned long long total_bytes = 0, used_bytes = 0;
  unsigned long long reserved_bytes = 0;  // By the driver; part of used_bytes in the old form.
  bool has_memory_v2 = true;
  unsigned power_mw = 0, power_limit_mw = 0, celsius = 0;
  FakeProcessSample process_samples[100];
  unsigned process_samples_count = 0;
  int process_result = 0;  // What the samples of processes return, unless it is 0.
  unsigned running = 0;    // Processes that compute on the device.
  int result = 0;          // The return value of the memory, power and temperature functions.
};

}  // namespace onepiece::device
