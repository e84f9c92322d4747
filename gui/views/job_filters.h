// The bar above the list of jobs: the filter, how much of the list it shows, and how much it hides.
//
// Threading: GUI thread only.
#pragma once

#include <QAction>
#include <QComboBox>
#include <QLabel>
#include <QPushButton>
#include <QToolButton>
#include <QWidget>
#include <vector>

#include "gui/models/job_query.h"

namespace onepiece::gui {

/// The bar.
class JobFilterBar : public QWidget {
  Q_OBJECT
 public:
  explicit JobFilterBar(QWidget* parent = nullptr);

  [[nodiscard]] const JobFilter& filter() const { return filter_; }
  /// Sets the text of the filter, which the window owns.
  void SetText(const QString& text);
  /// Offers the values that the list holds, and says how much of it is shown.
  void Show(const JobArrangement& arrangement);

 Q_SIGNALS:
  void Changed();
  /// The operator pressed "Clear filters", and all choices here are empty. The window must empty
  /// the text.
  void Cleared();

 private:
  QComboBox* AddChoice(const QString& name, const QString& all);
  void AddStates();
  void NameStates();
  void Offer(QComboBox* box, const QStringList& values);
  void Read();
  void Clear();

  JobFilter filter_;
  QToolButton* states_;
  std::vector<QAction*> state_actions_;  ///< By state, without UNSPECIFIED.
  QComboBox *app_, *set_, *created_, *label_;
  QLabel* count_;
  QPushButton* clear_;
  bool filling_ = false;  ///< True while Offer() changes the choices, so that Read() ignores it.
};

}  // namespace onepiece::gui
