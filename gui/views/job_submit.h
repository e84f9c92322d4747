// The dialog that submits a job. It is made from the application's schema.
//
// Threading: GUI thread only.
#pragma once

#include <QComboBox>
#include <QDialog>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QScrollArea>
#include <map>
#include <memory>
#include <string>

#include "gui/models/job_form.h"
#include "gui/models/shown_cluster.h"

namespace onepiece::gui {

class InputEditor;
class ParameterEditor;

/// The values given last, by application. The page keeps it as long as it lives.
struct SubmitMemory {
  std::string app;
  std::map<std::string, JobValues> values;
};

/// The dialog.
class SubmitDialog : public QDialog {
  Q_OBJECT
 public:
  /// Begins with the application and values of `memory`, and writes back what is given.
  ///
  /// Ownership: borrows `shown_cluster` and `memory`.
  SubmitDialog(ShownCluster& shown_cluster, SubmitMemory& memory, QWidget* parent = nullptr);

  /// Says something about the values that the dialog begins with.
  void SetNote(const QString& note);
  /// Made once for each dialog. If an answer was lost, the same request is sent again and gives the
  /// same job.
  [[nodiscard]] const std::string& request_id() const { return request_id_; }
  [[nodiscard]] const JobForm* form() const { return form_.get(); }

 Q_SIGNALS:
  void Submitted(const QString& uid);
  void Told(const QString& text);

 public Q_SLOTS:
  /// Closes the dialog. While an answer is awaited, the dialog is only hidden.
  void reject() override;

 protected:
  /// Ctrl+Enter submits.
  void keyPressEvent(QKeyEvent* event) override;

 private:
  struct Outcome {
    bool sent = false;  ///< The job itself was submitted, not only checked.
    absl::StatusOr<v1::Job> job;
  };
  void MakeLayout();
  void ChooseApp(int index);
  void MakeEditors();
  void Check();
  void ShowQueue();
  void Submit();
  void Answered(const Outcome& outcome);
  void Lock(bool locked);
  void Say(const QString& text, bool bad);

  ShownCluster& shown_cluster_;
  const int asked_of_;  ///< The ShownCluster::connection() that the dialog is for.
  SubmitMemory& memory_;
  const std::string request_id_;
  /// The cluster as it was when the dialog was opened.
  std::shared_ptr<const v1::Cluster> cluster_;
  std::unique_ptr<JobForm> form_;
  std::map<std::string, ParameterEditor*> parameters_;
  std::map<std::string, InputEditor*> inputs_;
  /// What the server has refused of the present values, by name.
  std::map<std::string, std::string> refused_;
  QComboBox* app_;
  QScrollArea* area_;
  QLabel *note_, *queue_, *said_;
  QLineEdit* line_;
  QPushButton *copy_, *submit_, *close_;
  bool sending_ = false;
  bool uncertain_ = false;  ///< An answer was lost, so the same request must be sent again.
};

}  // namespace onepiece::gui
