#include "gui/models/device_table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

constexpr std::size_t kFlowColumns = 8, kMaxColumns = 16;

template <typename T>
std::optional<double> When(bool there, T value) {
  return there ? std::optional<double>(static_cast<double>(value)) : std::nullopt;
}

DeviceValue Share(double share) { return {share, "ratio", share, FormatShare(share), {}}; }

DeviceValue Of(double used, std::optional<double> all, const char* unit) {
  DeviceValue value{used, unit, 0, FormatValue(used, unit), {}};
  if (!all || *all <= 0) return value;
  value.share = used / *all;
  value.of = Tr("of %1").arg(FormatValue(*all, unit));
  return value;
}

/// The value with its whole: "400 W of 700 W".
QString Whole(const DeviceValue& value) {
  return value.of.isEmpty() ? value.text : value.text + u' ' + value.of;
}

QString WarningOf(const v1::Node& node, const DeviceRow& row) {
  if (row.state != CellState::kValue) return {};
  const v1::NodeLoad& load = node.load();
  std::optional<double> busy = row.workers;
  if (row.load.has_sm_active()) {
    busy = row.load.sm_active();
  } else if (row.load.has_kernel_active()) {
    busy = row.load.kernel_active();
  }
  if (node.activity() != v1::STUCK && (!busy || *busy < DeviceTable::kBusy)) return {};
  if (node.activity() == v1::STUCK || load.no_progress_ms() >= DeviceTable::kNoProgressMs) {
    return Tr("busy but no progress: no step for %1")
        .arg(FormatSeconds(static_cast<double>(load.no_progress_ms()) * 1e-3));
  }
  // A busy GPU whose instance holds no work is used by another program. On a CPU that is normal, so
  // only GPUs are judged.
  const bool idle = load.running_jobs() == 0 && load.held_jobs() == 0 && load.idle_work().empty();
  return idle && row.is_gpu() ? Tr("busy but this instance computes nothing: another program?")
                              : QString();
}

std::int64_t AgeOf(const v1::Node& node, const session::Snapshot& snapshot,
                   const session::LinkStatus& link) {
  if (!node.has_load()) return -1;
  // The report carries the server's time, so `age` is measured by the server's clock. The time for
  // which the console has heard nothing from the server comes on top.
  const auto silent = static_cast<double>(snapshot.at_ms - snapshot.cluster.as_of_ms);
  double age = 0;
  if (node.has_last_report_time()) {
    const auto& time = node.last_report_time();
    age = static_cast<double>(snapshot.cluster.as_of_ms) + link.clock_skew_s * 1000 -
          static_cast<double>(time.seconds()) * 1e3 - static_cast<double>(time.nanos()) * 1e-6;
  }
  return static_cast<std::int64_t>(std::max(0.0, age) + std::max(0.0, silent));
}

CellState StateOf(const v1::Node& node, std::int64_t age_ms, const session::Snapshot& snapshot) {
  if (!node.has_load() || node.load().sample_unix_ms() == 0) return CellState::kWarmingUp;
  const bool old = age_ms > DeviceTable::kStaleMs;
  return old || node.state() == v1::Node::DEAD || !snapshot.cluster.error.empty()
             ? CellState::kStale
             : CellState::kValue;
}

