// The chart of series over time that pages share.
//
// What       A line for each series, a band from least to largest where several samples make a
// point; gaps where nothing was known; what is stale hatched; thresholds; a cursor with values.
// Colours are told apart without seeing all of them, and lines by their dashes too. Colours are of
// the palette and follow the theme.
// Keys       ←, → move the cursor, Home and End to its ends, Esc takes it away.
// Threading  GUI thread only.
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
  /// Of one unit, the first's; those of another one, and those beyond kMaxSeries, are not drawn,
  /// and the chart says how many.
  void SetSeries(std::vector<ChartSeries> series);
  void SetInterval(history::Interval interval);
  /// What is hatched lies between the last that is known and this instant.
  void SetNow(std::int64_t now_ms);
  void SetThresholds(std::vector<ChartThreshold> thresholds);
  /// A banner above the chart: why something is missing. Empty: none.
  void SetNote(const QString& note);
  /// The four of a feed at once.
  void Show(const SeriesFeed& feed);

  [[nodiscard]] const std::vector<ChartSeries>& series() const { return series_; }
  /// What the accessible description says.
  [[nodiscard]] QString summary() const;
  /// The banner, with what the chart itself leaves out.
  [[nodiscard]] QString note() const;
  /// Where the cursor is, and what it says; nullopt: nowhere.
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
  /// Draws what has changed when the event loop is reached, if it is seen.
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
