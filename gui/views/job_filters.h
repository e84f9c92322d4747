// The bar above the list of jobs: what is shown, how much that is, what is hidden.
//
// Threading  GUI thread only.
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

class JobFilterBar : public QWidget {
  Q_OBJECT
 public:
  explicit JobFilterBar(QWidget* parent = nullptr);

  [[nodiscard]] const JobFilter& filter() const { return filter_; }
  /// The text comes from the shell.
  void SetText(const QString& text);
  /// Offers what the list holds; says how much of it is shown.
  void Show(const JobArrangement& arrangement);

 Q_SIGNALS:
  void Changed();
  /// "Clear filters" was pressed, and everything here is empty; the text is the shell's.
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
  bool filling_ = false;  ///< Choices change because the list does.
};

}  // namespace onepiece::gui
