// Changes of several jobs at once: asked about with the jobs named, sent a few at a time, each
// answer kept.
//
// Threading  GUI thread only.
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
#include "gui/models/store.h"

namespace onepiece::gui {

class JobActions : public QObject {
  Q_OBJECT
 public:
  /// More are not asked about in one question: nobody reads them.
  static constexpr int kMaxTargets = 1000;

  /// `rows` is told how far cancels have come. Both are borrowed.
  JobActions(Store& store, JobRows& rows, QWidget* window);

  /// Asks, then cancels just these jobs, whatever the list shows by then.
  void Cancel(const std::vector<std::shared_ptr<const v1::Job>>& jobs);
  /// Asks, then forgets just these jobs and their results.
  void Delete(const std::vector<std::shared_ptr<const v1::Job>>& jobs);

 Q_SIGNALS:
  void Told(const QString& text);

 private:
  using Job = std::shared_ptr<const v1::Job>;
  enum class Kind { kCancel, kDelete };
  /// What was asked of the cluster once.
  struct Batch {
    Kind kind = Kind::kCancel;
    std::vector<std::string> uids;
    std::size_t next = 0;  ///< The first that has not been sent.
    std::size_t under_way = 0;
    std::size_t done = 0;  ///< As it should be.
    QStringList others;    ///< "UID: what became of it"
    int asked_of = 0;      ///< As Store::connection.
    int operation = 0;     ///< As Operation::number.
    absl::Status failure;  ///< The first.
  };
  [[nodiscard]] bool MayAsk(const std::vector<Job>& jobs);
  void Start(Kind kind, const std::vector<Job>& jobs);
  void Send(const std::shared_ptr<Batch>& batch);
  void Answered(const std::shared_ptr<Batch>& batch, const std::string& uid,
                const absl::StatusOr<v1::Job>& answer);
  void Finish(const Batch& batch);

  Store& store_;
  JobRows& rows_;
  QWidget* window_;
};

}  // namespace onepiece::gui
