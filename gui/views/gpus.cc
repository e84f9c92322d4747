#include "gui/views/gpus.h"

#include <QGridLayout>
#include <QHBoxLayout>
#include <QVBoxLayout>
#include <algorithm>
#include <limits>

#include "gui/views/plain_label.h"
#include "gui/views/tone.h"

namespace onepiece::gui {

GpusView::GpusView(ShownCluster& shown_cluster, QWidget* parent)
    : View(QStringLiteral("gpus"), tr("GPUs"), shown_cluster, parent),
      feed_(shown_cluster, {}),
      headline_(PlainLabel(this)),
      metric_(new QComboBox(this)),
      hidden_(PlainLabel(this)),
      clear_(new QPushButton(tr("Clear filters"), this)),
      map_(new Heatmap(tr("Devices"), cells_, this)),
      picked_head_(PlainLabel(this)) {
  headline_->setObjectName(QStringLiteral("headline"));
  metric_->setAccessibleName(tr("Metric"));
  for (const DeviceMetric metric : kDeviceMetrics) {
    metric_->addItem(MetricName(metric), static_cast<int>(metric));
  }
  auto* metric_label = new QLabel(tr("&Metric"), this);
  metric_label->setBuddy(metric_);
  auto* head = new QHBoxLayout;
  head->addWidget(headline_, 1);
  head->addWidget(metric_label);
  head->addWidget(metric_);
  auto* filtered = new QHBoxLayout;
  filtered->addWidget(hidden_, 1);
  filtered->addWidget(clear_);
  auto* upper = new QWidget(this);
  auto* upper_layout = new QVBoxLayout(upper);
  upper_layout->setContentsMargins(0, 0, 0, 0);
  upper_layout->addWidget(map_, 1, Qt::AlignTop);
  upper_layout->addLayout(filtered);
  auto* lower = new QWidget(this);
  auto* grid = new QGridLayout(lower);
  grid->setContentsMargins(0, 0, 0, 0);
  grid->addWidget(picked_head_, 0, 0, 1, 2);
  const std::array titles = {tr("Utilisation"), tr("Memory"), tr("Power"), tr("Temperature")};
  for (std::size_t i = 0; i < kCharts; ++i) {
    charts_[i] = new TimeChart(titles[i], lower);
    grid->addWidget(charts_[i], 1 + static_cast<int>(i) / 2, static_cast<int>(i) % 2);
  }
  grid->setRowStretch(1, 1);
  grid->setRowStretch(2, 1);
  auto* splitter = new QSplitter(Qt::Vertical, this);
  splitter->addWidget(upper);
  splitter->addWidget(lower);
  splitter->setSizes({1000, 1300});
  splitter->setChildrenCollapsible(false);
  auto* layout = new QVBoxLayout(this);
  layout->addLayout(head);
  layout->addWidget(splitter, 1);
  connect(metric_, &QComboBox::currentIndexChanged, this, &GpusView::DrawMap);
  connect(map_, &Heatmap::Picked, this, &GpusView::Pick);
  connect(clear_, &QPushButton::clicked, this, &View::ClearFilterWanted);
  connect(&feed_, &SeriesFeed::Changed, this, &GpusView::DrawCharts);
  DrawMap();
  DrawCharts();
}

QString GpusView::Help() const {
  return tr(
      "How busy the devices of all instances are.\n\n"
      "A line is a machine, a cell a device of an instance; where no machine has two, a line "
      "holds eight. The number is the metric that is chosen: SM active is the share of the "
      "multiprocessors that worked. The coarse utilisation only says that some kernel ran, so a "
      "device can be at 100 % and do next to nothing; it is shown instead when no device has "
      "the finer number, and says so. A cluster without GPUs shows the share of the time in "
      "which each instance's workers computed.\n\n"
      "N/A (struck through): the device does not have this number. … (dotted): nothing has been "
      "measured yet. Hatched: the last value, more than 5 seconds old. 0 is a number like any "
      "other. ▲ marks a device that is at least 80 % busy while no step has ended for 30 "
      "seconds, or while its instance computes nothing.\n\n"
      "Arrows move between cells; Enter or a click shows what the device has done in the last "
      "15 minutes. In a chart ← and → move the cursor.\n\n"
      "Export writes every device with all its numbers; what is not known is empty, not 0.");
}

void GpusView::Focus(const QString& entity) {
  devices_.Show(*shown_cluster().snapshot(), shown_cluster().link());
  const QString device =
      entity.startsWith(u"node/") ? QStringLiteral("device/%1/0").arg(entity.mid(5)) : entity;
  const QString key = devices_.Find(device) != nullptr ? device : entity;
  to_focus_ = entity;
  if (devices_.Find(key) == nullptr) return;
  to_focus_.clear();
  Pick(key);
  DrawMap();
  map_->Select(key);
  map_->setFocus();
}

void GpusView::SetFilter(const QString& text) {
  if (text == filter_) return;
  filter_ = text;
  DrawMap();
}

void GpusView::Draw(const session::Snapshot& snapshot) {
  devices_.Show(snapshot, shown_cluster().link());
  DrawMap();
  if (!to_focus_.isEmpty()) Focus(to_focus_);
  // The first device to show is one with a warning, or else the first one.
  if (picked_.isEmpty() && devices_.table().rowCount() > 0) {
    const DeviceRow* first = &devices_.table().at(0);
    for (int i = 0; i < devices_.table().rowCount(); ++i) {
      if (devices_.table().at(i).warning.isEmpty()) continue;
      first = &devices_.table().at(i);
      break;
    }
    Pick(first->key);
    map_->Select(first->key);
  }
  WantSeries();
  feed_.Refresh();
}

void GpusView::DrawMap() {
  const auto wanted = static_cast<DeviceMetric>(metric_->currentData().toInt());
  DeviceTable::Picture picture = devices_.Draw(wanted, filter_);
  const QString glyph =
      picture.tone == StatusTone::kNeutral ? QString() : ToneGlyph(picture.tone) + u' ';
  headline_->setText(glyph + picture.headline);
  map_->setAccessibleDescription(picture.headline);
  hidden_->setText(tr("%1 hidden by the filter.").arg(picture.hidden));
  hidden_->setVisible(picture.hidden > 0);
  clear_->setVisible(picture.hidden > 0);
  map_->setVisible(!picture.grid.cells.empty());
  cells_.Show(std::move(picture.grid));
  const int all = map_->sizeHint().height();  // The charts get the room that the map does not need.
  map_->setMinimumHeight(std::min(all, fontMetrics().height() * 10));
  map_->setMaximumHeight(all);
  const int filtered = picture.hidden > 0 ? clear_->sizeHint().height() + 12 : 0;
  map_->parentWidget()->setMaximumHeight(all + filtered);
}

void GpusView::Pick(const QString& key) {
  picked_ = key;
  WantSeries();
  feed_.Refresh();
  DrawCharts();
}

void GpusView::WantSeries() {
  const DeviceRow* row = devices_.Find(picked_);
  if (row == nullptr) return;
  const std::string what = picked_.toStdString() + row->series + (row->is_gpu() ? "gpu" : "");
  if (what == wanted_) return;
  wanted_ = what;
  std::vector<SeriesFeed::Wanted> wanted;
  const auto add = [&](std::size_t chart, const std::string& name, const char* unit,
                       const QString& title, auto get) {
    const auto now = [this, key = picked_, get](const session::Snapshot&) {
      const DeviceRow* at = devices_.Find(key);
      const std::optional<double> value =
          at == nullptr || at->state != CellState::kValue ? std::nullopt : get(*at);
      return value.value_or(std::numeric_limits<double>::quiet_NaN());
    };
    wanted.push_back({name, unit, title, now});
    ++counts_[chart];
  };
  const auto metric = [](DeviceMetric one) {
    return [one](const DeviceRow& at) -> std::optional<double> {
      const auto value = ValueOf(at, one);
      return value ? std::optional<double>(value->value) : std::nullopt;
    };
  };
  counts_ = {};
  const std::string node = "node/" + row->node_id + "/";
  const auto count = [](std::int64_t DeviceRow::*field) {
    return [field](const DeviceRow& at) {
      return std::optional<double>(static_cast<double>(at.*field));
    };
  };
  if (row->is_gpu()) {
    add(0, row->series + "sm_active", "ratio", MetricName(DeviceMetric::kSmActive),
        metric(DeviceMetric::kSmActive));
    add(0, row->series + "kernel_active", "ratio", MetricName(DeviceMetric::kCoarse),
        metric(DeviceMetric::kCoarse));
    add(0, row->series + "memory_active", "ratio", MetricName(DeviceMetric::kMemoryActive),
        metric(DeviceMetric::kMemoryActive));
    add(1, row->series + "memory_used_bytes", "bytes", tr("used, by all programs"),
        metric(DeviceMetric::kMemory));
    add(2, row->series + "power_w", "watts", tr("power"), metric(DeviceMetric::kPower));
    add(3, row->series + "temperature_c", "celsius", tr("temperature"),
        metric(DeviceMetric::kTemperature));
    return feed_.Want(std::move(wanted));
  }
  add(0, node + "utilization", "ratio", MetricName(DeviceMetric::kWorkers),
      metric(DeviceMetric::kWorkers));
  add(1, node + "memory_bytes", "bytes", tr("used by the instance"),
      count(&DeviceRow::memory_bytes));
  if (!row->series.empty()) {
    add(1, row->series + "memory_used_bytes", "bytes", tr("used by all programs"),
        metric(DeviceMetric::kMemory));
  }
  add(2, node + "running_jobs", "1", tr("running"), count(&DeviceRow::running_jobs));
  add(2, node + "queued_jobs", "1", tr("queued"), count(&DeviceRow::queued_jobs));
  feed_.Want(std::move(wanted));
}

void GpusView::DrawCharts() {
  const DeviceRow* row = devices_.Find(picked_);
  const bool gpu = row != nullptr && row->is_gpu();
  QString head;
  if (devices_.table().rowCount() > 0) head = tr("Pick a device above to see its last 15 minutes.");
  if (row != nullptr) {
    QStringList words = {row->node};
    for (const QString& word : {row->device, row->product}) {
      if (!word.isEmpty()) words.append(word);
    }
    if (row->state != CellState::kValue) words.append(CellStateName(row->state));
    head = words.join(QStringLiteral(" · "));
    if (!row->warning.isEmpty()) {
      head = ToneGlyph(StatusTone::kWarning) + u' ' + head + QStringLiteral(" · ") + row->warning;
    }
  }
  if (!feed_.note().isEmpty()) head += QStringLiteral("\n") + feed_.note();
  picked_head_->setText(head);
  std::size_t first = 0;
  for (std::size_t i = 0; i < kCharts; ++i) {
    const auto begin = feed_.series().begin() + static_cast<std::ptrdiff_t>(first);
    first += counts_[i];
    const bool there = first <= feed_.series().size();
    charts_[i]->SetSeries(
        there ? std::vector<ChartSeries>(begin, begin + static_cast<std::ptrdiff_t>(counts_[i]))
              : std::vector<ChartSeries>());
    charts_[i]->SetInterval(feed_.interval());
    charts_[i]->SetNow(feed_.now_ms());
    charts_[i]->setVisible(row != nullptr && counts_[i] > 0);
  }
  // Without a chart of the temperature, the third chart takes the whole line.
  auto* grid = static_cast<QGridLayout*>(charts_[2]->parentWidget()->layout());
  grid->addWidget(charts_[2], 2, 0, 1, counts_[3] > 0 ? 1 : 2);
  charts_[2]->SetTitle(gpu ? tr("Power") : tr("Jobs"));
  std::vector<ChartThreshold> memory, power;
  if (row != nullptr && row->load.has_memory_bytes()) {
    memory = {{tr("total"), static_cast<double>(row->load.memory_bytes())}};
  }
  if (gpu && row->load.has_power_limit_w()) power = {{tr("limit"), row->load.power_limit_w()}};
  charts_[1]->SetThresholds(std::move(memory));
  charts_[2]->SetThresholds(std::move(power));
}

}  // namespace onepiece::gui
