// The list of jobs: any of 10^5, filtered and sorted, ten times a second.
//
// What       Filtering, sorting and what has changed are computed on a thread of its own, the
// latest
//            question wins; the GUI thread takes over the difference. What a cell says is made when
//            it is looked at.
// Threading  GUI thread only.
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

/// How far a cancel has come that was asked for from here.
enum class CancelPhase {
  kRequested,     ///< Sent; no answer yet.
  kAcknowledged,  ///< The server has said that it is cancelled; the list does not say so yet.
  kUnknown,       ///< The answer was lost.
};

class JobRows : public QAbstractTableModel {
  Q_OBJECT
 public:
  explicit JobRows(QObject* parent = nullptr);
  ~JobRows() override;

  /// Shows another list (null: none) and what the time is at the servers. Costs nothing when the
  /// list is the same.
  void Show(const std::shared_ptr<const JobList>& list, std::int64_t now_ms);
  void SetFilter(const JobFilter& filter);
  [[nodiscard]] const JobFilter& filter() const { return filter_; }
  /// Keeps Watched() up to date from the next Arranged() on. Empty: nothing.
  void Watch(const QString& uid);
  /// The job that is watched, whether a filter hides it or not; null: there is none.
  [[nodiscard]] JobEntry Watched() const;
  void SetCancel(const QString& uid, CancelPhase phase);
  void ClearCancel(const QString& uid);

  /// What was computed last.
  [[nodiscard]] const JobArrangement& arrangement() const { return *made_; }
  /// The list that was shown last has been computed, with this filter.
  [[nodiscard]] bool settled() const { return !computing_; }
  [[nodiscard]] int total() const;
  [[nodiscard]] const JobRow& at(int row) const { return rows_[static_cast<std::size_t>(row)]; }
  /// -1: not among the rows. Looks at all of them.
  [[nodiscard]] int RowOf(const QString& uid) const;
  /// "◐ running", "◐ cancel requested", "? unknown (reconciling)", …
  [[nodiscard]] QString StateText(const v1::Job& job, Certainty certainty) const;
  [[nodiscard]] StatusTone ToneOf(const v1::Job& job, Certainty certainty) const;

  int rowCount(const QModelIndex& parent = {}) const override;
  int columnCount(const QModelIndex& parent = {}) const override;
  QVariant data(const QModelIndex& index, int role) const override;
  QVariant headerData(int section, Qt::Orientation orientation, int role) const override;
  /// Column -1: newest first.
  void sort(int column, Qt::SortOrder order) override;

 Q_SIGNALS:
  /// arrangement() is another one.
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

  std::shared_ptr<const JobList> list_;
  JobFilter filter_;
  JobSort sort_;
  QString watched_;
  std::int64_t now_ms_ = 0;
  std::shared_ptr<const JobArrangement> made_;  ///< Never null.
  std::vector<JobRow> rows_;  ///< made_->rows; while they are being changed a mixture.
  QHash<QString, CancelPhase> cancels_;
  bool computing_ = false;
  bool again_ = false;  ///< What is being computed is not what was asked for last.
  QThreadPool worker_;  ///< One thread; last: it ends before what it uses.
};

/// "stage 2 of 3 · diffusion · step 12 of 30"; empty: it has ended, or has not begun.
QString JobProgressText(const v1::Job& job);

}  // namespace onepiece::gui
