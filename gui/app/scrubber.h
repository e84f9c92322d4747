// The bar below every page: where in the recording the console is, what was noted when, and where
// nothing is known.
//
// Threading  GUI thread only.
#pragma once

#include <QComboBox>
#include <QLabel>
#include <QPushButton>
#include <QTimer>
#include <QWidget>
#include <memory>
#include <vector>

#include "cluster/history/recording.h"
#include "gui/models/store.h"

namespace onepiece::gui {

/// The line itself: gaps hatched, marks above, the instant that is shown. To screen readers it is a
/// slider, in seconds since the epoch.
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
  /// The mark before (or after) the position; 0: none.
  [[nodiscard]] std::int64_t Neighbour(bool after) const;
  /// As a click there does; the nearest instant of the line.
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

/// The bar: line, what is seen of it, step and live buttons.
class Scrubber : public QWidget {
  Q_OBJECT
 public:
  explicit Scrubber(Store& store, QWidget* parent);
  /// Asks for the recording's interval, gaps and marks; done by itself every two seconds.
  void Refresh();
  void TogglePause();
  void GoLive();
  void StepToMark(bool after);
  /// Why nothing is recorded; empty: it is. Stands where other notes stand, when there are none.
  void SetNotice(const QString& notice);
  [[nodiscard]] TimeLine* line() const { return line_; }

 private:
  /// What Refresh asks the recording for.
  struct Seen {
    history::Interval interval;
    std::vector<history::Gap> gaps;
    std::vector<history::Mark> marks;
    absl::Status status;  ///< Why there are no gaps or no marks: the rest of the line is of use.
  };
  static absl::StatusOr<Seen> Look(history::Recording& recording, std::int64_t minutes,
                                   std::int64_t end_ms);
  void Take(absl::StatusOr<Seen> seen);
  void View(std::int64_t at_ms);
  void Draw();

  Store& store_;
  TimeLine* line_;
  QComboBox* range_;
  QPushButton *pause_, *live_, *before_, *after_;
  QLabel* note_;
  QString notice_;
  QTimer refresh_;
  std::weak_ptr<history::Recording> asked_;  ///< Of the answer that is waited for.
  bool asking_ = false, ask_again_ = false;
};

}  // namespace onepiece::gui
