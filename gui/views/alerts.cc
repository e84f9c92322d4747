#include "gui/views/alerts.h"

#include <QApplication>
#include <QComboBox>
#include <QDateTimeEdit>
#include <QDialog>
#include <QDialogButtonBox>
#include <QFormLayout>
#include <QLineEdit>
#include <QListWidget>
#include <QVBoxLayout>

#include "gui/views/prompts.h"

namespace onepiece::gui {
namespace {

/// "Show when it began" goes to an instant this long before the alert, so that what led to it is
/// visible.
constexpr std::int64_t kBeforeMs = 30'000;

class SilenceDialog : public QDialog {
 public:
  using Yes = std::function<void(std::int64_t until_ms, const QString& reason)>;

  SilenceDialog(QWidget* parent, const QStringList& alerts, Yes yes)
      : QDialog(parent),
        length_(new QComboBox(this)),
        until_(new QDateTimeEdit(QDateTime::currentDateTime().addSecs(3600), this)),
        reason_(new QLineEdit(this)),
        note_(new QLabel(this)) {
    setObjectName(QStringLiteral("silence"));
    setAttribute(Qt::WA_DeleteOnClose);
    setWindowTitle(tr("Silence"));
    setMinimumWidth(fontMetrics().averageCharWidth() * 60);
    auto* what = new QListWidget(this);
    what->addItems(alerts);
    what->setAccessibleName(tr("Alerts that are silenced"));
    what->setSelectionMode(QAbstractItemView::NoSelection);
    what->setMaximumHeight((fontMetrics().height() + 4) * 6);
    note_->setWordWrap(true);
    auto* buttons = new QDialogButtonBox(this);
    go_ = buttons->addButton(
        alerts.size() == 1 ? tr("Silence 1 alert") : tr("Silence %1 alerts").arg(alerts.size()),
        QDialogButtonBox::AcceptRole);
    go_->setObjectName(QStringLiteral("silence.yes"));
    go_->setAutoDefault(false);
    buttons->addButton(QDialogButtonBox::Cancel)->setDefault(true);
    auto* layout = new QVBoxLayout(this);
    layout->addWidget(what);
    layout->addLayout(MakeForm());
    layout->addWidget(note_);
    layout->addWidget(buttons);
    connect(buttons, &QDialogButtonBox::rejected, this, &QDialog::reject);
    connect(buttons, &QDialogButtonBox::accepted, this, &QDialog::accept);
    connect(this, &QDialog::accepted, this, [this, yes = std::move(yes)] {
      yes(until_->dateTime().toMSecsSinceEpoch(), reason_->text().trimmed());
    });
    Check();
    reason_->setFocus();
  }

 private:
  QFormLayout* MakeForm() {
    for (const auto& [text, minutes] : {std::pair(tr("15 minutes"), 15),
                                        {tr("1 hour"), 60},
                                        {tr("4 hours"), 240},
                                        {tr("1 day"), 1440},
                                        {tr("until…"), 0}}) {
      length_->addItem(text, minutes);
    }
    length_->setCurrentIndex(1);
    length_->setAccessibleName(tr("For how long"));
    until_->setAccessibleName(tr("Until"));
    until_->setDisplayFormat(QStringLiteral("yyyy-MM-dd HH:mm"));
    reason_->setObjectName(QStringLiteral("silence.reason"));
    reason_->setAccessibleName(tr("Reason"));
    reason_->setMaxLength(200);
    connect(length_, &QComboBox::currentIndexChanged, this, [this] { Check(); });
    connect(until_, &QDateTimeEdit::dateTimeChanged, this, [this] {
      if (until_->isEnabled()) Check();
    });
    connect(reason_, &QLineEdit::textChanged, this, [this] { Check(); });
    auto* form = new QFormLayout;
    form->addRow(tr("For"), length_);
    form->addRow(tr("Until"), until_);
    form->addRow(tr("Reason"), reason_);
    return form;
  }

  void Check() {
    const int minutes = length_->currentData().toInt();
    until_->setEnabled(minutes == 0);
    if (minutes != 0) until_->setDateTime(QDateTime::currentDateTime().addSecs(minutes * 60));
    QString why;
    if (until_->dateTime() <= QDateTime::currentDateTime()) {
      why = tr("A silence ends in the future.");
    } else if (reason_->text().trimmed().isEmpty()) {
      why = tr("A reason is missing.");
    }
    note_->setText(why.isEmpty() ? tr("They are not counted until then, and fire again after it.")
                                 : why);
    go_->setEnabled(why.isEmpty());
  }

