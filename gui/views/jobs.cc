#include "gui/views/jobs.h"

#include <QApplication>
#include <QClipboard>
#include <QHeaderView>
#include <QItemSelection>
#include <QResizeEvent>
#include <QScrollBar>
#include <QVBoxLayout>
#include <algorithm>
#include <cmath>

#include "gui/models/job_wait.h"
#include "gui/models/keyed_table.h"
#include "gui/views/result_preview.h"
#include "gui/views/table_panel.h"

namespace onepiece::gui {
namespace {

/// A larger selection is lost when the model resets.
constexpr int kMaxHeld = 1000;
/// From this width on the detail stands beside the list, not below it.
constexpr int kWide = 1500;

std::int64_t ServersNow(const ShownCluster& shown_cluster, const session::Snapshot& snapshot) {
  if (snapshot.recorded) return snapshot.at_ms;
  return snapshot.at_ms +
         static_cast<std::int64_t>(std::llround(shown_cluster.link().clock_skew_s * 1000));
}

}  // namespace

JobsView::JobsView(ShownCluster& shown_cluster, QWidget* parent)
    : View(QStringLiteral("jobs"), tr("Jobs"), shown_cluster, parent),
      rows_(std::make_unique<JobRows>()),
      filters_(new JobFilterBar(this)),
      banner_(new QLabel(this)),
      splitter_(new QSplitter(Qt::Vertical, this)),
      detail_(new JobDetail(shown_cluster, this)),
      actions_(new JobActions(shown_cluster, *rows_, this)) {
  banner_->setTextFormat(Qt::PlainText);
  banner_->setWordWrap(true);
  banner_->setObjectName(QStringLiteral("jobs.banner"));
  banner_->hide();
  MakeList();
  splitter_->addWidget(table_);
  splitter_->addWidget(MakeDetail());
  splitter_->setChildrenCollapsible(false);
  splitter_->setStretchFactor(0, 1);
  splitter_->setStretchFactor(1, 1);
  splitter_->setSizes({450, 550});
  auto* layout = new QVBoxLayout(this);
  auto* top = new QHBoxLayout;
  top->addWidget(filters_, 1);
  new_ = AddAction(top, tr("New job…"), tr("Submit a job"), &JobsView::Submit);
  top->setAlignment(new_, Qt::AlignTop);
  layout->addLayout(top);
  layout->addWidget(banner_);
  layout->addWidget(splitter_, 1);
  connect(filters_, &JobFilterBar::Changed, this, [this] { rows_->SetFilter(filters_->filter()); });
  connect(detail_->result(), &ResultPreview::Told, this, &JobsView::Told);
  connect(actions_, &JobActions::Told, this, &JobsView::Told);
  connect(filters_, &JobFilterBar::Cleared, this, &JobsView::ClearFilterWanted);
  connect(rows_.get(), &JobRows::Arranged, this, [this] {
    filters_->Show(rows_->arrangement());
    SelectWanted();
    ShowDetail();
  });
  ShowActions();
}

QWidget* JobsView::MakeDetail() {
  auto* part = new QWidget(this);
  auto* buttons = new QHBoxLayout;
  cancel_ = AddAction(buttons, tr("Cancel…"), tr("Cancel the selected jobs"), &JobsView::Cancel);
  clone_ = AddAction(buttons, tr("Clone…"), tr("Submit a job like this one"), &JobsView::Clone);
  save_ = AddAction(buttons, tr("Save result…"), tr("Save the result of this job"),
                    &JobsView::SaveResult);
  delete_ = AddAction(buttons, tr("Delete…"), tr("Forget the selected jobs and their results"),
                      &JobsView::Delete);
  buttons->addStretch(1);
  auto* layout = new QVBoxLayout(part);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addLayout(buttons);
  layout->addWidget(detail_, 1);
  return part;
}

QPushButton* JobsView::AddAction(QLayout* layout, const QString& text, const QString& tip,
                                 void (JobsView::*run)()) {
  auto* button = new QPushButton(text, this);
  button->setAccessibleName(tip);
  button->setObjectName(QStringLiteral("jobs.do.%1").arg(text.toLower().remove(u'…')));
  layout->addWidget(button);
  connect(button, &QPushButton::clicked, this, run);
  return button;
}

void JobsView::MakeList() {
  // Connected before the table is. The current row changes when its row is removed, and no operator
  // has chosen that.
  connect(rows_.get(), &QAbstractItemModel::rowsAboutToBeRemoved, this,
          [this] { changing_ = true; });
  connect(rows_.get(), &QAbstractItemModel::modelAboutToBeReset, this, [this] {
    changing_ = true;
    KeepSelection();
  });
  table_ = MakeTable(QStringLiteral("jobs"), rows_.get(), this);
  table_->setSelectionMode(QAbstractItemView::ExtendedSelection);
  connect(rows_.get(), &QAbstractItemModel::rowsRemoved, this, [this] { changing_ = false; });
  connect(rows_.get(), &QAbstractItemModel::modelReset, this, [this] {
    changing_ = false;
    if (!held_.isEmpty()) {
      QItemSelection selection;
      for (const QString& uid : std::exchange(held_, {})) {
        const int row = rows_->RowOf(uid);
        if (row >= 0) selection.select(rows_->index(row, 0), rows_->index(row, kJobColumns - 1));
      }
      table_->selectionModel()->select(selection, QItemSelectionModel::ClearAndSelect);
    }
  });
  connect(table_->selectionModel(), &QItemSelectionModel::currentRowChanged, this,
          &JobsView::OnCurrent);
  connect(table_, &QTableView::activated, this, [this](const QModelIndex& index) {
    Q_EMIT Wanted(QString(), QStringLiteral("job/") + index.data(kKeyRole).toString());
  });
  const int letter = fontMetrics().averageCharWidth();
  const std::array<int, kJobColumns> letters = {20, 16, 16, 44, 11, 13, 11, 11, 13, 18, 40};
  QHeaderView* header = table_->horizontalHeader();
  for (int column = 0; column < kJobColumns; ++column) {
    header->resizeSection(column, letters[static_cast<std::size_t>(column)] * letter);
  }
  header->setStretchLastSection(true);
  table_->setColumnHidden(static_cast<int>(JobColumn::kLabels), true);
}

void JobsView::KeepSelection() {
  held_.clear();
  const QModelIndexList selected = table_->selectionModel()->selectedRows();
  if (selected.size() > kMaxHeld) return;
  for (const QModelIndex& index : selected) held_.append(index.data(kKeyRole).toString());
}

void JobsView::OnCurrent(const QModelIndex& index) {
  if (changing_ || !index.isValid()) return;
  watched_ = index.data(kKeyRole).toString();
  wanted_.clear();
  rows_->Watch(watched_);
}

void JobsView::Focus(const QString& entity) {
  if (entity.section(u'/', 0, 0) != u"job") return;
  watched_ = entity.section(u'/', 1);
  wanted_ = watched_;
  rows_->Watch(watched_);
  SelectWanted();
  // Commands act on the selection first. It is emptied, so that they act on the job that is shown.
  if (!wanted_.isEmpty()) table_->selectionModel()->clear();
  ShowDetail();
}

void JobsView::SelectWanted() {
  if (wanted_.isEmpty()) return;
  const int row = rows_->RowOf(wanted_);
  if (row < 0) return;
  const QString uid = std::exchange(wanted_, QString());
  const QModelIndex index = rows_->index(row, 0);
  table_->setCurrentIndex(index);
  table_->scrollTo(index);
  watched_ = uid;
}

void JobsView::SetFilter(const QString& text) { filters_->SetText(text); }

std::vector<std::shared_ptr<const v1::Job>> JobsView::Targets() const {
  std::vector<int> rows;
  for (const QModelIndex& index : table_->selectionModel()->selectedRows()) {
    rows.push_back(index.row());
  }
  std::sort(rows.begin(), rows.end());
  rows.resize(std::min<std::size_t>(rows.size(), JobActions::kMaxTargets + 1));
  std::vector<std::shared_ptr<const v1::Job>> jobs;
  for (const int row : rows) jobs.push_back(std::make_shared<v1::Job>(*rows_->at(row).job));
  if (jobs.empty() && detail_->job() != nullptr) jobs.push_back(detail_->job());
  return jobs;
}

void JobsView::Cancel() { actions_->Cancel(Targets()); }

void JobsView::Delete() { actions_->Delete(Targets()); }

void JobsView::SaveResult() { detail_->result()->Save(); }

void JobsView::CopyUids() {
  QStringList uids;
  for (const auto& job : Targets()) uids.append(QString::fromStdString(job->uid()));
  if (uids.isEmpty()) return;
  QApplication::clipboard()->setText(uids.join(u'\n'));
  Q_EMIT Told(uids.size() == 1 ? tr("Uid copied") : tr("%1 uids copied").arg(uids.size()));
}

void JobsView::Submit() {
  auto* dialog = findChild<SubmitDialog*>();
  if (dialog == nullptr) {
    dialog = new SubmitDialog(shown_cluster(), memory_, this);
    connect(dialog, &SubmitDialog::Told, this, &JobsView::Told);
    connect(dialog, &SubmitDialog::Submitted, this,
            [this](const QString& uid) { Focus(QStringLiteral("job/") + uid); });
    connect(dialog, &QDialog::finished, dialog, &QObject::deleteLater);
  }
  dialog->show();
  dialog->raise();
  dialog->activateWindow();
}

void JobsView::Clone() {
  const auto job = detail_->job();
  if (job == nullptr) {
    Q_EMIT Told(tr("Select the job to clone first"));
    return;
  }
  if (findChild<SubmitDialog*>() != nullptr) {
    Q_EMIT Told(tr("A job is being submitted already: close that dialog first"));
    return;
  }
  memory_.app = job->app_id();
  memory_.values[job->app_id()] = ValuesOf(*job);
  Submit();
  auto* dialog = findChild<SubmitDialog*>();
  QString note = tr("As job %1.").arg(SafeText(job->uid(), 64));
  if (dialog->form() == nullptr || dialog->form()->workflow().app_id() != job->app_id()) {
    note = tr("The cluster does not know the application of job %1 any more: %2.")
               .arg(SafeText(job->uid(), 64), SafeText(job->app_id(), 63));
  } else if (!job->inputs().empty()) {
    note += u' ' + tr("The cluster does not keep the files of a job: choose them again.");
  }
  dialog->SetNote(note);
}

void JobsView::ShowActions() {
  const QString no_submit = shown_cluster().WhyNoChange(methods::kSubmitJob);
  const QString no_cancel = shown_cluster().WhyNoChange(methods::kCancelJob);
  const QString no_delete = shown_cluster().WhyNoChange(methods::kDeleteJob);
  const QString no_fetch = shown_cluster().WhyForbidden(methods::kFetchResult);
  const bool any = detail_->job() != nullptr || table_->selectionModel()->hasSelection();
  const auto set = [&](QPushButton* button, const QString& why) {
    button->setEnabled(why.isEmpty());
    button->setToolTip(why.isEmpty() ? button->accessibleName() : SafeTip(why));
  };
  const QString none = any ? QString() : tr("No job is selected");
  const QString no_detail = detail_->job() == nullptr ? tr("No job is selected") : QString();
  set(new_, no_submit);
  set(cancel_, no_cancel.isEmpty() ? none : no_cancel);
  set(delete_, no_delete.isEmpty() ? none : no_delete);
  set(clone_, no_submit.isEmpty() ? no_detail : no_submit);
  set(save_, !no_fetch.isEmpty()    ? no_fetch
             : !no_detail.isEmpty() ? no_detail
                                    : detail_->result()->WhyNot());
}

void JobsView::Draw(const session::Snapshot& snapshot) {
  rows_->Show(snapshot.jobs.value, ServersNow(shown_cluster(), snapshot));
  ShowNotes(snapshot);
  ShowDetail();
}

void JobsView::ShowNotes(const session::Snapshot& snapshot) {
  QStringList notes;
  const session::Part<session::JobList>& jobs = snapshot.jobs;
  if (jobs.value == nullptr) {
    notes.append(jobs.error.empty()
                     ? tr("No list of jobs has been heard of yet.")
                     : tr("No list of jobs has been heard of: %1").arg(SafeText(jobs.error, 300)));
  } else {
    if (!jobs.error.empty()) {
      notes.append(tr("▲ As of %1 (%2): %3")
                       .arg(FormatTime(jobs.as_of_ms, snapshot.at_ms),
                            FormatAge(jobs.as_of_ms, snapshot.at_ms), SafeText(jobs.error, 300)));
    }
    if (jobs.value->truncated) {
      notes.append(
          tr("▲ Older jobs are left out: the list is still being read, or longer than what the "
             "console keeps. Counts and filters are of the %1 newest jobs.")
              .arg(QLocale().toString(static_cast<int>(jobs.value->jobs.size()))));
    } else if (jobs.value->jobs.empty()) {
      notes.append(tr("There are no jobs. Ctrl+N submits one."));
    }
  }
  const QString text = notes.join(u'\n');
  if (text != banner_->text()) banner_->setText(text);
  banner_->setVisible(!text.isEmpty());
}

void JobsView::ShowDetail() {
  const session::JobEntry entry = rows_->Watched();
  JobDetail::Words words;
  if (watched_.isEmpty()) {
    words.note = tr("Select a job to see where it is, what it was asked for and what it made.");
  } else if (entry.job == nullptr || QString::fromStdString(entry.job->uid()) != watched_) {
    words.note =
        rows_->settled()
            ? tr("The console knows of no job %1.").arg(SafeText(watched_.toStdString(), 64))
            : tr("Looking for it…");
    // The answer comes in a moment. Until then the page stays as it is.
    if (!rows_->settled()) return;
  } else {
    const session::Snapshot& snapshot = *shown_cluster().snapshot();
    words.state = rows_->StateText(*entry.job, entry.certainty);
    words.tone = rows_->ToneOf(*entry.job, entry.certainty);
    words.wait = WhyItWaits(snapshot, *entry.job, rows_->arrangement().active,
                            ServersNow(shown_cluster(), snapshot));
    if (!wanted_.isEmpty() && rows_->filter().count() > 0) words.note = tr("Hidden by the filter.");
    detail_->Show(entry.job, words);
    ShowActions();
    return;
  }
  detail_->Show(nullptr, words);
  ShowActions();
}

void JobsView::resizeEvent(QResizeEvent* event) {
  View::resizeEvent(event);
  const Qt::Orientation wanted = width() >= kWide ? Qt::Horizontal : Qt::Vertical;
  if (splitter_->orientation() == wanted) return;
  splitter_->setOrientation(wanted);
  const int whole = wanted == Qt::Horizontal ? width() : height();
  splitter_->setSizes({whole * 3 / 5, whole * 2 / 5});
}

std::vector<Command> JobsView::Commands() {
  const auto command = [this](const char* id, const QString& title, const char* cli,
                              const char* shortcut, bool changes, void (JobsView::*run)(),
                              std::string_view method) {
    return Command{.id = QLatin1String(id),
                   .title = title,
                   .cli = QLatin1String(cli),
                   .shortcut = QLatin1String(shortcut),
                   .changes_cluster = changes,
                   .run = [this, run] { (this->*run)(); },
                   .method = method};
  };
  // Commands whose id begins with "job." act on the job that the page was told to focus on. The
  // inspector offers them.
  return {
      command("jobs.submit", tr("Submit a job…"), "onepiece submit", "Ctrl+N", true,
              &JobsView::Submit, methods::kSubmitJob),
      command("job.cancel", tr("Cancel jobs…"), "onepiece cancel UID", "", true, &JobsView::Cancel,
              methods::kCancelJob),
      command("job.clone", tr("Clone a job…"), "onepiece submit", "", true, &JobsView::Clone,
              methods::kSubmitJob),
      command("job.delete", tr("Delete jobs and their results…"), "onepiece delete UID", "", true,
              &JobsView::Delete, methods::kDeleteJob),
      command("job.save", tr("Save the result of a job…"), "onepiece get UID -o FILE", "", false,
              &JobsView::SaveResult, methods::kFetchResult),
      command("job.copy_uid", tr("Copy the uids of jobs"), "onepiece jobs", "", false,
              &JobsView::CopyUids, {}),
  };
}

QString JobsView::Help() const {
  return tr(
      "All jobs that the console knows of, newest first, and one of them in detail.\n\n"
      "A click on a header sorts; a right click on it chooses columns; the bar above filters, and "
      "so does the window's filter (uid, application, set, stage, state, error, labels, text "
      "parameters). What is hidden is counted, and [Clear filters] shows it again.\n\n"
      "“Reconciling” means that the connection was lost and nobody has said yet what became of a "
      "job. A cancel is requested, acknowledged by the server, and then the job is cancelled.\n\n"
      "The detail says why a job waits: who serves its stage, how many jobs wait there before it, "
      "and about how long that takes at the mean of what was measured.\n\n"
      "Keys: Ctrl+N new job · Ctrl+Enter in its dialog submits · Ctrl+C copies rows · Enter "
      "inspects.");
}

}  // namespace onepiece::gui
