// The page of the rings: what each holds, how it flows, and what is wrong with it.
#pragma once

#include <QLabel>
#include <QTabWidget>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "gui/models/ring_table.h"
#include "gui/models/series_feed.h"
#include "gui/views/heatmap.h"
#include "gui/views/table_panel.h"
#include "gui/views/time_chart.h"
#include "gui/views/view.h"

namespace onepiece::gui {

/// How full one ring is, drawn as its memory: used slots from the left, in at most 4096 buckets.
/// Which slots are used nobody tells, only how many, and it says so.
class SlotStrip : public QWidget {
 public:
  static constexpr int kMaxBuckets = 4096;
  explicit SlotStrip(QWidget* parent = nullptr);
  /// Null: no ring. `known` false: the numbers are old.
  void Show(const v1::RingHealth* health, bool known);
  [[nodiscard]] QSize sizeHint() const override;
  [[nodiscard]] QSize minimumSizeHint() const override { return {80, sizeHint().height()}; }

 protected:
  void paintEvent(QPaintEvent* event) override;

 private:
  void PaintBar(QPainter& painter, const QRect& bar, double share) const;

  v1::RingHealth health_;
  bool there_ = false, known_ = false;
  QString text_;
};

class RingsView : public View {
  Q_OBJECT
 public:
  /// Lines of the history: of more rings the worst and fullest.
  static constexpr std::size_t kHistoryRings = 40;

  explicit RingsView(Store& store, QWidget* parent = nullptr);

  [[nodiscard]] QString Help() const override;
  [[nodiscard]] QAbstractItemModel* ExportModel() override { return panel_->rows(); }
  /// "ring/NODE", "node/NODE".
  void Focus(const QString& entity) override;
  void SetFilter(const QString& text) override;

 protected:
  void Draw(const Snapshot& snapshot) override;

 private:
  static constexpr std::size_t kCharts = 3;
  static constexpr int kHistoryColumns = 60;
  void DrawRing();
  void DrawCharts();
  void WantSeries();
  void WantHistory(std::int64_t now_ms);
  void DrawHistory();
  [[nodiscard]] SeriesFeed::Wanted Series(const QString& key, const char* field, const char* unit,
                                          const QString& title,
                                          std::function<double(const RingRow&)> get) const;

  RingTable rings_;
  HeatModel cells_;
  SeriesFeed feed_, history_;
  QString to_focus_;  ///< Was asked for before it was known.
  QString wanted_;    ///< What WantSeries was of.
  std::vector<QString> history_keys_;
  std::map<QString, double> history_slots_;  ///< As last told, by key.
  std::int64_t history_chosen_ms_ = 0;
  int history_of_ = 0;  ///< Rings there were when the lines were chosen.
  QLabel *headline_, *verdict_, *history_note_;
  TablePanel* panel_;
  SlotStrip* strip_;
  QTabWidget* tabs_;
  QLabel* feed_note_;
  std::array<TimeChart*, kCharts> charts_{};
  TablePanel* producers_;
  Heatmap* map_;
};

}  // namespace onepiece::gui
