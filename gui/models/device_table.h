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

/// The number that the heatmap shows for each device.
enum class DeviceMetric {
  kSmActive,      ///< The share of the multiprocessors that were active.
  kCoarse,        ///< The share of the time in which any kernel ran.
  kMemoryActive,  ///< The share of the time in which the memory was busy.
  kMemory,        ///< Used bytes.
  kPower,         ///< Watts.
  kTemperature,   ///< Degrees Celsius.
  kWorkers        ///< The share of the time in which the instance's workers computed.
};
inline constexpr std::array kDeviceMetrics = {
    DeviceMetric::kSmActive, DeviceMetric::kCoarse, DeviceMetric::kMemoryActive,
    DeviceMetric::kMemory,   DeviceMetric::kPower,  DeviceMetric::kTemperature,
    DeviceMetric::kWorkers};
QString MetricName(DeviceMetric metric);

/// One device of one instance. An instance without a device has one row. A dead instance without a
/// report has none.
struct DeviceRow {
  std::string node_id;
  int index = 0;  ///< Index in NodeLoad.devices. -1 if the instance reports no device.
  /// The prefix of this device's series in the recording: "node/instance-1/devices/cuda:0/". Empty
  /// without a device.
  std::string series;
  QString key;  ///< "device/NODE/INDEX", or "node/NODE" without a device.
  /// These have passed SafeText. `device` and `product` are empty without a device.
  QString node, machine, device, product;
  /// How current the row is. kWarmingUp if nothing was measured yet. Never kNone or kNotAvailable.
  CellState state = CellState::kValue;
  std::int64_t age_ms = -1;  ///< Age of the report by the server's clock. -1 if none came.
  v1::DeviceLoad load;
  std::optional<double> workers;  ///< NodeLoad.utilization if its source is WORKERS, 0 to 1.
  std::int64_t memory_bytes = 0;  ///< NodeLoad.memory_bytes: used by the instance.
  std::int64_t running_jobs = 0, queued_jobs = 0;
  QString warning;  ///< Says why the device seems busy without progress. Empty if all is well.
  [[nodiscard]] bool is_gpu() const { return index >= 0 && load.device() != "cpu"; }
};

/// The value of one metric of a device.
struct DeviceValue {
  double value = 0;  ///< In `unit`.
  const char* unit = "ratio";
  double share = 0;  ///< Position on the colour scale. 0 to 1, or slightly more.
  QString text;      ///< "400 W"
  QString of;        ///< The limit of the value: "of 700 W". Empty if the device reports no limit.
};
/// Returns nullopt if the device does not report this metric.
std::optional<DeviceValue> ValueOf(const DeviceRow& row, DeviceMetric metric);

/// Makes the rows of the page "GPUs" from a snapshot, and arranges them as a heatmap.
///
/// Ownership: owns the table. References and pointers to it are valid while this object lives.
class DeviceTable {
 public:
  /// A report that is older than this is stale. So is a report of a dead node, and every report
  /// while the connection has an error.
  static constexpr std::int64_t kStaleMs = 5000;
  /// A device with a current report is "busy without progress" in three cases:
  /// - Its busy share is at least kBusy, and its instance has finished no step for kNoProgressMs.
  /// - Its instance is STUCK.
  /// - It is a GPU, its busy share is at least kBusy, and its instance has no work.
  ///
  /// The busy share is SM active, else kCoarse, else `workers`.
  static constexpr double kBusy = 0.8;
  static constexpr std::int64_t kNoProgressMs = 30'000;

  DeviceTable();
  /// Replaces the rows with those of `snapshot`. `link` gives the skew of the server's clock, by
  /// which the ages are computed.
  void Show(const session::Snapshot& snapshot, const session::LinkStatus& link);

  /// Returns all rows with the numbers of the devices. An unknown number is exported as null, never
  /// as 0.
  [[nodiscard]] KeyedTable<DeviceRow>& table() { return *table_; }
  /// Returns the row with this key, or nullptr. The pointer is valid until the next Show().
  [[nodiscard]] const DeviceRow* Find(const QString& key) const;

  struct Picture {
    HeatGrid grid;
    /// The metric of the grid. It is the wanted one, except that kSmActive falls back to kCoarse or
    /// kWorkers.
    DeviceMetric shown = DeviceMetric::kSmActive;
    QString headline;
    StatusTone tone = StatusTone::kNeutral;
    int hidden = 0;  ///< Rows that the filter hides.
  };
  /// Arranges the rows that match `filter`. A machine is one line, and its devices are the cells. A
  /// line holds at most 16 cells; a longer machine has several lines. If no machine has two
  /// devices, all machines share lines of up to eight cells.
  [[nodiscard]] Picture Draw(DeviceMetric wanted, const QString& filter) const;

 private:
  std::unique_ptr<KeyedTable<DeviceRow>> table_;
  QString problem_;  ///< Why nothing is known, or why the rows are stale. Empty if fine.
};

}  // namespace onepiece::gui
