#include "gui/models/chart_series.h"

#include <QStringList>
#include <algorithm>
#include <cmath>
#include <limits>

#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kMaxSpoken = 8;

// How long a point holds. A point of a coarse series holds for two steps, so that one missing
// bucket makes no gap.
std::int64_t Reach(const ChartSeries& series) {
  return std::max(kChartStaleMs, 2 * StepOf(series));
}

}  // namespace

std::int64_t StepOf(const ChartSeries& series) {
  const auto& points = series.points;
  return points.size() < 2 ? 0 : points.back().at_ms - points[points.size() - 2].at_ms;
}

history::SeriesPoint ValueAt(const ChartSeries& series, std::int64_t at_ms) {
  const auto after =
      std::ranges::upper_bound(series.points, at_ms, {}, &history::SeriesPoint::at_ms);
  if (after == series.points.begin() || at_ms - std::prev(after)->at_ms > Reach(series)) {
    return {at_ms, kUnknown, kUnknown, kUnknown};
  }
  return *std::prev(after);
}

double ValueNow(const ChartSeries& series, std::int64_t now_ms) {
  // The newest bucket may have no sample yet.
  for (auto point = series.points.rbegin(); point != series.points.rend(); ++point) {
    if (now_ms - point->at_ms > Reach(series)) break;
    if (point->at_ms <= now_ms && !std::isnan(point->mean)) return point->mean;
  }
  return kUnknown;
}

std::int64_t LastKnown(const std::vector<ChartSeries>& series) {
  std::int64_t last_ms = 0;
  for (const ChartSeries& one : series) {
    for (auto point = one.points.rbegin(); point != one.points.rend(); ++point) {
      if (std::isnan(point->mean)) continue;
      last_ms = std::max(last_ms, point->at_ms);
      break;
    }
  }
  return last_ms;
}

QString ReadOut(const history::SeriesPoint& point, const std::string& unit) {
  const QString mean = FormatValue(point.mean, unit);
  const QString min = FormatValue(point.min, unit), max = FormatValue(point.max, unit);
  return min == max ? mean : Tr("%1 (%2 to %3)").arg(mean, min, max);
}

QString ChartSummary(const QString& title, const std::vector<ChartSeries>& series,
                     history::Interval interval, std::int64_t now_ms) {
  const QString span = FormatSeconds(static_cast<double>(interval.to_ms - interval.from_ms) * 1e-3);
  if (series.empty()) return Tr("%1, last %2: nothing to show").arg(title, span);
  QStringList values;
  for (const ChartSeries& one : series) {
    if (static_cast<std::size_t>(values.size()) == kMaxSpoken) break;
    values.append(
        QStringLiteral("%1 %2").arg(one.title, FormatValue(ValueNow(one, now_ms), one.unit)));
  }
  if (series.size() > kMaxSpoken) values.append(QStringLiteral("…"));
  const QString lines = series.size() == 1 ? Tr("one line") : Tr("%1 lines").arg(series.size());
  return Tr("%1, %2, last %3; now %4").arg(title, lines, span, values.join(QStringLiteral(", ")));
}

std::vector<history::SeriesPoint> WithTail(std::vector<history::SeriesPoint> recorded,
                                           std::int64_t bucket_ms,
                                           const std::vector<history::SeriesPoint>& seen) {
  // The newest buckets are empty while the recorder has not written them yet. They must not hide
  // what was seen.
  while (!recorded.empty() && std::isnan(recorded.back().mean)) recorded.pop_back();
  const std::int64_t step_ms = std::max<std::int64_t>(bucket_ms, 1);
  // The mean of the last bucket already contains what was seen within it.
  const std::int64_t from_ms = recorded.empty() ? 0 : recorded.back().at_ms + step_ms;
  for (const history::SeriesPoint& point : seen) {
    if (point.at_ms < from_ms) continue;
    if (!recorded.empty() && point.at_ms - recorded.back().at_ms > kChartStaleMs + step_ms) {
      recorded.push_back({recorded.back().at_ms + step_ms, kUnknown, kUnknown, kUnknown});
    }
    recorded.push_back(point);
  }
  return recorded;
}

}  // namespace onepiece::gui
