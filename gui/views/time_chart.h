// The chart of series over time, which several pages use.
//
// It draws a line for each series, a band from the least to the largest value where several samples
// make a point, gaps where nothing was known, hatching where the data is stale, thresholds, and a
// cursor with values. Lines differ by dashes as well as by colour. Colours come from the palette
// and follow the theme. ← and → move the cursor, Home and End move it to the ends, Esc removes it.
//
// Threading: GUI thread only.
#pragma once

#include <QLabel>
#include <QWidget>
#include <memory>
#include <optional>
#include <vector>

#include "gui/models/chart_series.h"
#include "gui/models/series_feed.h"

namespace onepiece::gui {

class ChartLegend;

struct ChartThreshold {
  QString title;  ///< "limit"
  double value = 0;
};

class TimeChart : public QWidget {
  Q_OBJECT
 public:
  static constexpr std::size_t kMaxSeries = 8;

  explicit TimeChart(const QString& title, QWidget* parent = nullptr);
  ~TimeChart() override;

  void SetTitle(const QString& title);
  /// Sets the series. All must have the unit of the first. Series of another unit, and those beyond
  /// kMaxSeries, are not drawn; the chart says how many.
  void SetSeries(std::vector<ChartSeries> series);
  void SetInterval(history::Interval interval);
  /// Sets the present instant. The time between the last known value and this instant is hatched.
  void SetNow(std::int64_t now_ms);
  void SetThresholds(std::vector<ChartThreshold> thresholds);
  /// Sets a banner above the chart that says why something is missing. Empty for none.
  void SetNote(const QString& note);
  /// Sets series, interval, present instant and note from a feed.
  void Show(const SeriesFeed& feed);

  [[nodiscard]] const std::vector<ChartSeries>& series() const { return series_; }
  /// The accessible description.
  [[nodiscard]] QString summary() const;
  /// The banner, with what the chart itself has left out.
  [[nodiscard]] QString note() const;
  /// Where the cursor is. nullopt if there is none.
  [[nodiscard]] std::optional<std::int64_t> cursor_ms() const { return cursor_ms_; }

  [[nodiscard]] QSize sizeHint() const override;
  [[nodiscard]] QSize minimumSizeHint() const override;

 protected:
  void changeEvent(QEvent* event) override;
  void showEvent(QShowEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  void focusInEvent(QFocusEvent* event) override;
  void focusOutEvent(QFocusEvent* event) override;
  bool eventFilter(QObject* watched, QEvent* event) override;

 private:
  struct Plot;
  void SetCursor(std::optional<std::int64_t> at_ms);
  /// Redraws when the event loop is reached, if the chart is visible.
  void Invalidate();
  void Redraw();
  void Dress();
  void DrawLines();
  void DrawStale();
  void DrawThresholds();
  void ReadOutCursor();

  QString title_;
  std::vector<ChartSeries> series_;
  std::size_t left_out_ = 0;
  history::Interval interval_;
  std::int64_t now_ms_ = 0;
  std::vector<ChartThreshold> thresholds_;
  QString wanted_note_;
  std::optional<std::int64_t> cursor_ms_;
  bool dirty_ = true;
  QLabel *heading_, *note_;
  ChartLegend* legend_;
  std::unique_ptr<Plot> plot_;
};

}  // namespace onepiece::gui
