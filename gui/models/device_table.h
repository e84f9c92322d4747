// What every instance's device says of itself, and the page's heatmap and headline made of it.
//
// Threading  GUI thread only.
#pragma once

#include <QString>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/session/link.h"
#include "cluster/session/snapshot.h"
#include "gui/models/format.h"
#include "gui/models/heat_grid.h"
#include "gui/models/keyed_table.h"

namespace onepiece::gui {

enum class DeviceMetric {
  kSmActive,
  kCoarse,
  kMemoryActive,
  kMemory,
  kPower,
  kTemperature,
  kWorkers
};
inline constexpr std::array kDeviceMetrics = {
    DeviceMetric::kSmActive, DeviceMetric::kCoarse, DeviceMetric::kMemoryActive,
    DeviceMetric::kMemory,   DeviceMetric::kPower,  DeviceMetric::kTemperature,
    DeviceMetric::kWorkers};
QString MetricName(DeviceMetric metric);

/// One device of one instance; an instance that names none has one row all the same.
struct DeviceRow {
  std::string node_id;
  int index = 0;       ///< In NodeLoad.devices; -1: the instance names none.
  std::string series;  ///< What its series' names begin with: "node/instance-1/devices/cuda:0/".
  QString key;         ///< "device/NODE/INDEX", "node/NODE" without a device.
  QString node, machine, device, product;  ///< Safe to show.
  CellState state = CellState::kValue;     ///< Of the whole report; kNotAvailable never.
  std::int64_t age_ms = -1;  ///< Of the report, by the server's clock; -1: never came.
  v1::DeviceLoad load;
  std::optional<double> workers;  ///< NodeLoad.utilization where workers are what it counts.
  std::int64_t memory_bytes = 0;  ///< NodeLoad.memory_bytes.
  std::int64_t running_jobs = 0, queued_jobs = 0;
  QString warning;  ///< Busy, but no progress; empty: fine.
  [[nodiscard]] bool is_gpu() const { return index >= 0 && load.device() != "cpu"; }
};

/// What a row says of a metric; nullopt: it does not have that number.
struct DeviceValue {
  double value = 0;  ///< In `unit`.
  const char* unit = "ratio";
  double share = 0;  ///< For the colour, 0 to 1.
  QString text;      ///< "400 W"
  QString of;        ///< "of 700 W"; empty: of nothing.
};
std::optional<DeviceValue> ValueOf(const DeviceRow& row, DeviceMetric metric);

class DeviceTable {
 public:
  /// A report that is older is stale.
  static constexpr std::int64_t kStaleMs = 5000;
  /// At least so busy, and no step for so long: busy without progress.
  static constexpr double kBusy = 0.8;
  static constexpr std::int64_t kNoProgressMs = 30'000;

  DeviceTable();
  void Show(const Snapshot& snapshot, const LinkStatus& link);

  /// Every row with all its numbers, null where there is none: what is exported.
  [[nodiscard]] KeyedTable<DeviceRow>& table() { return *table_; }
  [[nodiscard]] const DeviceRow* Find(const QString& key) const;

  struct Picture {
    HeatGrid grid;
    DeviceMetric shown = DeviceMetric::kSmActive;  ///< Another one when nobody has the one wanted.
    QString headline;
    StatusTone tone = StatusTone::kNeutral;
    int hidden = 0;  ///< By the filter.
  };
  /// A line for each machine, in it its devices; a line for every eight when no machine has two.
  [[nodiscard]] Picture Draw(DeviceMetric wanted, const QString& filter) const;

 private:
  std::unique_ptr<KeyedTable<DeviceRow>> table_;
  QString problem_;  ///< Why nothing is known, or nothing newer.
};

}  // namespace onepiece::gui
