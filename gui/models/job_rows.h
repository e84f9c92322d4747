// The table of jobs: up to 10^5 jobs, filtered and sorted, updated ten times a second.
//
// A thread of its own filters, sorts and computes the difference; the latest question wins. The GUI
// thread then applies the difference. The text of a cell is made when a view asks for it.
//
// Threading: GUI thread only.
#pragma once

#include <QAbstractTableModel>
#include <QHash>
#include <QString>
#include <QThreadPool>
#include <cstdint>
#include <memory>
#include <string>

#include "gui/models/format.h"
#include "gui/models/job_query.h"

namespace onepiece::gui {

/// The phase of a cancel that this console has asked for.
enum class CancelPhase {
  kRequested,     ///< Sent; not answered yet.
  kAcknowledged,  ///< The server says that the job is cancelled. The list does not say so yet.
  kUnknown,       ///< The answer was lost.
};

/// The Qt model of the table of jobs.
class JobRows : public QAbstractTableModel {
  Q_OBJECT
 public:
  explicit JobRows(QObject* parent = nullptr);
  ~JobRows() override;

  /// Shows another list, or none if `list` is null. `now_ms` is the servers' time. A call with the
  /// list that is shown already costs nothing, except that a filter by time is applied anew once
  /// the minute is another one.
  void Show(const std::shared_ptr<const session::JobList>& list, std::int64_t now_ms);
  void SetFilter(const JobFilter& filter);
  [[nodiscard]] const JobFilter& filter() const { return filter_; }
  /// Follows one job: Watched() is up to date from the next Arranged() on. An empty uid follows
  /// none.
  void Watch(const QString& uid);
  /// The watched job, whether a filter hides it or not. `job` is null if the list does not have it.
  [[nodiscard]] session::JobEntry Watched() const;
  /// Shows the phase of a cancel beside the job's state. It is forgotten when the list says that
  /// the job has ended.
  void SetCancel(const QString& uid, CancelPhase phase);
  void ClearCancel(const QString& uid);

  /// The last answer of the thread.
  [[nodiscard]] const JobArrangement& arrangement() const { return *made_; }
  /// True if the thread has answered the last question: list, filter and order.
  [[nodiscard]] bool settled() const { return !computing_; }
  /// Number of jobs in the whole list.
  [[nodiscard]] int total() const;
  [[nodiscard]] const JobRow& at(int row) const { return rows_[static_cast<std::size_t>(row)]; }
  /// The row of a job; -1 if no row shows it. Cost: it searches all rows.
  [[nodiscard]] int RowOf(const QString& uid) const;
  /// "◐ running", "◐ cancel requested", "? unknown (reconciling)", …
  [[nodiscard]] QString StateText(const v1::Job& job, session::Certainty certainty) const;
  [[nodiscard]] StatusTone ToneOf(const v1::Job& job, session::Certainty certainty) const;

  int rowCount(const QModelIndex& parent = {}) const override;
  int columnCount(const QModelIndex& parent = {}) const override;
  QVariant data(const QModelIndex& index, int role) const override;
  QVariant headerData(int section, Qt::Orientation orientation, int role) const override;
  /// Column -1 means newest first.
  void sort(int column, Qt::SortOrder order) override;

 Q_SIGNALS:
  /// arrangement() has been replaced.
  void Arranged();

 private:
  void Compute();
  void Take(std::shared_ptr<const JobArrangement> made, const JobEdit& edit);
  void ForgetCancels();
  void Apply(const std::vector<JobRow>& rows, const JobEdit& edit);
  void Permute(const std::vector<int>& order);
  [[nodiscard]] QString TextOf(const JobRow& row, JobColumn column) const;
  [[nodiscard]] QString TipOf(const JobRow& row, JobColumn column) const;
  [[nodiscard]] QVariant NumberOf(const v1::Job& job, JobColumn column) const;
  void RepaintRow(const QString& uid);

  std::shared_ptr<const session::JobList> list_;
  JobFilter filter_;
  JobSort sort_;
  QString watched_;
  std::int64_t now_ms_ = 0;
  std::shared_ptr<const JobArrangement> made_;  ///< Never null.
  std::vector<JobRow> rows_;  ///< Equal to made_->rows, except while Apply() is under way.
  QHash<QString, CancelPhase> cancels_;
  bool computing_ = false;
  bool again_ = false;  ///< The question has changed since the thread began its answer.
  /// One thread. Declared last, so that its destructor waits for the thread while the members above
  /// still exist.
  QThreadPool worker_;
};

/// "stage 2 of 3 · diffusion · step 12 of 30". Empty if the job has ended or has not begun.
QString JobProgressText(const v1::Job& job);

}  // namespace onepiece::gui
