// Changes of several jobs at once. One question names all jobs, a few calls are sent at a time, and
// each answer is kept.
//
// Threading: GUI thread only.
#pragma once

#include <QObject>
#include <QString>
#include <QStringList>
#include <QWidget>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gui/models/job_rows.h"
#include "gui/models/shown_cluster.h"

namespace onepiece::gui {

/// Cancels and deletes jobs.
class JobActions : public QObject {
  Q_OBJECT
 public:
  /// The most jobs in one question. Nobody reads longer lists.
  static constexpr int kMaxTargets = 1000;

  /// `rows` shows how far cancels have come.
  ///
  /// Ownership: borrows `shown_cluster` and `rows`.
  JobActions(ShownCluster& shown_cluster, JobRows& rows, QWidget* window);

  /// Asks, then cancels exactly these jobs, whatever the list shows by then.
  void Cancel(const std::vector<std::shared_ptr<const v1::Job>>& jobs);
  /// Asks, then deletes exactly these jobs and their results.
  void Delete(const std::vector<std::shared_ptr<const v1::Job>>& jobs);

 Q_SIGNALS:
  void Told(const QString& text);

 private:
  using Job = std::shared_ptr<const v1::Job>;
  enum class Kind { kCancel, kDelete };
  /// The jobs of one question.
  struct Batch {
    Kind kind = Kind::kCancel;
    std::vector<std::string> uids;
    std::size_t next = 0;  ///< The first job that has not been sent.
    std::size_t under_way = 0;
    std::size_t done = 0;  ///< Answered as wished.
    QStringList others;    ///< "UID: what became of it"
    int asked_of = 0;      ///< The ShownCluster::connection() that was asked.
    int operation = 0;     ///< As Operation::number.
    absl::Status failure;  ///< The first failure.
  };
  [[nodiscard]] QString WhyNot(Kind kind) const;
  [[nodiscard]] bool MayAsk(Kind kind, const std::vector<Job>& jobs);
  void Start(Kind kind, const std::vector<Job>& jobs);
  void Send(const std::shared_ptr<Batch>& batch);
  void Answered(const std::shared_ptr<Batch>& batch, const std::string& uid,
                const absl::StatusOr<v1::Job>& answer);
  void Finish(const Batch& batch);

  ShownCluster& shown_cluster_;
  JobRows& rows_;
  QWidget* window_;
};

}  // namespace onepiece::gui