  QComboBox* length_;
  QDateTimeEdit* until_;
  QLineEdit* reason_;
  QLabel* note_;
  QPushButton* go_ = nullptr;
};

}  // namespace

AlertsView::AlertsView(ShownCluster& shown_cluster, QWidget* parent)
    : ListPage(QStringLiteral("alerts"), tr("Alerts"), shown_cluster, parent),
      table_(std::make_unique<KeyedTable<AlertRow>>(
          AlertColumns(),
          [](const AlertRow& row) { return QString::fromStdString(row.alert.id); })),
      seen_(new QPushButton(tr("Acknowledge"), this)),
      silence_(new QPushButton(tr("Silence…"), this)),
      began_(new QPushButton(tr("Show when it began"), this)) {
  SetModel(table_.get());
  panel()->FitColumns(60);  // The column "What" holds a sentence.
  panel()->SetEmptyText(tr("Nothing fires, and nothing has fired in the last hour."));
  for (QPushButton* button : {seen_, silence_, began_}) head()->addWidget(button);
  connect(seen_, &QPushButton::clicked, this, &AlertsView::Acknowledge);
  connect(silence_, &QPushButton::clicked, this, &AlertsView::Silence);
  connect(began_, &QPushButton::clicked, this, &AlertsView::ShowBeginning);
  connect(panel(), &TablePanel::Current, this, [this] {
    if (isVisible()) Draw(*this->shown_cluster().snapshot());
  });
  connect(panel(), &TablePanel::Activated, this, [this] {
    const session::Alert* alert = Current();
    if (alert == nullptr) return;
    const QString entity = QString::fromStdString(alert->entity);
    Q_EMIT Wanted(entity == u"cluster" ? QStringLiteral("replicas") : QString(),
                  entity == u"cluster" ? QString() : entity);
  });
  connect(&this->shown_cluster(), &ShownCluster::Changed, this, &AlertsView::Count);
  Enable();
}

QString AlertsView::Help() const {
  return tr(
      "What the alert rules say, looked at every second.\n\n"
      "A rule that holds is pending until it has held for long enough, then it fires. “No data” "
      "means that nobody can tell, “error” that the rule cannot be computed: neither of them is "
      "well. What is over stays for an hour.\n\n"
      "“Acknowledge” says that you have seen it; it silences nothing and ends with the alert. “"
      "Silence…” takes it out of the count until a time that you give, with a reason. Both are "
      "of this console: they are written into its recording and taken from there when it starts "
      "again, and other consoles do not see them.\n\n"
      "“Show when it began” takes every page to 30 seconds before, and opens what it is about. "
      "Enter opens that without leaving now.");
}

std::vector<Command> AlertsView::Commands() {
  return {{QStringLiteral("alert.acknowledge"),
           tr("Acknowledge the alert"),
           {},
           {},
           false,
           [this] { Acknowledge(); }},
          {QStringLiteral("alert.silence"),
           tr("Silence the alert…"),
           {},
           {},
           false,
           [this] { Silence(); }},
          {QStringLiteral("alert.began"), tr("Show when the alert began"), {}, {}, false, [this] {
             ShowBeginning();
           }}};
}

void AlertsView::Draw(const session::Snapshot& snapshot) {
  std::vector<AlertRow> rows;
  if (snapshot.alerts.value != nullptr) rows = AlertRows(*snapshot.alerts.value, snapshot.at_ms);
  if (snapshot.alerts.value == nullptr) {
    Say(tr("No rule was looked at yet."), StatusTone::kUnknown,
        SafeText(snapshot.alerts.error, 300));
  } else {
    const AlertCounts counts = CountAlerts(rows);
    // The columns have no room for the whole text.
    const int row = table_->RowOf(panel()->current());
    Say(AlertsInWords(counts), ToneOf(counts),
        row >= 0            ? SafeText(table_->at(row).alert.text, 500)
        : snapshot.recorded ? tr("As it was then.")
                            : SafeText(snapshot.alerts.error, 300));
  }
  table_->Update(std::move(rows), std::equal_to<AlertRow>());
  Enable();
}

void AlertsView::Count() {
  const session::Snapshot& snapshot = *shown_cluster().snapshot();
  if (snapshot.alerts.value == counted_ && counted_once_) return;
  counted_ = snapshot.alerts.value;
  counted_once_ = true;
  std::vector<AlertRow> rows;
  if (counted_ != nullptr) rows = AlertRows(*counted_, snapshot.at_ms);
  const int firing = CountAlerts(rows).firing;
  Q_EMIT Badge(firing == 0 ? QString() : QString::number(firing));
  if (!shown_cluster().live() || snapshot.recorded) return;
  QSet<QString> fires;
  for (const AlertRow& row : rows) {
    if (row.alert.state == session::Alert::State::kFiring && !row.silenced) {
      fires.insert(QString::fromStdString(row.alert.id));
    }
  }
  if (!(fires - fired_).isEmpty()) QApplication::alert(window());
  fired_ = fires;
}

const session::Alert* AlertsView::Current() const {
  const int row = table_->RowOf(panel()->current());
  return row < 0 ? nullptr : &table_->at(row).alert;
}

QString AlertsView::WhyNot() {
  if (shown_cluster().desk() == nullptr) return tr("Alerts of a recording are only looked at.");
  if (!shown_cluster().live()) return tr("Viewing the past: press L to go live.");
  return Current() == nullptr ? tr("Choose an alert first.") : QString();
}

void AlertsView::Enable() {
  const QString why = WhyNot();
  for (QPushButton* button : {seen_, silence_}) {
    button->setEnabled(why.isEmpty());
    button->setToolTip(why);
    button->setAccessibleDescription(why);
  }
  const bool possible = Current() != nullptr && shown_cluster().recording() != nullptr;
  began_->setEnabled(possible);
  began_->setToolTip(possible
                         ? tr("Every page shows 30 s before it, and what it is about is opened")
                     : Current() == nullptr ? tr("Choose an alert first.")
                                            : tr("Nothing is being recorded."));
}

void AlertsView::TellDesk(const QString& what, const QStringList& ids, Call call) {
  shown_cluster().Work<bool>(
      this,
      [desk = shown_cluster().desk(), ids, call = std::move(call)]() -> absl::StatusOr<bool> {
        for (const QString& id : ids) {
          if (const absl::Status status = call(*desk, id.toStdString()); !status.ok())
            return status;
        }
        return true;
      },
      [this, what](const absl::StatusOr<bool>& done) {
        if (!done.ok()) return TellFailure(this, what, done.status());
        Q_EMIT Told(tr("%1: done.").arg(what));
      });
}

void AlertsView::Acknowledge() {
  if (const QString why = WhyNot(); !why.isEmpty()) {
    Q_EMIT Told(why);
    return;
  }
  const QStringList ids = panel()->selected();
  TellDesk(tr("Acknowledge %1 alerts").arg(ids.size()), ids,
           [who = Actor()](AlertDesk& desk, const std::string& id) {
             return desk.Acknowledge(id, who);
           });
}

void AlertsView::Silence() {
  if (const QString why = WhyNot(); !why.isEmpty()) {
    Q_EMIT Told(why);
    return;
  }
  // The dialog is bound to the alerts selected now, whatever is selected when it is accepted.
  const QStringList ids = panel()->selected();
  QStringList shown;
  for (const QString& id : ids) shown << SafeText(id.toStdString(), 120);
  const auto yes = [this, ids](std::int64_t until_ms, const QString& reason) {
    if (shown_cluster().desk() == nullptr) return;
    TellDesk(tr("Silence %1 alerts").arg(ids.size()), ids,
             [until_ms, why = reason.toStdString()](AlertDesk& desk, const std::string& id) {
               return desk.Silence(id, until_ms, why);
             });
  };
  (new SilenceDialog(this, shown, yes))->open();
}

void AlertsView::ShowBeginning() {
  const session::Alert* alert = Current();
  if (alert == nullptr) {
    Q_EMIT Told(tr("Choose an alert first."));
    return;
  }
  const QString entity = QString::fromStdString(alert->entity);
  const std::int64_t since_ms = alert->since_ms;
  absl::Status status = shown_cluster().ViewAt(since_ms - kBeforeMs);
  // The recording may begin less than kBeforeMs before the alert.
  if (!status.ok()) status = shown_cluster().ViewAt(since_ms);
  if (!status.ok()) return TellFailure(this, tr("Show when it began"), status);
  Q_EMIT Wanted(entity == u"cluster" ? QStringLiteral("replicas") : QString(),
                entity == u"cluster" ? QString() : entity);
}

}  // namespace onepiece::gui
