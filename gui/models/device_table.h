// What each device of each instance reports, and the heatmap and headline of the page "GPUs".
//
// Threading: GUI thread only.
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

/// What the heatmap shows of each device. kCoarse is the share of the time in which any kernel ran.
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

/// One device of one instance. An instance that reports no device has one row, too.
struct DeviceRow {
  std::string node_id;
  int index = 0;       ///< Index in NodeLoad.devices. -1 if the instance reports no device.
  std::string series;  ///< Prefix of the names of its series: "node/instance-1/devices/cuda:0/".
  QString key;         ///< "device/NODE/INDEX", or "node/NODE" without a device.
  QString node, machine, device, product;  ///< Safe to show.
  CellState state = CellState::kValue;     ///< State of the whole report; never kNotAvailable.
  std::int64_t age_ms = -1;  ///< Age of the report by the server's clock. -1 if none came.
  v1::DeviceLoad load;
  std::optional<double> workers;  ///< NodeLoad.utilization, if it measures the workers.
  std::int64_t memory_bytes = 0;  ///< NodeLoad.memory_bytes.
  std::int64_t running_jobs = 0, queued_jobs = 0;
  QString warning;  ///< Why it is busy without progress. Empty if it is not.
  [[nodiscard]] bool is_gpu() const { return index >= 0 && load.device() != "cpu"; }
};

/// The value of one metric of a device.
struct DeviceValue {
  double value = 0;  ///< In `unit`.
  const char* unit = "ratio";
  double share = 0;  ///< Position on the colour scale, 0 to 1.
  QString text;      ///< "400 W"
  QString of;        ///< "of 700 W". Empty if there is no whole.
};
/// nullopt if the device does not report this metric.
std::optional<DeviceValue> ValueOf(const DeviceRow& row, DeviceMetric metric);

/// Makes the rows of the page "GPUs" from a snapshot, and arranges them as a heatmap.
class DeviceTable {
 public:
  /// An older report is stale.
  static constexpr std::int64_t kStaleMs = 5000;
  /// A device is "busy without progress" when its busy share is at least kBusy and its instance has
  /// finished no step for kNoProgressMs.
  static constexpr double kBusy = 0.8;
  static constexpr std::int64_t kNoProgressMs = 30'000;

  DeviceTable();
  /// Replaces the rows by those of `snapshot`. `link` gives the clock's skew, which the ages need.
  void Show(const session::Snapshot& snapshot, const session::LinkStatus& link);

  /// All rows with all their numbers, for export. A number that is not known is null, never 0.
  [[nodiscard]] KeyedTable<DeviceRow>& table() { return *table_; }
  /// The row with this key; nullptr if there is none. The pointer holds until the next Show().
  [[nodiscard]] const DeviceRow* Find(const QString& key) const;

  struct Picture {
    HeatGrid grid;
    /// The wanted metric, or another one if no device reports it.
    DeviceMetric shown = DeviceMetric::kSmActive;
    QString headline;
    StatusTone tone = StatusTone::kNeutral;
    int hidden = 0;  ///< Rows that the filter hides.
  };
  /// Arranges the devices: one line for each machine with its devices as cells. If no machine has
  /// two devices, each line holds eight of them.
  [[nodiscard]] Picture Draw(DeviceMetric wanted, const QString& filter) const;

 private:
  std::unique_ptr<KeyedTable<DeviceRow>> table_;
  QString problem_;  ///< Why nothing is known, or why it is not newer.
};

}  // namespace onepiece::gui
