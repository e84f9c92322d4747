// One job: where it is and why, what it was asked for, what it made, what went wrong.
//
// Threading  GUI thread only.
#pragma once

#include <QLabel>
#include <QProgressBar>
#include <QTabWidget>
#include <QWidget>
#include <memory>

#include "gui/models/format.h"
#include "gui/models/keyed_table.h"
#include "gui/models/store.h"

namespace onepiece::gui {

class JobGantt;
class ResultPreview;
class TablePanel;

/// What a stage has done for a job.
struct StageLine {
  QString stage, node, state, step;
  double queued_s = -1, compute_s = -1, transfer_s = -1;  ///< Negative: not known.
  StatusTone tone = StatusTone::kNeutral;
  friend bool operator==(const StageLine&, const StageLine&) = default;
};
/// In the workflow's order, then what the workflow does not name.
std::vector<StageLine> StageLinesOf(const v1::Job& job, const v1::Workflow* workflow);

class JobDetail : public QWidget {
  Q_OBJECT
 public:
  explicit JobDetail(Store& store, QWidget* parent = nullptr);

  /// What the page says of a job, besides the job.
  struct Words {
    QString state;  ///< "◐ running"
    StatusTone tone = StatusTone::kNeutral;
    QString wait;  ///< Why it waits; empty: it does not.
    QString note;  ///< "Hidden by the filter."
  };
  /// Null: nothing is selected; `words.note` says why. A job of the same uid keeps its tab and what
  /// was loaded for it.
  void Show(const std::shared_ptr<const v1::Job>& job, const Words& words);
  [[nodiscard]] const std::shared_ptr<const v1::Job>& job() const { return job_; }
  [[nodiscard]] QTabWidget* tabs() const { return tabs_; }
  [[nodiscard]] ResultPreview* result() const { return result_; }

 private:
  struct Pair {
    QString name, value;
    friend bool operator==(const Pair&, const Pair&) = default;
  };
  void ShowHead(const Words& words);
  void ShowStages();
  void ShowParameters();
  void ShowError();

  Store& store_;
  std::shared_ptr<const v1::Job> job_;
  QLabel *title_, *state_, *wait_, *note_;
  QProgressBar* progress_;
  QTabWidget* tabs_;
  std::unique_ptr<KeyedTable<StageLine>> stages_;
  std::unique_ptr<KeyedTable<Pair>> parameters_;
  JobGantt* gantt_;
  ResultPreview* result_;
  QLabel* error_;
};

}  // namespace onepiece::gui
