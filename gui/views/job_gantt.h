// Where the time of one job went, over stages and nodes: as a chart and as a table.
//
// Threading: GUI thread only.
#pragma once

#include <QLabel>
#include <QPushButton>
#include <QWidget>
#include <memory>
#include <string>

#include "gui/models/job_spans.h"
#include "gui/models/keyed_table.h"
#include "gui/models/shown_cluster.h"

namespace onepiece::gui {

class GanttChart;

class JobGantt : public QWidget {
  Q_OBJECT
 public:
  explicit JobGantt(ShownCluster& shown_cluster, QWidget* parent = nullptr);

  /// Shows the spans of a job; null shows none. It asks the cluster for the spans once the widget
  /// is visible, and again when the job has moved on.
  void Show(const std::shared_ptr<const v1::Job>& job);
  [[nodiscard]] const JobSpans& spans() const { return spans_; }
  [[nodiscard]] QString words() const { return words_->text(); }

 protected:
  void showEvent(QShowEvent* event) override;

 private:
  struct Line {
    QString key;
    QString stage, node, kind, operation, detail;
    double start_s = 0, length_s = 0;
    friend bool operator==(const Line&, const Line&) = default;
  };
  static std::vector<KeyedTable<Line>::Column> Columns();
  [[nodiscard]] QString WhyNot() const;
  void Ask();
  void Take(absl::StatusOr<v1::GetJobTraceResponse> trace);
  void Fill();

  ShownCluster& shown_cluster_;
  std::shared_ptr<const v1::Job> job_;
  std::string asked_;  ///< Uid and progress of the job that was asked for last.
  bool asking_ = false;
  JobSpans spans_;
  GanttChart* chart_;
  QLabel* words_;
  QPushButton* again_;
  std::unique_ptr<KeyedTable<Line>> lines_;
};

}  // namespace onepiece::gui
