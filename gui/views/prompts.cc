#include "gui/views/prompts.h"

#include <pwd.h>
#include <unistd.h>

#include <QApplication>
#include <QClipboard>
#include <QDialog>
#include <QDialogButtonBox>
#include <QLabel>
#include <QLineEdit>
#include <QListWidget>
#include <QMessageBox>
#include <QPushButton>
#include <QVBoxLayout>

#include "cluster/base/status.h"
#include "cluster/session/link.h"
#include "gui/models/format.h"
#include "gui/views/tone.h"

namespace onepiece::gui {
namespace {

class ConfirmDialog : public QDialog {
 public:
  ConfirmDialog(QWidget* parent, ShownCluster& shown_cluster, const Question& question)
      : QDialog(parent), shown_cluster_(shown_cluster), question_(question) {
    setWindowTitle(question.title);
    setObjectName(QStringLiteral("confirm"));
    setAttribute(Qt::WA_DeleteOnClose);
    const auto& session = shown_cluster.session();
    cluster_ = session != nullptr ? SafeText(session->target().name, 60) : QString();
    const bool production = session != nullptr && session->target().production;
    auto* layout = new QVBoxLayout(this);
    layout->addWidget(MakeHead(production));
    auto* text = Line(question.text);
    layout->addWidget(text);
    if (!question.targets.isEmpty()) layout->addWidget(MakeTargets());
    if (question.reason) reason_ = AddField(layout, tr("Reason, for the audit log"));
    if (question.risky) name_ = AddField(layout, tr("Type the cluster's name: %1").arg(cluster_));
    why_not_ = Line({});
    layout->addWidget(why_not_);
    auto* buttons = new QDialogButtonBox(this);
    yes_ = buttons->addButton(question.verb, QDialogButtonBox::AcceptRole);
    QPushButton* no =
        buttons->addButton(tr("Cancel, change nothing"), QDialogButtonBox::RejectRole);
    yes_->setAutoDefault(false);
    yes_->setObjectName(QStringLiteral("confirm.yes"));
    no->setObjectName(QStringLiteral("confirm.no"));
    no->setDefault(true);
    layout->addWidget(buttons);
    connect(buttons, &QDialogButtonBox::accepted, this, &QDialog::accept);
    connect(buttons, &QDialogButtonBox::rejected, this, &QDialog::reject);
    for (const auto signal : {&ShownCluster::LinkChanged, &ShownCluster::ModeChanged}) {
      connect(&shown_cluster, signal, this, [this] { Check(); });
    }
    Check();
    no->setFocus();
    setMinimumWidth(fontMetrics().averageCharWidth() * 60);
  }

  [[nodiscard]] QString reason() const {
    return reason_ != nullptr ? reason_->text().trimmed() : QString();
  }

 private:
  QLabel* Line(const QString& text) {
    auto* label = new QLabel(text, this);
    label->setTextFormat(Qt::PlainText);
    label->setWordWrap(true);
    return label;
  }

  QLabel* MakeHead(bool production) {
    QLabel* head = Line(production ? tr("%1\non PRODUCTION %2").arg(question_.title, cluster_)
                                   : tr("%1\non %2").arg(question_.title, cluster_));
    QFont bold = head->font();
    bold.setBold(true);
    head->setFont(bold);
    if (!production) return head;
    const BandColors colors = ProductionBand();
    QPalette palette = head->palette();
    palette.setColor(QPalette::Window, colors.ground);
    palette.setColor(QPalette::WindowText, colors.text);
    head->setPalette(palette);
    head->setAutoFillBackground(true);
    head->setMargin(6);
    return head;
  }

  QListWidget* MakeTargets() {
    auto* list = new QListWidget(this);
    list->setAccessibleName(tr("What it is done to"));
    list->addItems(question_.targets);
    list->setSelectionMode(QAbstractItemView::NoSelection);
    list->setWordWrap(true);
    list->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    // Each target has room for two lines, because pool names are long.
    const int rows = static_cast<int>(std::min<qsizetype>(question_.targets.size(), 5));
    list->setFixedHeight(rows * (2 * fontMetrics().height() + 4) + 8);
    return list;
  }

