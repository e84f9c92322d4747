// The dialog that asks for a job: made of its application's schema.
//
// Threading  GUI thread only.
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
#include "gui/models/store.h"

namespace onepiece::gui {

class InputEditor;
class ParameterEditor;

/// What was given last, by application; kept by the page for as long as it lives.
struct SubmitMemory {
  std::string app;
  std::map<std::string, JobValues> values;
};

class SubmitDialog : public QDialog {
  Q_OBJECT
 public:
  /// Begins with the application and values of `memory`, which outlives it and gets what is given.
  SubmitDialog(Store& store, SubmitMemory& memory, QWidget* parent = nullptr);

  /// Says something about the values it began with.
  void SetNote(const QString& note);
  /// Made once for each dialog: asking again, because an answer was lost, gives the same job.
  [[nodiscard]] const std::string& request_id() const { return request_id_; }
  [[nodiscard]] const JobForm* form() const { return form_.get(); }

 Q_SIGNALS:
  void Submitted(const QString& uid);
  void Told(const QString& text);

 public Q_SLOTS:
  /// Stays, unseen, while an answer is awaited.
  void reject() override;

 protected:
  /// Ctrl+Enter submits.
  void keyPressEvent(QKeyEvent* event) override;

 private:
  struct Outcome {
    bool sent = false;  ///< The job itself was asked for, not only the check.
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

  Store& store_;
  const int asked_of_;  ///< As Store::connection: What is asked here is for that cluster alone.
  SubmitMemory& memory_;
  const std::string request_id_;
  std::shared_ptr<const v1::Cluster> cluster_;  ///< As it was when the dialog was opened.
  std::unique_ptr<JobForm> form_;
  std::map<std::string, ParameterEditor*> parameters_;
  std::map<std::string, InputEditor*> inputs_;
  std::map<std::string, std::string> refused_;  ///< By the server, of the values as they are.
  QComboBox* app_;
  QScrollArea* area_;
  QLabel *note_, *queue_, *said_;
  QLineEdit* line_;
  QPushButton *copy_, *submit_, *close_;
  bool sending_ = false;
  bool uncertain_ = false;  ///< An answer was lost: the same must be asked again.
};

}  // namespace onepiece::gui