DeviceRow MakeRow(const v1::Node& node, int index, const session::Snapshot& snapshot,
                  const session::LinkStatus& link) {
  DeviceRow row;
  row.node_id = node.node_id();
  row.node = SafeText(node.node_id(), 64);
  row.machine = SafeText(node.address().substr(0, node.address().rfind(':')), 64);
  row.index = index;
  row.age_ms = AgeOf(node, snapshot, link);
  row.state = StateOf(node, row.age_ms, snapshot);
  const v1::NodeLoad& load = node.load();
  row.memory_bytes = load.memory_bytes();
  row.running_jobs = load.running_jobs();
  row.queued_jobs = load.queued_jobs();
  if (load.utilization_source() == v1::WORKERS && load.sample_unix_ms() != 0) {
    row.workers = load.utilization();
  }
  row.key = QStringLiteral("node/") + QString::fromStdString(node.node_id());
  if (index < 0) {
    row.warning = WarningOf(node, row);
    return row;
  }
  row.key = QStringLiteral("device/%1/%2").arg(QString::fromStdString(node.node_id())).arg(index);
  row.load = load.devices(index);
  row.device = SafeText(row.load.device(), 40);
  row.product = SafeText(row.load.product(), 80);
  // This must equal the name that the recording gives to an element of a list: its "device", and
  // "#2", "#3", … for repetitions. Charts look the series up by it.
  std::string name = row.load.device().empty() ? std::to_string(index) : row.load.device();
  int again = 0;
  for (int i = 0; i <= index; ++i) again += load.devices(i).device() == row.load.device() ? 1 : 0;
  if (again > 1 && !row.load.device().empty()) name += "#" + std::to_string(again);
  row.series = "node/" + node.node_id() + "/devices/" + name + "/";
  // A starting GPU has measured nothing yet. "Warming up" is true of it; "N/A" would say that it
  // never measures.
  const bool starts = node.state() == v1::Node::STARTING || node.activity() == v1::LOADING;
  if (row.state == CellState::kValue && starts && !row.load.has_sm_active() &&
      !row.load.has_kernel_active() && row.is_gpu()) {
    row.state = CellState::kWarmingUp;
  }
  row.warning = WarningOf(node, row);
  return row;
}

bool SameNumbers(const v1::DeviceLoad& a, const v1::DeviceLoad& b) {
  const auto numbers = [](const v1::DeviceLoad& load) {
    return std::array{When(load.has_sm_active(), load.sm_active()),
                      When(load.has_kernel_active(), load.kernel_active()),
                      When(load.has_memory_active(), load.memory_active()),
                      When(load.has_memory_used_bytes(), load.memory_used_bytes()),
                      When(load.has_memory_bytes(), load.memory_bytes()),
                      When(load.has_power_w(), load.power_w()),
                      When(load.has_power_limit_w(), load.power_limit_w()),
                      When(load.has_temperature_c(), load.temperature_c())};
  };
  return a.device() == b.device() && a.product() == b.product() && numbers(a) == numbers(b);
}

bool Same(const DeviceRow& a, const DeviceRow& b) {
  return a.key == b.key && a.state == b.state && a.age_ms / 1000 == b.age_ms / 1000 &&
         a.workers == b.workers && a.memory_bytes == b.memory_bytes &&
         a.running_jobs == b.running_jobs && a.queued_jobs == b.queued_jobs &&
         a.warning == b.warning && a.machine == b.machine && SameNumbers(a.load, b.load);
}

using Column = KeyedTable<DeviceRow>::Column;

Column TextColumn(const char* title, const char* tip, QString DeviceRow::*field) {
  return {Tr(title), Tr(tip), [field](const DeviceRow& row, int role) {
            return role == Qt::DisplayRole ? QVariant(row.*field) : QVariant();
          }};
}

/// A column of numbers that some devices do not report. Such a cell is null, never 0.
template <typename Get>
Column NumberColumn(const char* title, const char* tip, const char* unit, Get get) {
  return {Tr(title), Tr(tip), ShowNumber(unit, get), Qt::AlignRight | Qt::AlignVCenter};
}

