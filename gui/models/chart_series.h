// Lines of a chart, as numbers: what is drawn, read out under a cursor and said in words.
//
// Threading  Pure functions.
#pragma once

#include <QString>
#include <cstdint>
#include <string>
#include <vector>

#include "cluster/history/recording.h"

namespace onepiece::gui {

struct ChartSeries {
  QString title;     ///< Safe to show.
  std::string unit;  ///< As history::SeriesInfo::unit.
  /// In order of time. NaN: not known then, which is a gap and never 0.
  std::vector<history::SeriesPoint> points;
};

/// Nothing newer for so long: a chart hatches what follows.
inline constexpr std::int64_t kChartStaleMs = 5000;

/// How far apart the points are at their end; 0: fewer than two.
std::int64_t StepOf(const ChartSeries& series);
/// The point of that instant; all NaN where nothing is known of it.
history::SeriesPoint ValueAt(const ChartSeries& series, std::int64_t at_ms);
/// The value now: ValueAt, but N/A (NaN) when the newest is older than kChartStaleMs and two steps.
double ValueNow(const ChartSeries& series, std::int64_t now_ms);
/// When anything was known last; 0: never.
std::int64_t LastKnown(const std::vector<ChartSeries>& series);
/// "87 %", and "87 % (71 % to 95 %)" where several samples make the point.
QString ReadOut(const history::SeriesPoint& point, const std::string& unit);
/// For who cannot see it: "Utilisation, 4 lines, last 15 m 00 s; now cuda:0 87 %, cuda:1 N/A, …".
QString ChartSummary(const QString& title, const std::vector<ChartSeries>& series,
                     history::Interval interval, std::int64_t now_ms);
/// `recorded` and, after its last known point, what has been seen since; a pause of more than
/// kChartStaleMs in what was seen is a gap. `bucket_ms`: of the recorded points.
std::vector<history::SeriesPoint> WithTail(std::vector<history::SeriesPoint> recorded,
                                           std::int64_t bucket_ms,
                                           const std::vector<history::SeriesPoint>& seen);

}  // namespace onepiece::gui
