// The bar below every page. It marks the instant that the pages show. It also shows the events and
// the gaps of the recording.
//
// Threading: GUI thread only.
#pragma once

#include <QComboBox>
#include <QLabel>
#include <QPushButton>
#include <QTimer>
#include <QWidget>
#include <memory>
#include <vector>

#include "cluster/history/recording.h"
#include "gui/models/shown_cluster.h"

namespace onepiece::gui {

/// The time line. It draws gaps hatched, marks above the line, and the shown instant as a knob.
/// Screen readers see a slider whose value is in seconds since 1970.
class TimeLine : public QWidget {
  Q_OBJECT
 public:
  explicit TimeLine(QWidget* parent);
  /// Replaces what the line shows. An interval of length 0 shows an empty line.
  void Show(history::Interval interval, std::vector<history::Gap> gaps,
            std::vector<history::Mark> marks);
  /// Moves the knob. `at_ms` is in milliseconds since 1970; 0 means that nothing is recorded.
  void SetPosition(std::int64_t at_ms, bool live);
  [[nodiscard]] std::int64_t position() const { return at_ms_; }
  [[nodiscard]] const history::Interval& interval() const { return interval_; }
  [[nodiscard]] const std::vector<history::Mark>& marks() const { return marks_; }
  /// Returns the time of the nearest mark after the position, or before it if `after` is false.
  /// Returns 0 if there is none.
  [[nodiscard]] std::int64_t Neighbour(bool after) const;
  /// Emits Picked(), as a click does. It clamps `at_ms` to the interval. It does nothing if the
  /// interval is empty.
  void Pick(std::int64_t at_ms);
  [[nodiscard]] QSize sizeHint() const override;

 Q_SIGNALS:
  /// The user has picked an instant. The position changes only with the next SetPosition().
  void Picked(std::int64_t at_ms);

 protected:
  void paintEvent(QPaintEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  bool event(QEvent* event) override;

 private:
  [[nodiscard]] double XOf(std::int64_t at_ms) const;
  [[nodiscard]] std::int64_t TimeAt(double x) const;

  history::Interval interval_;
  std::vector<history::Gap> gaps_;
  std::vector<history::Mark> marks_;
  std::int64_t at_ms_ = 0;
  bool live_ = true;
};

/// The bar: the time line, the choice of its range, and buttons to step and to go live.
///
/// Ownership: `shown_cluster` must outlive the bar. The bar owns its line.
class Scrubber : public QWidget {
  Q_OBJECT
 public:
  explicit Scrubber(ShownCluster& shown_cluster, QWidget* parent);
  /// Asks the recording for its interval, gaps and marks, and returns at once. The line changes
  /// when the answer comes. A timer calls this every two seconds.
  void Refresh();
  /// Pauses if live, and goes live otherwise.
  void TogglePause();
  void GoLive();
  /// Shows the instant of the nearest mark after the shown instant, or before it if `after` is
  /// false. Does nothing if there is none.
  void StepToMark(bool after);
  /// Sets the text that says why nothing is recorded. It is empty while the recorder runs. A new
  /// text replaces the note about a failed pick.
  void SetNotice(const QString& notice);
  [[nodiscard]] TimeLine* line() const { return line_; }

 private:
  /// The answer to Refresh().
  struct Seen {
    history::Interval interval;
    std::vector<history::Gap> gaps;
    std::vector<history::Mark> marks;
    /// Says why gaps or marks are missing. Look() does not fail then, because the line is useful
    /// without them.
    absl::Status status;
  };
  /// Reads the range of `minutes` (0: all) around `end_ms`. If `end_ms` is 0, the range ends where
  /// the recording ends.
  static absl::StatusOr<Seen> Look(history::Recording& recording, std::int64_t minutes,
                                   std::int64_t end_ms);
  void Take(absl::StatusOr<Seen> seen);
  void View(std::int64_t at_ms);
  void Draw();
  /// Shows the error of the last pick, else that of the last look, else the notice.
  void ShowNote();

  ShownCluster& shown_cluster_;
  TimeLine* line_;
  QComboBox* range_;
  QPushButton *pause_, *live_, *before_, *after_;
  QLabel* note_;
  QString notice_;
  absl::Status view_error_;  ///< Why the picked instant is not shown. OK once another one is.
  absl::Status look_error_;  ///< Why gaps or marks are missing. OK once a look finds them.
  QTimer refresh_;
  std::weak_ptr<history::Recording> asked_;  ///< The recording that the open question went to.
  /// asking_: a question is open. ask_again_: Refresh() was called meanwhile.
  bool asking_ = false, ask_again_ = false;
};

}  // namespace onepiece::gui