std::vector<Column> Columns() {
  const auto number = [](const char* title, const char* tip, const char* unit, auto has, auto get) {
    return NumberColumn(title, tip, unit, [has, get](const DeviceRow& row) {
      return When((row.load.*has)(), (row.load.*get)());
    });
  };
  using D = v1::DeviceLoad;
  return {
      TextColumn("Instance", "Node id; the CLI's \"node_id\"", &DeviceRow::node),
      TextColumn("Device", "As the instance names it: \"cpu\", \"cuda:0\"", &DeviceRow::device),
      TextColumn("Product", "As the driver names it", &DeviceRow::product),
      {Tr("State"), Tr("current, warming up, or stale: then the numbers are the last known ones"),
       [](const DeviceRow& row, int role) {
         return role == Qt::DisplayRole ? QVariant(CellStateName(row.state)) : QVariant();
       }},
      NumberColumn("Age", "Of the report, in seconds", "s",
                   [](const DeviceRow& row) {
                     return When(row.age_ms >= 0, static_cast<double>(row.age_ms) * 1e-3);
                   }),
      number("SM active", "Share of the multiprocessors that were active; sm_active", "ratio",
             &D::has_sm_active, &D::sm_active),
      number("Utilisation (coarse)", "Share of the time with any kernel running; kernel_active",
             "ratio", &D::has_kernel_active, &D::kernel_active),
      number("Memory active", "Share of the time the memory was busy; memory_active", "ratio",
             &D::has_memory_active, &D::memory_active),
      number("Memory used", "Bytes, by all programs; memory_used_bytes", "bytes",
             &D::has_memory_used_bytes, &D::memory_used_bytes),
      number("Memory", "Bytes that the device has; memory_bytes", "bytes", &D::has_memory_bytes,
             &D::memory_bytes),
      number("Power", "Watts; power_w", "watts", &D::has_power_w, &D::power_w),
      number("Power limit", "Watts; power_limit_w", "watts", &D::has_power_limit_w,
             &D::power_limit_w),
      number("Temperature", "Degrees Celsius; temperature_c", "celsius", &D::has_temperature_c,
             &D::temperature_c),
      NumberColumn("Workers",
                   "Share of the time in which the instance's workers computed; "
                   "utilization",
                   "ratio", [](const DeviceRow& row) { return row.workers; }),
      TextColumn("Warning", "Busy but no progress", &DeviceRow::warning),
  };
}

/// The median, the least and the most of sorted `values`.
QString Spread(const std::vector<std::pair<DeviceValue, const DeviceRow*>>& values) {
  const auto who = [](const DeviceRow& row) {
    return row.device.isEmpty() ? row.node : row.node + u' ' + row.device;
  };
  return Tr("median %1, least %2 (%3), most %4 (%5)")
      .arg(values[values.size() / 2].first.text, values.front().first.text,
           who(*values.front().second), values.back().first.text, who(*values.back().second));
}

/// `only` says that the instance has no other device. The cell's label then leaves the device out.
HeatCell CellOf(const DeviceRow& row, DeviceMetric metric, bool only) {
  HeatCell cell;
  cell.key = row.key;
  const QString name = row.device.isEmpty() || row.device == u"cpu"
                           ? row.node
                           : QStringLiteral("%1 %2").arg(row.node, row.device);
  cell.label = only ? row.node : name;
  const auto value = ValueOf(row, metric);
  cell.state = row.state;
  if (!value && row.state != CellState::kWarmingUp) cell.state = CellState::kNotAvailable;
  if (value) {
    cell.value = value->value;
    cell.share = value->share;
    cell.text = value->text;
  }
  cell.warning = row.warning;
  QStringList tip = {name};
  if (!row.product.isEmpty()) tip.append(row.product);
  for (const DeviceMetric one : kDeviceMetrics) {
    const auto number = ValueOf(row, one);
    if (number) tip.append(QStringLiteral("%1: %2").arg(MetricName(one), Whole(*number)));
  }
  if (cell.state != CellState::kValue) tip.append(CellStateName(cell.state));
  if (row.state == CellState::kStale && row.age_ms >= 0) {
    tip.append(Tr("reported %1 ago")
                   .arg(FormatSeconds(std::floor(static_cast<double>(row.age_ms) * 1e-3))));
  }
  if (!row.warning.isEmpty()) tip.append(row.warning);
  cell.tip = tip.join(u'\n');
  return cell;
}

bool Matches(const DeviceRow& row, const QString& filter) {
  return filter.isEmpty() || row.node.contains(filter, Qt::CaseInsensitive) ||
         row.device.contains(filter, Qt::CaseInsensitive) ||
         row.product.contains(filter, Qt::CaseInsensitive) ||
         row.machine.contains(filter, Qt::CaseInsensitive) ||
         row.warning.contains(filter, Qt::CaseInsensitive);
}

