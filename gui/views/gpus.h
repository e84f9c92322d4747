// The page of the devices: how busy each is, and what one has done in the last minutes.
#pragma once

#include <QComboBox>
#include <QLabel>
#include <QPushButton>
#include <QSplitter>
#include <array>

#include "gui/models/device_table.h"
#include "gui/models/series_feed.h"
#include "gui/views/heatmap.h"
#include "gui/views/time_chart.h"
#include "gui/views/view.h"

namespace onepiece::gui {

class GpusView : public View {
  Q_OBJECT
 public:
  explicit GpusView(Store& store, QWidget* parent = nullptr);

  [[nodiscard]] QString Help() const override;
  /// Every device with all its numbers.
  [[nodiscard]] QAbstractItemModel* ExportModel() override { return &devices_.table(); }
  /// "device/NODE/INDEX", or "node/NODE": its first device.
  void Focus(const QString& entity) override;
  void SetFilter(const QString& text) override;

 protected:
  void Draw(const Snapshot& snapshot) override;

 private:
  static constexpr std::size_t kCharts = 4;
  void DrawMap();
  void Pick(const QString& key);
  /// What the charts of the picked device ask for.
  void WantSeries();
  void DrawCharts();

  DeviceTable devices_;
  HeatModel cells_;
  SeriesFeed feed_;
  QString filter_;
  QString picked_;      ///< Key of the device whose charts are shown; empty: none.
  QString to_focus_;    ///< Was asked for before it was known.
  std::string wanted_;  ///< What WantSeries was of.
  std::array<std::size_t, kCharts> counts_{};  ///< Of the feed's series, those of each chart.
  QLabel* headline_;
  QComboBox* metric_;
  QLabel* hidden_;
  QPushButton* clear_;
  Heatmap* map_;
  QLabel* picked_head_;
  std::array<TimeChart*, kCharts> charts_{};
};

}  // namespace onepiece::gui
