// The page "GPUs": how busy each device is, and what one of them has done in the last minutes.
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
  explicit GpusView(ShownCluster& shown_cluster, QWidget* parent = nullptr);

  [[nodiscard]] QString Help() const override;
  /// All devices with all their numbers.
  [[nodiscard]] QAbstractItemModel* ExportModel() override { return &devices_.table(); }
  /// Picks "device/NODE/INDEX", or the first device of "node/NODE".
  void Focus(const QString& entity) override;
  void SetFilter(const QString& text) override;

 protected:
  void Draw(const session::Snapshot& snapshot) override;

 private:
  static constexpr std::size_t kCharts = 4;
  void DrawMap();
  void Pick(const QString& key);
  /// Asks for the series that the charts of the picked device show.
  void WantSeries();
  void DrawCharts();

  DeviceTable devices_;
  HeatModel cells_;
  SeriesFeed feed_;
  QString filter_;
  QString picked_;      ///< Key of the device whose charts are shown. Empty for none.
  QString to_focus_;    ///< The entity of a Focus() that came before its device was known.
  std::string wanted_;  ///< What WantSeries() has asked for last.
  std::array<std::size_t, kCharts> counts_{};  ///< How many of the feed's series each chart shows.
  QLabel* headline_;
  QComboBox* metric_;
  QLabel* hidden_;
  QPushButton* clear_;
  Heatmap* map_;
  QLabel* picked_head_;
  std::array<TimeChart*, kCharts> charts_{};
};

}  // namespace onepiece::gui