HeatGrid Arrange(const std::vector<const DeviceRow*>& rows, DeviceMetric metric) {
  std::map<QString, std::vector<const DeviceRow*>> machines;
  std::map<QString, int> devices;  // By instance.
  bool one_each = rows.size() > 1;
  for (const DeviceRow* row : rows) {
    auto& machine = machines[row->machine];
    machine.push_back(row);
    ++devices[row->node];
    one_each = one_each && machine.size() == 1;
  }
  if (one_each) machines = {{QString(), rows}};
  const std::size_t most = one_each ? kFlowColumns : kMaxColumns;
  HeatGrid grid;
  std::size_t columns = 0;
  for (const auto& [name, members] : machines) columns = std::max(columns, members.size());
  columns = std::min(columns, most);
  for (std::size_t i = 0; i < columns; ++i) grid.columns.append(QString::number(i + 1));
  for (const auto& [name, members] : machines) {
    for (std::size_t first = 0; first < members.size(); first += columns) {
      const QString line =
          first == 0 ? name : QStringLiteral("%1 (%2)").arg(name).arg(first / columns + 1);
      grid.rows.append(one_each ? members[first]->node : line);
      for (std::size_t i = first; i < first + columns; ++i) {
        grid.cells.push_back(i < members.size()
                                 ? CellOf(*members[i], metric, devices[members[i]->node] == 1)
                                 : HeatCell());
      }
    }
  }
  return grid;
}

}  // namespace

QString MetricName(DeviceMetric metric) {
  switch (metric) {
    case DeviceMetric::kSmActive:
      return Tr("SM active");
    case DeviceMetric::kCoarse:
      return Tr("Utilisation (coarse)");
    case DeviceMetric::kMemoryActive:
      return Tr("Memory active");
    case DeviceMetric::kMemory:
      return Tr("Memory used");
    case DeviceMetric::kPower:
      return Tr("Power");
    case DeviceMetric::kTemperature:
      return Tr("Temperature");
    case DeviceMetric::kWorkers:
      return Tr("Workers' time");
  }
  return {};
}

std::optional<DeviceValue> ValueOf(const DeviceRow& row, DeviceMetric metric) {
  const v1::DeviceLoad& load = row.load;
  switch (metric) {
    case DeviceMetric::kSmActive:
      if (load.has_sm_active()) return Share(load.sm_active());
      break;
    case DeviceMetric::kCoarse:
      if (load.has_kernel_active()) return Share(load.kernel_active());
      break;
    case DeviceMetric::kMemoryActive:
      if (load.has_memory_active()) return Share(load.memory_active());
      break;
    case DeviceMetric::kMemory:
      if (load.has_memory_used_bytes()) {
        return Of(static_cast<double>(load.memory_used_bytes()),
                  When(load.has_memory_bytes(), load.memory_bytes()), "bytes");
      }
      break;
    case DeviceMetric::kPower:
      if (load.has_power_w()) {
        return Of(load.power_w(), When(load.has_power_limit_w(), load.power_limit_w()), "watts");
      }
      break;
    case DeviceMetric::kTemperature:
      if (load.has_temperature_c()) {
        DeviceValue value = Of(load.temperature_c(), std::nullopt, "celsius");
        value.share = load.temperature_c() / 100;
        return value;
      }
      break;
    case DeviceMetric::kWorkers:
      if (row.workers) return Share(*row.workers);
      break;
  }
  return std::nullopt;
}

DeviceTable::DeviceTable()
    : table_(std::make_unique<KeyedTable<DeviceRow>>(
          Columns(), [](const DeviceRow& row) { return row.key; })) {}

