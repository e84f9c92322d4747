#include "gui/views/job_filters.h"

#include <QHBoxLayout>
#include <QLocale>
#include <QMenu>
#include <QSignalBlocker>
#include <QVBoxLayout>
#include <array>
#include <utility>

#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

constexpr std::array kStates = {v1::Job::QUEUED, v1::Job::RUNNING,   v1::Job::SUCCEEDED,
                                v1::Job::FAILED, v1::Job::CANCELLED, v1::Job::EXPIRED};

QString Number(int number) { return QLocale().toString(number); }

}  // namespace

JobFilterBar::JobFilterBar(QWidget* parent)
    : QWidget(parent),
      states_(new QToolButton(this)),
      app_(AddChoice(tr("Application"), tr("All applications"))),
      set_(AddChoice(tr("Workflow set"), tr("All sets"))),
      created_(AddChoice(tr("Created"), tr("Created at any time"))),
      label_(AddChoice(tr("Label"), tr("All labels"))),
      count_(new QLabel(this)),
      clear_(new QPushButton(tr("Clear filters"), this)) {
  AddStates();
  const std::array<std::pair<QString, int>, 4> times = {{{tr("Created in the last 15 min"), 900},
                                                         {tr("Created in the last hour"), 3600},
                                                         {tr("Created in the last day"), 86400},
                                                         {tr("Created in the last week"), 604800}}};
  for (const auto& [text, seconds] : times) created_->addItem(text, seconds);
  label_->hide();
  count_->setTextFormat(Qt::PlainText);
  count_->setWordWrap(true);
  clear_->setObjectName(QStringLiteral("jobs.clear"));
  clear_->hide();
  auto* choices = new QHBoxLayout;
  for (QWidget* widget : std::initializer_list<QWidget*>{states_, app_, set_, created_, label_}) {
    choices->addWidget(widget);
  }
  choices->addStretch(1);
  auto* counts = new QHBoxLayout;
  counts->addWidget(count_, 1);
  counts->addWidget(clear_);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addLayout(choices);
  layout->addLayout(counts);
  connect(clear_, &QPushButton::clicked, this, &JobFilterBar::Clear);
}

QComboBox* JobFilterBar::AddChoice(const QString& name, const QString& all) {
  auto* box = new QComboBox(this);
  box->setAccessibleName(name);
  box->setObjectName(QStringLiteral("jobs.filter.%1").arg(name.toLower().section(u' ', 0, 0)));
  box->setSizeAdjustPolicy(QComboBox::AdjustToContents);
  box->setMaximumWidth(fontMetrics().averageCharWidth() * 32);
  box->addItem(all, QString());
  connect(box, &QComboBox::currentIndexChanged, this, &JobFilterBar::Read);
  return box;
}

void JobFilterBar::AddStates() {
  states_->setPopupMode(QToolButton::InstantPopup);
  states_->setToolButtonStyle(Qt::ToolButtonTextOnly);
  states_->setObjectName(QStringLiteral("jobs.filter.state"));
  states_->setSizePolicy(QSizePolicy::Preferred, QSizePolicy::Preferred);
  auto* menu = new QMenu(states_);
  for (const v1::Job::State state : kStates) {
    QAction* action = menu->addAction(JobStateName(state));
    action->setCheckable(true);
    action->setData(static_cast<int>(state));
    connect(action, &QAction::toggled, this, &JobFilterBar::Read);
    state_actions_.push_back(action);
  }
  states_->setMenu(menu);
  NameStates();
}

void JobFilterBar::NameStates() {
  QStringList names;
  for (const QAction* action : state_actions_) {
    if (action->isChecked())
      names.append(JobStateName(static_cast<v1::Job::State>(action->data().toInt())));
  }
  const QString text = names.isEmpty() ? tr("All states") : names.join(QStringLiteral(", "));
  states_->setText(text);
  states_->setAccessibleName(tr("State: %1").arg(text));
}

void JobFilterBar::SetText(const QString& text) {
  if (text == filter_.text) return;
  filter_.text = text;
  Q_EMIT Changed();
}

void JobFilterBar::Read() {
  if (filling_) return;
  filter_.states = 0;
  for (const QAction* action : state_actions_) {
    if (action->isChecked()) filter_.states |= 1u << action->data().toInt();
  }
  filter_.app = app_->currentData().toString().toStdString();
  filter_.set = set_->currentData().toString().toStdString();
  filter_.label = label_->currentData().toString().toStdString();
  filter_.newest_s = created_->currentData().toInt();
  NameStates();
  Q_EMIT Changed();
}

void JobFilterBar::Clear() {
  filling_ = true;
  for (QAction* action : state_actions_) action->setChecked(false);
  for (QComboBox* box : {app_, set_, created_, label_}) box->setCurrentIndex(0);
  filling_ = false;
  filter_.text.clear();
  Read();
  Q_EMIT Cleared();
}

void JobFilterBar::Offer(QComboBox* box, const QStringList& values) {
  // The chosen value stays a choice, even if the list does not hold it any more.
  const QString chosen = box->currentData().toString();
  QStringList wanted = values;
  if (!chosen.isEmpty() && !wanted.contains(chosen)) wanted.append(chosen);
  bool same = box->count() == wanted.size() + 1;
  for (int i = 0; same && i < wanted.size(); ++i) same = box->itemData(i + 1) == wanted[i];
  if (same) return;
  filling_ = true;
  while (box->count() > 1) box->removeItem(1);
  for (const QString& value : wanted) box->addItem(SafeText(value.toStdString(), 60), value);
  box->setCurrentIndex(std::max(0, box->findData(chosen)));
  filling_ = false;
}

void JobFilterBar::Show(const JobArrangement& arrangement) {
  Offer(app_, arrangement.apps);
  Offer(set_, arrangement.sets);
  Offer(label_, arrangement.labels);
  label_->setVisible(label_->count() > 1);
  QStringList states;
  for (QAction* action : state_actions_) {
    const auto state = static_cast<v1::Job::State>(action->data().toInt());
    const int count = arrangement.counts[static_cast<std::size_t>(state)];
    action->setText(QStringLiteral("%1 (%2)").arg(JobStateName(state), Number(count)));
    if (count > 0) states.append(QStringLiteral("%1 %2").arg(Number(count), JobStateName(state)));
  }
  const int all = arrangement.list == nullptr ? 0 : static_cast<int>(arrangement.list->jobs.size());
  const int shown = static_cast<int>(arrangement.rows.size());
  const int filters = filter_.count();
  QString text;
  if (filters == 0) {
    text = all == 0 ? QString()
                    : tr("Jobs: %1 (%2)").arg(Number(all), states.join(QStringLiteral(", ")));
  } else {
    const QString by = filters == 1 ? tr("1 filter") : tr("%1 filters").arg(filters);
    text = shown == 0
               ? tr("No job matches. %1 hidden by %2.").arg(Number(all - shown), by)
               : tr("%1 shown, %2 hidden by %3.").arg(Number(shown), Number(all - shown), by);
  }
  count_->setText(text);
  clear_->setVisible(filters > 0);
}

}  // namespace onepiece::gui
