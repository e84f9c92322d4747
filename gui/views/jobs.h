// The page "Jobs": all jobs, and one in detail.
//
// Threading: GUI thread only.
#pragma once

#include <QLabel>
#include <QPushButton>
#include <QSplitter>
#include <QTableView>
#include <memory>
#include <string>
#include <vector>

#include "gui/models/job_rows.h"
#include "gui/views/job_actions.h"
#include "gui/views/job_detail.h"
#include "gui/views/job_filters.h"
#include "gui/views/job_submit.h"
#include "gui/views/view.h"

namespace onepiece::gui {

class JobsView : public View {
  Q_OBJECT
 public:
  explicit JobsView(ShownCluster& shown_cluster, QWidget* parent = nullptr);

  [[nodiscard]] std::vector<Command> Commands() override;
  [[nodiscard]] QAbstractItemModel* ExportModel() override { return rows_.get(); }
  /// Shows "job/UID" in detail.
  void Focus(const QString& entity) override;
  void SetFilter(const QString& text) override;
  [[nodiscard]] QString Help() const override;

  /// The selected jobs in the order of their rows, or else the job shown in detail. At most
  /// JobActions::kMaxTargets + 1, so that the caller can tell that there are too many.
  [[nodiscard]] std::vector<std::shared_ptr<const v1::Job>> Targets() const;
  /// Opens the submit dialog, with the values given last.
  void Submit();

 protected:
  void Draw(const session::Snapshot& snapshot) override;
  void resizeEvent(QResizeEvent* event) override;

 private:
  void MakeList();
  QWidget* MakeDetail();
  QPushButton* AddAction(QLayout* layout, const QString& text, const QString& tip,
                         void (JobsView::*run)());
  void Cancel();
  void Delete();
  void Clone();
  void CopyUids();
  void SaveResult();
  void ShowActions();
  void KeepSelection();
  void ShowNotes(const session::Snapshot& snapshot);
  void ShowDetail();
  void OnCurrent(const QModelIndex& index);
  void SelectWanted();

  std::unique_ptr<JobRows> rows_;
  JobFilterBar* filters_;
  QLabel* banner_;
  QTableView* table_ = nullptr;
  QSplitter* splitter_;
  JobDetail* detail_;
  JobActions* actions_;
  SubmitMemory memory_;
  QPushButton *new_ = nullptr, *cancel_ = nullptr, *clone_ = nullptr, *save_ = nullptr,
              *delete_ = nullptr;
  QString watched_;        ///< Uid of the job shown in detail.
  QString wanted_;         ///< Uid of a job to select as soon as it is among the rows.
  bool changing_ = false;  ///< True while rows come and go: the current row then changes by itself.
  QStringList held_;       ///< The selected uids, kept while the model resets.
};

}  // namespace onepiece::gui
