#include "stages/instance/load_report.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "stages/instance/device_use.h"

namespace onepiece::instance {

LoadReport::LoadReport(std::string device, int workers, Parts parts, base::Clock& clock)
    : device_(std::move(device)),
      workers_(workers),
      parts_(parts),
      clock_(clock),
      meter_(MeterOf(device_)),
      since_(clock.Now()) {}

v1::NodeLoad LoadReport::Make() {
  v1::NodeLoad load;
  AddUtilization(load);
  AddDevice(load);
  load.set_idle_work(parts_.idle_work.status());
  load.set_sample_unix_ms(base::ToUnixMs(clock_.WallNow()));
  load.set_workers(Workers());
  const auto ring = parts_.inbox.stats();
  const auto count = [](std::size_t value) { return static_cast<std::int64_t>(value); };
  const std::size_t running = parts_.tasks.running().size();
  load.set_queued_jobs(count(parts_.scheduler.queued()));
  load.set_running_jobs(count(running));
  load.set_held_jobs(count(parts_.scheduler.held() + parts_.deliver.held()));
  load.set_no_progress_ms(
      std::chrono::duration_cast<std::chrono::milliseconds>(parts_.tasks.no_progress()).count());
  load.set_ring_slots(count(ring.slots));
  load.set_ring_slots_used(count(ring.slots_used));
  parts_.counts.AddTo(load);
  return load;
}

int LoadReport::Workers() const {
  const runtime::StageAssignment assignment = parts_.tasks.assignment();
  return assignment.stage.empty() ? workers_ : assignment.workers;
}

void LoadReport::AddUtilization(v1::NodeLoad& load) {
  const auto now = clock_.Now();
  const auto busy = parts_.tasks.busy();
  if (now > since_) {
    const double share = static_cast<double>((busy - busy_).count()) /
                         (static_cast<double>((now - since_).count()) * Workers());
    // Both times are read one after the other, so the share may be a little above 1.
    load.set_utilization(std::clamp(share, 0.0, 1.0));
    load.set_utilization_source(v1::WORKERS);
  }
  since_ = now;
  busy_ = busy;
}

// What the device counts itself replaces the utilisation of the workers, where it is this
// instance's alone.
void LoadReport::AddDevice(v1::NodeLoad& load) {
  const bool is_cpu = device_ == "cpu";
  device::DeviceReading reading;
  if (is_cpu) {
    reading = device::ReadHost();
  } else if (meter_ != nullptr) {
    reading = meter_->Read();
    if (const auto busy = BusyOf(reading, meter_->counts_multiprocessors())) {
      load.set_utilization(busy->share);
      load.set_utilization_source(busy->source);
    }
  }
  if (const auto memory = MemoryOf(device_); memory.ok()) {
    load.set_memory_bytes(memory->used_bytes);
    // CUDA knows its memory where NVML does not. For the cpu, `memory` is only this process's.
    if (!is_cpu && !reading.memory_bytes) {
      reading.memory_used_bytes = memory->used_bytes;
      reading.memory_bytes = memory->total_bytes;
    }
  }
  *load.add_devices() = MakeDeviceLoad(device_, reading);
}

}  // namespace onepiece::instance
