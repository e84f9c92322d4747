// What charts show: series of the recording over the last minutes, read off the GUI thread, and
// what has been seen since.
//
// Threading  GUI thread only. One question to the recording is under way at a time.
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
#include "gui/models/store.h"

namespace onepiece::gui {

class SeriesFeed : public QObject {
  Q_OBJECT
 public:
  struct Wanted {
    std::string name;  ///< As history::SeriesInfo::name.
    std::string unit;  ///< As history::SeriesInfo::unit.
    QString title;     ///< Safe to show.
    /// Its value in a live snapshot (NaN: not known, or too old): for what is newer than the
    /// recording, and all that there is without one. Null: none.
    std::function<double(const Snapshot& snapshot)> now;
  };
  struct Options {
    std::int64_t span_ms = 15 * 60 * 1000;  ///< Up to the instant that is shown.
    std::int64_t refresh_ms = 1000;         ///< Of what is shown, not of the clock.
    int max_points = 450;                   ///< Of a series; buckets are never below two ticks.
  };
  SeriesFeed(Store& store, Options options, QObject* parent = nullptr);

  /// What is asked for from now on; the same names as before keep their numbers.
  void Want(std::vector<Wanted> wanted);
  /// Looks at the store's snapshot and asks when it is time. For View::Draw: cheap.
  void Refresh();

  /// In the order of Want; the last answer, whatever became of a newer question.
  [[nodiscard]] const std::vector<ChartSeries>& series() const { return series_; }
  [[nodiscard]] history::Interval interval() const { return interval_; }
  /// The instant that is shown, to which ages are counted.
  [[nodiscard]] std::int64_t now_ms() const { return now_ms_; }
  /// Why something is missing, for people; empty: nothing is.
  [[nodiscard]] const QString& note() const { return note_; }

 Q_SIGNALS:
  void Changed();

 private:
  struct Answer {
    /// As `wanted_`; nullopt: the recording has no such series.
    std::vector<std::optional<std::vector<history::SeriesPoint>>> series;
  };
  struct Source {
    const void* session = nullptr;
    const void* recording = nullptr;
    friend bool operator==(const Source&, const Source&) = default;
  };
  void LookForOtherSource();
  void Sample(const Snapshot& snapshot);
  void AskRecording();
  void Take(absl::StatusOr<Answer> answer);
  void Compose();

  Store& store_;
  const Options options_;
  const std::int64_t bucket_ms_;
  std::vector<Wanted> wanted_;
  std::uint64_t want_ = 0;  ///< Grows with other names and other sources: late answers are dropped.
  Source source_;
  std::int64_t now_ms_ = 0, asked_ms_ = 0, answered_ms_ = 0;
  std::optional<std::uint64_t> asking_;  ///< The question under way is of this want_.
  std::optional<Answer> answer_;
  absl::Status status_;
  /// What was seen of each live, once a second.
  std::map<std::string, std::vector<history::SeriesPoint>> seen_;
  std::int64_t seen_ms_ = 0;
  std::vector<ChartSeries> series_;
  history::Interval interval_;
  QString note_;
};

}  // namespace onepiece::gui
