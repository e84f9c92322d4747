#include "gui/views/logs.h"

#include <QActionGroup>
#include <QMenu>
#include <QScrollBar>
#include <QTableView>
#include <algorithm>

#include "cluster/base/clock.h"

namespace onepiece::gui {
namespace {

constexpr int kTakeMs = 200;
// Lines of the past that a tail begins with, for each process.
constexpr int kBacklog = 200;
constexpr int kJobColumn = 3;

std::int64_t NowMs() { return base::ToUnixMs(base::SystemClock().WallNow()); }

}  // namespace

LogsView::LogsView(ShownCluster& shown_cluster, QWidget* parent)
    : ListPage(QStringLiteral("logs"), tr("Logs"), shown_cluster, parent),
      table_(std::make_unique<KeyedTable<std::shared_ptr<const LogRow>>>(
          LogColumns(),
          [](const std::shared_ptr<const LogRow>& row) { return QString::number(row->number); })),
      processes_(new QToolButton(this)),
      level_(new QComboBox(this)),
      regex_(new QCheckBox(tr("Filter is an expression"), this)),
      hidden_too_(new QCheckBox(tr("Also while hidden"), this)),
      pause_(new QPushButton(tr("Pause"), this)) {
  processes_->setText(tr("All processes"));
  processes_->setAccessibleName(tr("Processes that are followed"));
  processes_->setToolButtonStyle(Qt::ToolButtonTextOnly);
  connect(processes_, &QToolButton::clicked, this, &LogsView::ChooseProcesses);
  level_->setAccessibleName(tr("At least this grave"));
  level_->setToolTip(level_->accessibleName());
  for (const auto level : {v1::LOG_DEBUG, v1::LOG_INFO, v1::LOG_WARNING, v1::LOG_ERROR}) {
    level_->addItem(LogLevelName(level), static_cast<int>(level));
  }
  level_->setCurrentIndex(1);
  regex_->setToolTip(tr("The text of the filter (/) is a regular expression"));
  hidden_too_->setToolTip(
      tr("Goes on following while another page is shown; otherwise nobody is asked then"));
  pause_->setCheckable(true);
  pause_->setToolTip(tr("Holds the list; up to 20 000 lines wait"));
  for (QWidget* control :
       std::initializer_list<QWidget*>{processes_, level_, regex_, hidden_too_, pause_}) {
    head()->addWidget(control);
  }
  SetModel(table_.get());
  connect(level_, &QComboBox::currentIndexChanged, this, [this] {
    // Servers send debug lines only if the tail asks for them, so it begins anew.
    const bool debug = level_->currentData().toInt() == v1::LOG_DEBUG;
    if (tail_ != nullptr && debug) {
      End();
      Begin();
    }
    ApplyFilter();
  });
  connect(regex_, &QCheckBox::toggled, this, &LogsView::ApplyFilter);
  connect(pause_, &QPushButton::toggled, this, &LogsView::SetPaused);
  connect(&take_, &QTimer::timeout, this, &LogsView::Take);
  take_.setInterval(kTakeMs);
  tailing_.setMaxThreadCount(1);
  const auto open_job = [this](const QString& key) {
    const int row = table_->RowOf(key);
    if (row < 0 || table_->at(row)->job.isEmpty()) return;
    Q_EMIT Wanted(QStringLiteral("jobs"), QStringLiteral("job/") + table_->at(row)->job);
  };
  connect(panel(), &TablePanel::Activated, this, open_job);
  connect(panel()->table(), &QTableView::clicked, this, [open_job](const QModelIndex& index) {
    if (index.column() == kJobColumn) open_job(index.data(kKeyRole).toString());
  });
}

LogsView::~LogsView() { End(); }

QString LogsView::Help() const {
  return tr(
      "What the processes log, in the order of time: of all of them, or of those that you choose; "
      "at most 64. `onepiece logs --follow` prints the same.\n\n"
      "“Gap” lines say what is missing: lines that were dropped because more came than could be "
      "taken, and processes that cannot be read. 20 000 lines are kept; then the oldest go, and "
      "the line above the list says how many.\n\n"
      "The filter (/) keeps lines that contain its text, or match it as a regular expression. A "
      "line that names a job has its number in the column “Job”: a click, or Enter, opens it.\n\n"
      "Where a process's clock is more than a second from this machine's, that is said, and its "
      "lines are put where they belong.\n\n"
      "Logs are not recorded: while the past is shown, this page still shows now. Processes are "
      "asked only while the page is seen, or “Also while hidden” is set.");
}

std::vector<Command> LogsView::Commands() {
  return {{QStringLiteral("logs.pause"),
           tr("Pause or resume the logs"),
           QStringLiteral("onepiece logs --follow"),
           {},
           false,
           [this] { pause_->toggle(); }}};
}

void LogsView::Focus(const QString& entity) {
  if (entity.section(u'/', 0, 0) != u"node") return;
  chosen_ = {entity.section(u'/', 1)};
  Follow();
}

void LogsView::SetFilter(const QString& text) {
  text_ = text;
  ApplyFilter();
}

void LogsView::ApplyFilter() {
  LogLines::Filter filter;
  filter.min_level = static_cast<v1::LogLevel>(level_->currentData().toInt());
  filter.text = text_;
  filter.regex = regex_->isChecked() && !text_.isEmpty();
  bad_expression_ = lines_.SetFilter(filter);
  ShowLines();
  Draw(*shown_cluster().snapshot());
}

void LogsView::Begin() {
  if (tail_ != nullptr || shown_cluster().session() == nullptr) return;
  const auto wanted = static_cast<v1::LogLevel>(level_->currentData().toInt());
  // Levels above INFO only filter what has come. So a lower level shows those lines at once.
  tail_ = std::make_shared<session::LogTail>(std::min(wanted, v1::LOG_INFO), kBacklog,
                                             session::SessionOptions().user_agent);
  followed_.clear();
  Follow();
  take_.start();
}

void LogsView::End() {
  take_.stop();
  if (tail_ == nullptr) return;
  // The destructor of LogTail waits for its threads, and the GUI thread must not.
  tailing_.start([tail = std::move(tail_)]() mutable { tail.reset(); });
  tail_ = nullptr;
}

void LogsView::Follow() {
  if (tail_ == nullptr || shown_cluster().session() == nullptr) return;
  std::vector<v1::Node> nodes = shown_cluster().session()->Nodes();
  std::erase_if(nodes, [this](const v1::Node& node) {
    return !chosen_.isEmpty() && !chosen_.contains(QString::fromStdString(node.node_id()));
  });
  left_out_ = std::max(
      0, static_cast<int>(nodes.size()) - static_cast<int>(session::LogTail::kMaxProcesses));
  decltype(followed_) wanted;
  for (const v1::Node& node : nodes) {
    wanted.emplace_back(node.node_id(), node.incarnation(), node.address());
  }
  std::ranges::sort(wanted);
  if (wanted == followed_) return;
  followed_ = std::move(wanted);
  tailing_.start([tail = tail_, nodes = std::move(nodes)] { tail->Follow(nodes); });
}

void LogsView::Take() {
  Follow();
  if (pause_->isChecked() || tail_ == nullptr) return;
  lines_.Take(tail_->Take(), NowMs());
  ShowLines();
  if (isVisible()) Draw(*shown_cluster().snapshot());
}

void LogsView::ShowLines() {
  if (shown_changes_ == lines_.changes()) return;
  shown_changes_ = lines_.changes();
  QScrollBar* bar = panel()->table()->verticalScrollBar();
  const bool at_end = bar->value() == bar->maximum();
  table_->Update(lines_.Shown(), [](const auto& a, const auto& b) { return a == b; });
  // The table follows new lines only at its end. An operator who has scrolled up is reading.
  if (at_end) panel()->table()->scrollToBottom();
}

void LogsView::SetPaused(bool paused) {
  pause_->setText(paused ? tr("Resume") : tr("Pause"));
  if (!paused) Take();
}

void LogsView::ChooseProcesses() {
  QMenu menu(this);
  QAction* all = menu.addAction(tr("All processes"));
  all->setCheckable(true);
  all->setChecked(chosen_.isEmpty());
  menu.addSeparator();
  QList<QAction*> actions;
  if (shown_cluster().session() != nullptr) {
    for (const v1::Node& node : shown_cluster().session()->Nodes()) {
      QAction* action = menu.addAction(SafeText(node.node_id(), 60));
      action->setData(QString::fromStdString(node.node_id()));
      action->setCheckable(true);
      action->setChecked(chosen_.contains(action->data().toString()));
    }
  }
  const QAction* done = menu.exec(processes_->mapToGlobal(QPoint(0, processes_->height())));
  if (done == nullptr) return;
  if (done == all) {
    chosen_.clear();
  } else if (done->isChecked()) {
    chosen_.insert(done->data().toString());
  } else {
    chosen_.remove(done->data().toString());
  }
  Follow();
  Draw(*shown_cluster().snapshot());
}

void LogsView::Draw(const session::Snapshot& snapshot) {
  const auto& session = shown_cluster().session();
  if (connection_ != shown_cluster().connection()) {
    End();
    lines_.Clear();
    connection_ = shown_cluster().connection();
    chosen_.clear();
    ShowLines();
  }
  if (isVisible()) Begin();
  processes_->setText(chosen_.isEmpty()     ? tr("All processes")
                      : chosen_.size() == 1 ? SafeText(chosen_.begin()->toStdString(), 30)
                                            : tr("%1 processes").arg(chosen_.size()));
  if (session == nullptr) {
    panel()->SetEmptyText(tr("A recording holds no logs: connect to a cluster to read them."));
    Say(tr("Logs are not recorded."), StatusTone::kUnknown);
    return;
  }
  panel()->SetEmptyText(
      tr("Nobody has logged anything of this level yet, or the processes do not answer."));
  QStringList notes;
  if (!shown_cluster().live() || snapshot.recorded) {
    notes << tr("Logs are not recorded: these are of now, not of the instant that is shown.");
  }
  for (const auto& [id, skew_ms] : lines_.Skews()) {
    notes << (skew_ms > 0 ? tr("▲ The clock of %1 is %2 ahead of this machine's: its lines are put "
                               "where they belong.")
                          : tr("▲ The clock of %1 is %2 behind this machine's: its lines are put "
                               "where they belong."))
                 .arg(SafeText(id, 60),
                      FormatSeconds(std::abs(static_cast<double>(skew_ms)) * 1e-3));
  }
  if (left_out_ > 0) {
    notes << tr("%1 processes are not followed: at most %2 are. Choose which.")
                 .arg(left_out_)
                 .arg(session::LogTail::kMaxProcesses);
  }
  if (!bad_expression_.isEmpty()) notes << bad_expression_;
  const int shown = table_->rowCount(), all = static_cast<int>(lines_.size());
  QString text = shown == all ? tr("%1 lines").arg(all) : tr("%1 of %2 lines").arg(shown).arg(all);
  if (lines_.forgotten() > 0) {
    text += tr("; the oldest %1 are gone: %2 are kept")
                .arg(lines_.forgotten())
                .arg(LogLines::kMaxLines);
  }
  if (pause_->isChecked()) text += tr("; paused");
  Say(text + u'.', StatusTone::kNeutral, notes.join(u'\n'));
}

void LogsView::hideEvent(QHideEvent* event) {
  ListPage::hideEvent(event);
  if (!hidden_too_->isChecked()) End();
}

}  // namespace onepiece::gui
