// The lines of a chart as numbers. Views draw them, read them out under a cursor and put them into
// words.
//
// Threading: pure functions.
#pragma once

#include <QString>
#include <cstdint>
#include <string>
#include <vector>

#include "cluster/history/recording.h"

namespace onepiece::gui {

/// One line of a chart.
struct ChartSeries {
  QString title;     ///< Safe to show.
  std::string unit;  ///< As history::SeriesInfo::unit.
  /// Ordered by time. NaN means that the value was not known then: the chart shows a gap there,
  /// never 0.
  std::vector<history::SeriesPoint> points;
};

/// A series whose newest value is older than this is stale. The chart hatches the time after that
/// value.
inline constexpr std::int64_t kChartStaleMs = 5000;

/// The distance between the last two points, in milliseconds. 0 if there are fewer than two.
std::int64_t StepOf(const ChartSeries& series);
/// The last point at or before `at_ms`. All its values are NaN if that point is too old to hold.
history::SeriesPoint ValueAt(const ChartSeries& series, std::int64_t at_ms);
/// The newest known value at `now_ms`. NaN (N/A) if that value is older than both kChartStaleMs and
/// two steps.
double ValueNow(const ChartSeries& series, std::int64_t now_ms);
/// The time of the newest known value in any series. 0 if there is none.
std::int64_t LastKnown(const std::vector<ChartSeries>& series);
/// "87 %"; "87 % (71 % to 95 %)" if several samples make up the point.
QString ReadOut(const history::SeriesPoint& point, const std::string& unit);
/// The chart in words, for screen readers: "Utilisation, 4 lines, last 15 m 00 s; now cuda:0 87 %,
/// cuda:1 N/A, …".
QString ChartSummary(const QString& title, const std::vector<ChartSeries>& series,
                     history::Interval interval, std::int64_t now_ms);
/// Appends to `recorded` the points of `seen` that are newer than its last known point. A pause of
/// more than kChartStaleMs in `seen` becomes a gap.
///
/// Units: `bucket_ms` is the length of a bucket of `recorded`.
std::vector<history::SeriesPoint> WithTail(std::vector<history::SeriesPoint> recorded,
                                           std::int64_t bucket_ms,
                                           const std::vector<history::SeriesPoint>& seen);

}  // namespace onepiece::gui