  QLineEdit* AddField(QVBoxLayout* layout, const QString& title) {
    auto* label = Line(title);
    auto* edit = new QLineEdit(this);
    edit->setMaxLength(200);
    edit->setAccessibleName(title);
    label->setBuddy(edit);
    layout->addWidget(label);
    layout->addWidget(edit);
    connect(edit, &QLineEdit::textChanged, this, [this] { Check(); });
    return edit;
  }

  void Check() {
    // The question was about another cluster.
    if (asked_of_ != shown_cluster_.connection()) return reject();
    QString why = shown_cluster_.WhyNoChange();
    if (why.isEmpty() && reason_ != nullptr && reason().isEmpty()) why = tr("A reason is missing.");
    if (why.isEmpty() && name_ != nullptr && name_->text() != cluster_) {
      why = tr("The cluster's name is missing.");
    }
    yes_->setEnabled(why.isEmpty());
    why_not_->setText(why);
  }

  ShownCluster& shown_cluster_;
  const int asked_of_ = shown_cluster_.connection();
  Question question_;
  QString cluster_;
  QLineEdit *reason_ = nullptr, *name_ = nullptr;
  QLabel* why_not_ = nullptr;
  QPushButton* yes_ = nullptr;
};

QString WhatToDo(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kPermissionDenied:
      if (base::GetReason(status).reason == "MISSING_SCOPE")
        return QObject::tr("Log in with an identity that has the scope: Connections (Ctrl+L).");
      return QObject::tr("This server takes no changes from here.");
    case absl::StatusCode::kResourceExhausted:
      return QObject::tr("The cluster is full: try again in a while.");
    case absl::StatusCode::kAborted:
      return QObject::tr("Something has changed meanwhile: look again, then repeat it.");
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return QObject::tr("Whether it was done is not known: look before you repeat it.");
    default:
      return {};
  }
}

}  // namespace

void Confirm(QWidget* parent, ShownCluster& shown_cluster, const Question& question,
             std::function<void(const QString& reason)> yes) {
  auto* dialog = new ConfirmDialog(parent, shown_cluster, question);
  QObject::connect(dialog, &QDialog::accepted, dialog,
                   [dialog, yes = std::move(yes)] { yes(dialog->reason()); });
  dialog->open();
}

void TellFailure(QWidget* parent, const QString& what, const absl::Status& status) {
  auto* box = new QMessageBox(QMessageBox::Warning, what, what, QMessageBox::Close, parent);
  box->setObjectName(QStringLiteral("failure"));
  box->setTextFormat(Qt::PlainText);
  box->setAttribute(Qt::WA_DeleteOnClose);
  const QString details = SafeText(session::Explain(status), 2000);
  const QString advice = WhatToDo(status);
  box->setInformativeText(advice.isEmpty() ? details : details + QStringLiteral("\n\n") + advice);
  for (auto* label : box->findChildren<QLabel*>()) label->setTextFormat(Qt::PlainText);
  QPushButton* copy = box->addButton(QObject::tr("Copy details"), QMessageBox::ActionRole);
  // QMessageBox closes on a click of any of its buttons. This one must leave the box open.
  copy->disconnect();
  QObject::connect(copy, &QPushButton::clicked, box, [what, details, status] {
    QApplication::clipboard()->setText(
        what + u'\n' + details + u'\n' +
        QString::fromStdString(absl::StatusCodeToString(status.code())));
  });
  box->open();
}

void EnableUnless(QAbstractButton* button, const QString& why_not, const QString& tip) {
  button->setEnabled(why_not.isEmpty());
  const QString& text = why_not.isEmpty() ? tip : why_not;
  if (button->toolTip() != SafeTip(text)) button->setToolTip(SafeTip(text));
  if (button->accessibleDescription() != text) button->setAccessibleDescription(text);
}

std::string Actor() {
  const passwd* user = getpwuid(geteuid());
  return std::string("operator:") +
         (user != nullptr ? std::string(user->pw_name) : std::to_string(geteuid()));
}

}  // namespace onepiece::gui