void DeviceTable::Show(const session::Snapshot& snapshot, const session::LinkStatus& link) {
  std::vector<DeviceRow> rows;
  problem_.clear();
  if (snapshot.cluster.value == nullptr) {
    problem_ =
        snapshot.cluster.error.empty()
            ? Tr("Nothing is known of the cluster yet.")
            : Tr("Nothing is known of the cluster: %1").arg(SafeText(snapshot.cluster.error));
    table_->Update({}, Same);
    return;
  }
  if (!snapshot.cluster.error.empty()) {
    problem_ = Tr("Stale, of %1: %2")
                   .arg(FormatTime(snapshot.cluster.as_of_ms, snapshot.at_ms),
                        SafeText(snapshot.cluster.error));
  }
  for (const v1::Node& node : snapshot.cluster.value->nodes()) {
    if (node.role() != v1::INSTANCE) continue;
    if (node.state() == v1::Node::DEAD && !node.has_load()) continue;
    if (node.load().devices().empty()) rows.push_back(MakeRow(node, -1, snapshot, link));
    for (int i = 0; i < node.load().devices_size(); ++i) {
      rows.push_back(MakeRow(node, i, snapshot, link));
    }
  }
  table_->Update(std::move(rows), Same);
}

const DeviceRow* DeviceTable::Find(const QString& key) const {
  const int row = table_->RowOf(key);
  return row < 0 ? nullptr : &table_->at(row);
}

DeviceTable::Picture DeviceTable::Draw(DeviceMetric wanted, const QString& filter) const {
  Picture picture;
  picture.shown = wanted;
  std::vector<const DeviceRow*> shown;
  int gpus = 0, fine = 0, coarse = 0, warned = 0;
  std::set<QString> products;
  for (int i = 0; i < table_->rowCount(); ++i) {
    const DeviceRow& row = table_->at(i);
    if (row.is_gpu()) {
      ++gpus;
      fine += row.load.has_sm_active() ? 1 : 0;
      coarse += row.load.has_kernel_active() ? 1 : 0;
      if (!row.load.has_sm_active() && !row.product.isEmpty()) products.insert(row.product);
    }
    warned += row.warning.isEmpty() ? 0 : 1;
    if (Matches(row, filter)) {
      shown.push_back(&row);
    } else {
      ++picture.hidden;
    }
  }
  QStringList head;
  if (!problem_.isEmpty()) head.append(problem_);
  if (table_->rowCount() == 0) {
    if (problem_.isEmpty()) head.append(Tr("No instance has joined the cluster."));
  } else if (wanted == DeviceMetric::kSmActive && gpus == 0) {
    picture.shown = DeviceMetric::kWorkers;
    head.append(
        Tr("No node reports a GPU. Shown is the share of the time in which each "
           "instance's workers computed."));
  } else if (wanted == DeviceMetric::kSmActive && fine == 0) {
    const QString why = products.empty() ? Tr("no device says it")
                                         : Tr("%1 does not say it").arg(*products.begin());
    picture.shown = coarse > 0 ? DeviceMetric::kCoarse : DeviceMetric::kSmActive;
    head.append(coarse > 0 ? Tr("SM active unavailable (%1). Showing coarse utilisation.").arg(why)
                           : Tr("SM active and coarse utilisation unavailable (%1).").arg(why));
  }
  std::vector<std::pair<DeviceValue, const DeviceRow*>> values;
  for (const DeviceRow* row : shown) {
    if (row->state != CellState::kValue) continue;
    if (auto value = ValueOf(*row, picture.shown)) values.emplace_back(*std::move(value), row);
  }
  std::ranges::sort(values, {}, [](const auto& value) { return value.first.value; });
  if (!values.empty()) {
    head.append(Tr("%1: %2. %3 of %4 say it.")
                    .arg(MetricName(picture.shown), Spread(values))
                    .arg(values.size())
                    .arg(shown.size()));
  } else if (!shown.empty()) {
    const bool stale = std::ranges::any_of(
        shown, [](const DeviceRow* row) { return row->state == CellState::kStale; });
    head.append((stale ? Tr("%1: nothing newer than 5 s.") : Tr("%1: nobody says it."))
                    .arg(MetricName(picture.shown)));
  }
  if (warned > 0) head.append(Tr("%1 busy without progress.").arg(warned));
  picture.headline = head.join(u' ');
  picture.tone = !problem_.isEmpty() ? StatusTone::kUnknown
                 : warned > 0        ? StatusTone::kWarning
                                     : StatusTone::kNeutral;
  picture.grid = Arrange(shown, picture.shown);
  return picture;
}

}  // namespace onepiece::gui
