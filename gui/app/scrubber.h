// The bar below every page. It shows which instant of the recording is shown, what happened when,
// and where nothing is known.
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

/// The line itself, with hatched gaps, marks above it, and the shown instant. To screen readers it
/// is a slider whose value is seconds since 1970.
class TimeLine : public QWidget {
  Q_OBJECT
 public:
  explicit TimeLine(QWidget* parent);
  void Show(history::Interval interval, std::vector<history::Gap> gaps,
            std::vector<history::Mark> marks);
  void SetPosition(std::int64_t at_ms, bool live);
  [[nodiscard]] std::int64_t position() const { return at_ms_; }
  [[nodiscard]] const history::Interval& interval() const { return interval_; }
  [[nodiscard]] const std::vector<history::Mark>& marks() const { return marks_; }
  /// The time of the next mark before or after the position. 0 if there is none.
  [[nodiscard]] std::int64_t Neighbour(bool after) const;
  /// Picks an instant as a click does. An instant outside of the line becomes the nearest one on
  /// it.
  void Pick(std::int64_t at_ms);
  [[nodiscard]] QSize sizeHint() const override;

 Q_SIGNALS:
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

/// The bar: the line, the choice of its range, and buttons to step and to go live.
class Scrubber : public QWidget {
  Q_OBJECT
 public:
  explicit Scrubber(ShownCluster& shown_cluster, QWidget* parent);
  /// Asks for the recording's interval, gaps and marks. A timer does so every two seconds.
  void Refresh();
  void TogglePause();
  void GoLive();
  void StepToMark(bool after);
  /// Sets why nothing is recorded; empty if it is. It is shown where there is no other note.
  void SetNotice(const QString& notice);
  [[nodiscard]] TimeLine* line() const { return line_; }

 private:
  /// What Refresh() asks the recording for.
  struct Seen {
    history::Interval interval;
    std::vector<history::Gap> gaps;
    std::vector<history::Mark> marks;
    absl::Status status;  ///< Why gaps or marks are missing. The line is useful without them.
  };
  static absl::StatusOr<Seen> Look(history::Recording& recording, std::int64_t minutes,
                                   std::int64_t end_ms);
  void Take(absl::StatusOr<Seen> seen);
  void View(std::int64_t at_ms);
  void Draw();

  ShownCluster& shown_cluster_;
  TimeLine* line_;
  QComboBox* range_;
  QPushButton *pause_, *live_, *before_, *after_;
  QLabel* note_;
  QString notice_;
  QTimer refresh_;
  std::weak_ptr<history::Recording> asked_;  ///< The recording that the awaited answer is from.
  bool asking_ = false, ask_again_ = false;
};

}  // namespace onepiece::gui
