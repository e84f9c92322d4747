// One job in detail: where it is and why, its parameters, its result, its error.
//
// Threading: GUI thread only.
#pragma once

#include <QLabel>
#include <QProgressBar>
#include <QTabWidget>
#include <QWidget>
#include <memory>

#include "gui/models/format.h"
#include "gui/models/keyed_table.h"
#include "gui/models/shown_cluster.h"

namespace onepiece::gui {

class JobGantt;
class ResultPreview;
class TablePanel;

/// What one stage has done for a job.
struct StageLine {
  QString stage, node, state, step;
  double queued_s = -1, compute_s = -1, transfer_s = -1;  ///< Negative if not known.
  StatusTone tone = StatusTone::kNeutral;
  friend bool operator==(const StageLine&, const StageLine&) = default;
};
/// The stages in the workflow's order, then those that the workflow does not have.
std::vector<StageLine> StageLinesOf(const v1::Job& job, const v1::Workflow* workflow);

/// Shows one job.
class JobDetail : public QWidget {
  Q_OBJECT
 public:
  explicit JobDetail(ShownCluster& shown_cluster, QWidget* parent = nullptr);

  /// What the page knows of a job besides the job itself.
  struct Words {
    QString state;  ///< "◐ running"
    StatusTone tone = StatusTone::kNeutral;
    QString wait;  ///< Why it waits. Empty if it does not.
    QString note;  ///< "Hidden by the filter."
  };
  /// Shows a job. Null if none is selected; `words.note` then says why. Another version of the same
  /// job keeps the tab and what was loaded.
  void Show(const std::shared_ptr<const v1::Job>& job, const Words& words);
  [[nodiscard]] const std::shared_ptr<const v1::Job>& job() const { return job_; }
  [[nodiscard]] QTabWidget* tabs() const { return tabs_; }
  [[nodiscard]] ResultPreview* result() const { return result_; }

 private:
  struct Pair {
    QString name, value;
    friend bool operator==(const Pair&, const Pair&) = default;
  };
  void AddTabs();
  void ShowHead(const Words& words);
  void ShowStages();
  void ShowParameters();
  void ShowError();

  ShownCluster& shown_cluster_;
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
