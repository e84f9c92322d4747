// The page "Rings": what each ring holds, how it flows, and what is wrong with it.
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

/// Draws how full one ring is, as a strip of memory with the used slots at the left, in at most
/// kMaxBuckets buckets. The cluster tells only how many slots are used, not which ones, and the
/// strip says so.
class SlotStrip : public QWidget {
 public:
  static constexpr int kMaxBuckets = 4096;
  explicit SlotStrip(QWidget* parent = nullptr);
  /// Shows a ring. Null shows none. `known` is false if the numbers are old.
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

/// The page.
class RingsView : public View {
  Q_OBJECT
 public:
  /// The most lines of the history. If there are more rings, it shows the worst and fullest.
  static constexpr std::size_t kHistoryRings = 40;

  explicit RingsView(ShownCluster& shown_cluster, QWidget* parent = nullptr);

  [[nodiscard]] QString Help() const override;
  [[nodiscard]] QAbstractItemModel* ExportModel() override { return panel_->rows(); }
  /// Shows "ring/NODE", or the ring of "node/NODE".
  void Focus(const QString& entity) override;
  void SetFilter(const QString& text) override;

 protected:
  void Draw(const session::Snapshot& snapshot) override;

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
  QString to_focus_;  ///< The entity of a Focus() that came before its ring was known.
  QString wanted_;    ///< The ring that WantSeries() has asked for.
  std::vector<QString> history_keys_;
  std::map<QString, double> history_slots_;  ///< Number of slots as last reported, by key.
  std::int64_t history_chosen_ms_ = 0;
  int history_of_ = 0;  ///< The number of rings when the lines were chosen.
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
