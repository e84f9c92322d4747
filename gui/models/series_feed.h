// The series that a chart shows: what the recording has of the last minutes, read off the GUI
// thread, and what the page has seen itself since.
//
// Threading: GUI thread only.
#pragma once

#include <QObject>
#include <QString>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gui/models/chart_series.h"
#include "gui/models/shown_cluster.h"

namespace onepiece::gui {

/// How much a SeriesFeed asks for, and how often.
struct SeriesFeedOptions {
  std::int64_t span_ms = 15 * 60 * 1000;  ///< The time shown, up to the shown instant.
  std::int64_t refresh_ms = 1000;         ///< Measured in shown time, not by the clock.
  /// Points of a series, at most. A bucket is never shorter than two ticks.
  int max_points = 450;
};

/// Keeps the series of one page up to date. At most one question about the wanted series waits for
/// the recording at a time.
class SeriesFeed : public QObject {
  Q_OBJECT
 public:
  /// A series to show.
  struct Wanted {
    std::string name;  ///< As history::SeriesInfo::name.
    std::string unit;  ///< As history::SeriesInfo::unit.
    QString title;     ///< Safe to show.
    /// The value in a live snapshot, or NaN if not known or too old. It fills in what the recording
    /// does not have yet, or everything if nothing is recorded. May be null.
    std::function<double(const session::Snapshot& snapshot)> now;
  };
  SeriesFeed(ShownCluster& shown_cluster, SeriesFeedOptions options, QObject* parent = nullptr);

  /// Sets the series to show. The same names as before keep their points.
  void Want(std::vector<Wanted> wanted);
  /// Takes the shown cluster's snapshot, and asks the recording when it is time. It is cheap:
  /// View::Draw may call it each time.
  void Refresh();

  /// The series, in the order of Want(). They keep the last good answer while a newer question is
  /// under way or has failed.
  [[nodiscard]] const std::vector<ChartSeries>& series() const { return series_; }
  [[nodiscard]] history::Interval interval() const { return interval_; }
  /// The shown instant. Ages count up to it.
  [[nodiscard]] std::int64_t now_ms() const { return now_ms_; }
  /// Why something is missing, for people. Empty if nothing is.
  [[nodiscard]] const QString& note() const { return note_; }

 Q_SIGNALS:
  void Changed();

 private:
  struct Answer {
    /// Ordered as `wanted_`. nullopt if the recording has no such series.
    std::vector<std::optional<std::vector<history::SeriesPoint>>> series;
  };
  struct Source {
    const void* session = nullptr;
    const void* recording = nullptr;
    friend bool operator==(const Source&, const Source&) = default;
  };
  void LookForOtherSource();
  void Sample(const session::Snapshot& snapshot);
  void AskRecording();
  void Take(absl::StatusOr<Answer> answer);
  void Compose();

  ShownCluster& shown_cluster_;
  const SeriesFeedOptions options_;
  const std::int64_t bucket_ms_;
  std::vector<Wanted> wanted_;
  /// Grows with other names and other sources. An answer to a question with a lower number is
  /// dropped.
  std::uint64_t want_ = 0;
  Source source_;
  std::int64_t now_ms_ = 0, asked_ms_ = 0, answered_ms_ = 0;
  std::optional<std::uint64_t> asking_;  ///< The want_ that the question under way belongs to.
  std::optional<Answer> answer_;
  absl::Status status_;
  /// What was seen of each series live, once a second.
  std::map<std::string, std::vector<history::SeriesPoint>> seen_;
  std::int64_t seen_ms_ = 0;
  std::vector<ChartSeries> series_;
  history::Interval interval_;
  QString note_;
};

}  // namespace onepiece::gui
