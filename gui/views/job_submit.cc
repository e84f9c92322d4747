#include "gui/views/job_submit.h"

#include <QApplication>
#include <QClipboard>
#include <QHBoxLayout>
#include <QKeyEvent>
#include <QVBoxLayout>
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/session/link.h"
#include "gui/models/format.h"
#include "gui/models/job_wait.h"
#include "gui/models/permissions.h"
#include "gui/views/job_editors.h"
#include "gui/views/tone.h"

namespace onepiece::gui {
namespace {

int RequiredFiles(const v1::Workflow& workflow) {
  return static_cast<int>(std::ranges::count_if(workflow.inputs(), &v1::InputSpec::required));
}

QString Refusal(const absl::Status& status) {
  QString text = SafeText(session::Explain(status), 1000);
  if (!absl::IsResourceExhausted(status)) return SubmitDialog::tr("Not submitted. %1").arg(text);
  const auto metadata = base::GetReason(status).metadata;
  const auto at = metadata.find("retry_after_ms");
  std::int64_t ms = 0;
  text = SubmitDialog::tr("Not submitted: the cluster is full. %1").arg(text);
  if (at != metadata.end() && absl::SimpleAtoi(at->second, &ms)) {
    text += u' ' + SubmitDialog::tr("It asks to come again in %1.")
                       .arg(FormatSeconds(static_cast<double>(ms) * 1e-3));
  }
  return text;
}

}  // namespace

SubmitDialog::SubmitDialog(ShownCluster& shown_cluster, SubmitMemory& memory, QWidget* parent)
    : QDialog(parent),
      shown_cluster_(shown_cluster),
      asked_of_(shown_cluster.connection()),
      memory_(memory),
      request_id_(base::Uid::GenerateRandom().ToString()),
      cluster_(shown_cluster.snapshot()->cluster.value),
      app_(new QComboBox(this)),
      area_(new QScrollArea(this)),
      note_(new QLabel(this)),
      queue_(new QLabel(this)),
      said_(new QLabel(this)),
      line_(new QLineEdit(this)),
      copy_(new QPushButton(tr("Copy as CLI"), this)),
      submit_(new QPushButton(tr("Submit job"), this)),
      close_(new QPushButton(tr("Close"), this)) {
  setObjectName(QStringLiteral("jobs.submit"));
  setWindowTitle(tr("Submit a job"));
  MakeLayout();
  // The dialog begins with the application used last, or else with the one that needs the fewest
  // files.
  int begin = 0, fewest = std::numeric_limits<int>::max();
  if (cluster_ != nullptr) {
    for (const v1::Workflow& workflow : cluster_->workflows()) {
      const QString id = SafeText(workflow.app_id(), 63);
      const int files = workflow.app_id() == memory_.app ? -1 : RequiredFiles(workflow);
      if (files < fewest) {
        begin = app_->count();
        fewest = files;
      }
      app_->addItem(workflow.display_name().empty()
                        ? id
                        : tr("%1 (%2)").arg(SafeText(workflow.display_name(), 80), id));
    }
  }
  connect(app_, &QComboBox::currentIndexChanged, this, &SubmitDialog::ChooseApp);
  connect(&shown_cluster_, &ShownCluster::Changed, this, &SubmitDialog::ShowQueue);
  for (const auto signal : {&ShownCluster::ModeChanged, &ShownCluster::LinkChanged}) {
    connect(&shown_cluster_, signal, this, &SubmitDialog::Check);
  }
  if (app_->count() == 0) {
    Say(tr("The cluster has no application. Add one with `onepiece workflow apply FILE`."), true);
    submit_->setEnabled(false);
    copy_->setEnabled(false);
    return;
  }
  app_->setCurrentIndex(begin);
  ChooseApp(begin);
}

void SubmitDialog::MakeLayout() {
  app_->setAccessibleName(tr("Application"));
  app_->setObjectName(QStringLiteral("jobs.submit.app"));
  area_->setWidgetResizable(true);
  area_->setFrameShape(QFrame::NoFrame);
  area_->setAccessibleName(tr("Parameters and files"));
  for (QLabel* label : {note_, queue_, said_}) {
    label->setTextFormat(Qt::PlainText);
    label->setWordWrap(true);
  }
  note_->hide();
  queue_->setObjectName(QStringLiteral("jobs.submit.queue"));
  said_->setObjectName(QStringLiteral("jobs.submit.said"));
  said_->setTextInteractionFlags(Qt::TextSelectableByMouse);
  line_->setReadOnly(true);
  line_->setAccessibleName(tr("The same on the command line"));
  line_->setObjectName(QStringLiteral("jobs.submit.line"));
  submit_->setObjectName(QStringLiteral("jobs.submit.go"));
  submit_->setToolTip(tr("Ctrl+Enter"));
  for (QPushButton* button : {copy_, submit_, close_}) button->setAutoDefault(false);
  auto* top = new QHBoxLayout;
  auto* label = new QLabel(tr("Application"), this);
  label->setBuddy(app_);
  top->addWidget(label);
  top->addWidget(app_, 1);
  auto* command = new QHBoxLayout;
  command->addWidget(line_, 1);
  command->addWidget(copy_);
  auto* buttons = new QHBoxLayout;
  buttons->addWidget(said_, 1);
  buttons->addWidget(close_);
  buttons->addWidget(submit_);
  auto* layout = new QVBoxLayout(this);
  layout->addLayout(top);
  layout->addWidget(note_);
  layout->addWidget(area_, 1);
  layout->addWidget(queue_);
  layout->addLayout(command);
  layout->addLayout(buttons);
  resize(fontMetrics().averageCharWidth() * 92, fontMetrics().height() * 42);
  connect(copy_, &QPushButton::clicked, this, [this] {
    QApplication::clipboard()->setText(form_->CommandLine());
    Say(tr("Copied."), false);
  });
  connect(submit_, &QPushButton::clicked, this, &SubmitDialog::Submit);
  connect(close_, &QPushButton::clicked, this, &SubmitDialog::reject);
}

void SubmitDialog::keyPressEvent(QKeyEvent* event) {
  const bool enter = event->key() == Qt::Key_Return || event->key() == Qt::Key_Enter;
  if (enter && event->modifiers().testFlag(Qt::ControlModifier)) {
    Submit();
  } else {
    QDialog::keyPressEvent(event);
  }
}

void SubmitDialog::SetNote(const QString& note) {
  note_->setText(note);
  note_->setVisible(!note.isEmpty());
}

void SubmitDialog::ChooseApp(int index) {
  if (index < 0 || cluster_ == nullptr || index >= cluster_->workflows_size()) return;
  const v1::Workflow& workflow = cluster_->workflows(index);
  memory_.app = workflow.app_id();
  form_ = std::make_unique<JobForm>(workflow, memory_.values[workflow.app_id()]);
  MakeEditors();
  Say({}, false);
  Check();
  ShowQueue();
}

void SubmitDialog::MakeEditors() {
  parameters_.clear();
  inputs_.clear();
  refused_.clear();
  auto* body = new QWidget;
  auto* layout = new QVBoxLayout(body);
  const auto changed = [this] {
    memory_.values[memory_.app] = form_->values();
    refused_.clear();
    Say({}, false);
    Check();
  };
  for (const v1::InputSpec& spec : form_->workflow().inputs()) {
    auto* editor = new InputEditor(spec, body);
    inputs_[spec.name()] = editor;
    layout->addWidget(editor);
    const auto known = form_->values().inputs.find(spec.name());
    if (known != form_->values().inputs.end()) editor->Show(known->second);
    connect(editor, &InputEditor::Chosen, this,
            [this, changed, name = spec.name()](const InputFile& file) {
              form_->SetInput(name, file);
              changed();
            });
    connect(editor, &InputEditor::Removed, this, [this, changed, name = spec.name()] {
      form_->ClearInput(name);
      changed();
    });
  }
  for (const v1::ParameterSpec& spec : form_->workflow().parameters()) {
    auto* editor = new ParameterEditor(spec, form_->Text(spec.name()), body);
    parameters_[spec.name()] = editor;
    layout->addWidget(editor);
    // A spin box that cannot show a value shows the nearest one. What is shown must be what is
    // sent.
    form_->Set(spec.name(), editor->text());
    connect(editor, &ParameterEditor::Changed, this,
            [this, changed, name = spec.name()](const std::string& text) {
              form_->Set(name, text);
              changed();
            });
  }
  if (inputs_.empty() && parameters_.empty()) {
    layout->addWidget(new QLabel(tr("It takes no parameters."), body));
  }
  layout->addStretch(1);
  area_->setWidget(body);  // Deletes the previous widget.
}

void SubmitDialog::Check() {
  if (form_ == nullptr) return;
  auto problems = form_->Violations();
  problems.insert(refused_.begin(), refused_.end());
  const auto why = [&](const std::string& name) {
    const auto at = problems.find(name);
    return at == problems.end() ? QString() : SafeText(at->second, 300);
  };
  for (const auto& [name, editor] : parameters_) editor->ShowProblem(why(name));
  for (const auto& [name, editor] : inputs_) editor->ShowProblem(why(name));
  line_->setText(form_->CommandLine());
  line_->setCursorPosition(0);
  const bool elsewhere = asked_of_ != shown_cluster_.connection();
  const QString why_not = elsewhere
                              ? tr("Another cluster is connected: this was for the one before")
                              : shown_cluster_.WhyNoChange(methods::kSubmitJob);
  submit_->setEnabled(!sending_ && problems.empty() && why_not.isEmpty());
  submit_->setToolTip(!why_not.isEmpty()  ? why_not
                      : !problems.empty() ? tr("Something is missing or wrong above")
                                          : tr("Ctrl+Enter"));
  if (sending_ || (uncertain_ && !elsewhere)) return;
  if (!why_not.isEmpty()) {
    Say(why_not, true);
  } else if (const auto all = problems.find(std::string()); all != problems.end()) {
    Say(SafeText(all->second, 500), true);
  }
}

void SubmitDialog::ShowQueue() {
  if (form_ == nullptr) return;
  const QString text = QueueNow(*shown_cluster_.snapshot(), form_->workflow().app_id());
  if (text != queue_->text()) queue_->setText(text);
}

void SubmitDialog::Submit() {
  if (form_ == nullptr || !submit_->isEnabled()) return;
  sending_ = true;
  Lock(true);
  Say(tr("Submitting…"), false);
  Check();
  // A request whose answer was lost may have made the job. It is not checked again: the same
  // request is sent again.
  shown_cluster_.Ask<Outcome>(
      this,
      [form = *form_, id = request_id_,
       check = !uncertain_](client::Client& client) -> absl::StatusOr<Outcome> {
        v1::SubmitJobRequest request = form.Request(id);
        if (check) {
          request.set_validate_only(true);
          auto checked = client.Submit(request);
          if (!checked.ok()) return Outcome{false, checked.status()};
          request.set_validate_only(false);
        }
        return Outcome{true, client.Submit(std::move(request))};
      },
      [this](absl::StatusOr<Outcome> outcome) {
        Answered(outcome.ok() ? *outcome : Outcome{false, outcome.status()});
      },
      tr("Submit a job of %1").arg(SafeText(form_->workflow().app_id(), 60)));
}

void SubmitDialog::Answered(const Outcome& outcome) {
  sending_ = false;
  const bool unseen = !isVisible();
  if (outcome.job.ok()) {
    uncertain_ = false;
    Q_EMIT Told(tr("Submitted %1").arg(SafeText(outcome.job->uid(), 64)));
    Q_EMIT Submitted(QString::fromStdString(outcome.job->uid()));
    accept();
    return;
  }
  const absl::Status& status = outcome.job.status();
  uncertain_ = (outcome.sent || uncertain_) && session::IsUncertain(status);
  Lock(uncertain_);
  submit_->setText(uncertain_ ? tr("Ask again") : tr("Submit job"));
  QString text;
  if (uncertain_) {
    text = tr("Whether the job was taken is not known: %1. Asking again repeats the same request "
              "and cannot make a second job.")
               .arg(SafeText(session::Explain(status), 300));
  } else {
    text = Refusal(status);
    refused_.clear();
    const base::ErrorReason reason = base::GetReason(status);
    if (reason.reason == "INVALID_PARAMETERS" || reason.reason == "INVALID_INPUTS") {
      for (const auto& [name, why] : reason.metadata) {
        if (parameters_.contains(name) || inputs_.contains(name)) refused_[name] = why;
      }
    }
  }
  Check();
  Say(text, true);
  if (!unseen) return;
  Q_EMIT Told(text);
  // If the outcome is uncertain, the dialog is shown again, to send the same request.
  if (!uncertain_) deleteLater();
}

void SubmitDialog::Lock(bool locked) {
  app_->setEnabled(!locked);
  if (area_->widget() != nullptr) area_->widget()->setEnabled(!locked);
}

void SubmitDialog::Say(const QString& text, bool bad) {
  QPalette colors = said_->palette();
  colors.setColor(QPalette::WindowText,
                  ToneColor(bad ? StatusTone::kBad : StatusTone::kNeutral, palette()));
  said_->setPalette(colors);
  said_->setText(bad && !text.isEmpty() ? ToneGlyph(StatusTone::kBad) + u' ' + text : text);
}

void SubmitDialog::reject() {
  // QDialog::reject() would emit finished(), which deletes the dialog (JobsView::Submit). The
  // answer goes to nobody then, and nobody hears whether the job was taken.
  if (sending_) {
    hide();
    return;
  }
  QDialog::reject();
}

}  // namespace onepiece::gui
