#include "gui/models/job_rows.h"

#include <QMetaObject>
#include <algorithm>
#include <cmath>
#include <utility>

#include "cluster/client/client.h"
#include "gui/models/keyed_table.h"

namespace onepiece::gui {
namespace {

constexpr int kShortUid = 13;  // The part of a UUIDv7 that holds its time.

bool IsNumber(JobColumn column) {
  return column == JobColumn::kDuration || column == JobColumn::kWaiting ||
         column == JobColumn::kResult;
}

bool MovesWithTime(JobColumn column) {
  return column == JobColumn::kDuration || column == JobColumn::kWaiting;
}

QString Labels(const v1::Job& job) {
  QStringList labels;
  for (const auto& [key, value] : job.labels()) labels.append(SafeText(key + "=" + value, 60));
  labels.sort();
  return labels.join(QStringLiteral(", "));
}

}  // namespace

QString JobProgressText(const v1::Job& job) {
  if (client::IsTerminal(job.state())) return {};
  QStringList parts;
  if (job.stage_count() > 0) {
    parts.append(JobRows::tr("stage %1 of %2")
                     .arg(std::min(job.stage_index(), job.stage_count() - 1) + 1)
                     .arg(job.stage_count()));
  }
  if (!job.stage().empty()) parts.append(SafeText(job.stage(), 40));
  if (job.steps() > 0) parts.append(JobRows::tr("step %1 of %2").arg(job.step()).arg(job.steps()));
  return parts.join(QStringLiteral(" · "));
}

JobRows::JobRows(QObject* parent)
    : QAbstractTableModel(parent), made_(std::make_shared<JobArrangement>()) {
  worker_.setMaxThreadCount(1);
}

JobRows::~JobRows() = default;

void JobRows::Show(const std::shared_ptr<const session::JobList>& list, std::int64_t now_ms) {
  const std::int64_t before_ms = std::exchange(now_ms_, now_ms);
  if (list != list_) {
    list_ = list;
    Compute();
  } else if (filter_.newest_s > 0 && now_ms / 60'000 != before_ms / 60'000) {
    Compute();  // Jobs grow too old for the filter, or the past is shown, where they are younger.
  }
  // Durations and waiting times grow with the time, so their columns are repainted each second.
  if (now_ms / 1000 == before_ms / 1000 || rows_.empty()) return;
  const int last = static_cast<int>(rows_.size()) - 1;
  Q_EMIT dataChanged(index(0, static_cast<int>(JobColumn::kDuration)),
                     index(last, static_cast<int>(JobColumn::kWaiting)), {Qt::DisplayRole});
}

void JobRows::SetFilter(const JobFilter& filter) {
  if (filter == filter_) return;
  filter_ = filter;
  Compute();
}

void JobRows::Watch(const QString& uid) {
  if (uid == watched_) return;
  watched_ = uid;
  Compute();
}

void JobRows::sort(int column, Qt::SortOrder order) {
  const JobSort sort = column < 0 || column >= kJobColumns
                           ? JobSort()
                           : JobSort{static_cast<JobColumn>(column), order == Qt::AscendingOrder};
  if (sort == sort_) return;
  sort_ = sort;
  Compute();
}

void JobRows::Compute() {
  // One question at a time. Take() asks the newest one when the answer is there; those in between
  // are skipped.
  if (computing_) {
    again_ = true;
    return;
  }
  computing_ = true;
  std::vector<std::string> watched = {watched_.toStdString()};
  // ForgetCancels() must see how a cancelled job ends, even when a filter hides the job.
  for (const QString& uid : cancels_.keys()) watched.push_back(uid.toStdString());
  worker_.start([this, list = list_, filter = filter_, sort = sort_, now_ms = now_ms_,
                 watched = std::move(watched), before = made_] {
    const auto made =
        std::make_shared<const JobArrangement>(Arrange(list, filter, sort, now_ms, watched));
    // The destructor of `worker_` waits for this task, so `this` is still a QObject here.
    // Qt drops the queued call if this object is destroyed first.
    QMetaObject::invokeMethod(
        this, [this, made, edit = Compare(before->rows, made->rows)] { Take(made, edit); },
        Qt::QueuedConnection);
  });
}

void JobRows::Take(std::shared_ptr<const JobArrangement> made, const JobEdit& edit) {
  // rows_ points into the old list until Apply() has replaced them, so the old arrangement must
  // outlive Apply().
  auto before = std::exchange(made_, std::move(made));
  Apply(made_->rows, edit);
  // Freeing 10^5 rows takes time, so the worker does it.
  worker_.start([before = std::move(before)] {});
  ForgetCancels();
  computing_ = false;
  if (again_) {
    again_ = false;
    Compute();
  }
  Q_EMIT Arranged();
}

void JobRows::ForgetCancels() {
  for (const auto& [uid, entry] : made_->watched) {
    const bool active = entry.job != nullptr && !client::IsTerminal(entry.job->state());
    // The list itself says how it ended.
    if (!active) cancels_.remove(QString::fromStdString(uid));
  }
}

session::JobEntry JobRows::Watched() const {
  const auto at = made_->watched.find(watched_.toStdString());
  return at == made_->watched.end() ? session::JobEntry() : at->second;
}

void JobRows::Apply(const std::vector<JobRow>& rows, const JobEdit& edit) {
  if (edit.reset) {
    beginResetModel();
    rows_ = rows;
    endResetModel();
    return;
  }
  for (const auto& [first, last] : edit.removed) {
    beginRemoveRows({}, first, last);
    rows_.erase(rows_.begin() + first, rows_.begin() + last + 1);
    endRemoveRows();
  }
  if (!edit.order.empty()) Permute(edit.order);
  for (const auto& [first, last] : edit.inserted) {
    beginInsertRows({}, first, last);
    rows_.insert(rows_.begin() + first, rows.begin() + first, rows.begin() + last + 1);
    endInsertRows();
  }
  rows_ = rows;
  for (const auto& [first, last] : edit.changed) {
    Q_EMIT dataChanged(index(first, 0), index(last, kJobColumns - 1));
  }
}

void JobRows::Permute(const std::vector<int>& order) {
  Q_EMIT layoutAboutToBeChanged({}, QAbstractItemModel::VerticalSortHint);
  std::vector<JobRow> moved(rows_.size());
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    moved[static_cast<std::size_t>(order[i])] = rows_[i];
  }
  rows_ = std::move(moved);
  const QModelIndexList before = persistentIndexList();
  QModelIndexList after;
  after.reserve(before.size());
  for (const QModelIndex& old : before) {
    after.append(index(order[static_cast<std::size_t>(old.row())], old.column()));
  }
  changePersistentIndexList(before, after);
  Q_EMIT layoutChanged({}, QAbstractItemModel::VerticalSortHint);
}

void JobRows::SetCancel(const QString& uid, CancelPhase phase) {
  cancels_.insert(uid, phase);
  RepaintRow(uid);
}

void JobRows::ClearCancel(const QString& uid) {
  if (cancels_.remove(uid) > 0) RepaintRow(uid);
}

void JobRows::RepaintRow(const QString& uid) {
  const int row = RowOf(uid);
  if (row >= 0) Q_EMIT dataChanged(index(row, 0), index(row, kJobColumns - 1));
}

int JobRows::total() const {
  return made_->list == nullptr ? 0 : static_cast<int>(made_->list->jobs.size());
}

int JobRows::RowOf(const QString& uid) const {
  const std::string wanted = uid.toStdString();
  const auto at = std::find_if(rows_.begin(), rows_.end(),
                               [&](const JobRow& row) { return row.job->uid() == wanted; });
  return at == rows_.end() ? -1 : static_cast<int>(at - rows_.begin());
}

StatusTone JobRows::ToneOf(const v1::Job& job, session::Certainty certainty) const {
  if (certainty != session::Certainty::kKnown) return StatusTone::kUnknown;
  if (client::IsTerminal(job.state())) return JobStateTone(job.state());
  const auto cancel = cancels_.constFind(QString::fromStdString(job.uid()));
  if (cancel == cancels_.constEnd()) return JobStateTone(job.state());
  return *cancel == CancelPhase::kUnknown ? StatusTone::kUnknown : StatusTone::kWarning;
}

QString JobRows::StateText(const v1::Job& job, session::Certainty certainty) const {
  const QString glyph = ToneGlyph(ToneOf(job, certainty)) + u' ';
  const QString state = JobStateName(job.state());
  if (certainty == session::Certainty::kReconciling)
    return glyph + tr("reconciling (was %1)").arg(state);
  if (certainty == session::Certainty::kUnknownAtEnd)
    return glyph + tr("unknown at end of recording (was %1)").arg(state);
  const auto cancel = cancels_.constFind(QString::fromStdString(job.uid()));
  if (cancel == cancels_.constEnd() || client::IsTerminal(job.state())) return glyph + state;
  switch (*cancel) {
    case CancelPhase::kRequested:
      return glyph + tr("%1, cancel requested").arg(state);
    case CancelPhase::kAcknowledged:
      return glyph + tr("%1, cancel acknowledged").arg(state);
    case CancelPhase::kUnknown:
      return glyph + tr("%1, cancel: no answer").arg(state);
  }
  return glyph + state;
}

QString JobRows::TextOf(const JobRow& row, JobColumn column) const {
  const v1::Job& job = *row.job;
  switch (column) {
    case JobColumn::kUid:
      return SafeText(job.uid(), kShortUid);
    case JobColumn::kApp:
      return SafeText(job.app_id(), 63);
    case JobColumn::kState:
      return StateText(job, row.certainty);
    case JobColumn::kProgress:
      return JobProgressText(job);
    case JobColumn::kSet:
      return SafeText(job.workflow_set(), 40);
    case JobColumn::kCreated:
      return FormatTime(ToMs(job.create_time()), now_ms_);
    case JobColumn::kDuration:
      if (row.certainty != session::Certainty::kKnown && !job.has_end_time()) return tr("N/A");
      return FormatSeconds(job.has_end_time() ? DurationOf(job, now_ms_)
                                              : std::floor(DurationOf(job, now_ms_)));
    case JobColumn::kWaiting: {
      const double waited = WaitingOf(job, now_ms_);
      if (waited < 0 || (row.certainty != session::Certainty::kKnown && !job.has_end_time()))
        return tr("N/A");
      return FormatSeconds(job.state() == v1::Job::QUEUED ? std::floor(waited) : waited);
    }
    case JobColumn::kResult: {
      const std::int64_t bytes = ResultBytesOf(job);
      if (bytes < 0) return {};
      if (job.result().evicted()) return tr("%1, evicted").arg(FormatBytes(double(bytes)));
      return job.result().fetched() ? tr("%1, fetched").arg(FormatBytes(double(bytes)))
                                    : FormatBytes(static_cast<double>(bytes));
    }
    case JobColumn::kLabels:
      return Labels(job);
    case JobColumn::kError:
      return job.has_error() ? SafeText(job.error().reason() + ": " + job.error().message(), 120)
                             : QString();
  }
  return {};
}

QString JobRows::TipOf(const JobRow& row, JobColumn column) const {
  const v1::Job& job = *row.job;
  switch (column) {
    case JobColumn::kUid:
      return SafeText(job.uid());
    case JobColumn::kError:
      return job.has_error() ? SafeText(job.error().reason() + ": " + job.error().message(), 1000)
                             : QString();
    case JobColumn::kState:
      if (row.certainty == session::Certainty::kReconciling)
        return tr("The connection was lost: what became of it is being asked.");
      if (row.certainty == session::Certainty::kUnknownAtEnd)
        return tr("The recording ends before the job does.");
      return {};
    default:
      return TextOf(row, column);
  }
}

QVariant JobRows::NumberOf(const v1::Job& job, JobColumn column) const {
  switch (column) {
    case JobColumn::kUid:
      return SafeText(job.uid());
    case JobColumn::kState:
      return JobStateName(job.state());
    case JobColumn::kCreated:
      return static_cast<qlonglong>(ToMs(job.create_time()));
    case JobColumn::kDuration:
      return DurationOf(job, now_ms_);
    case JobColumn::kWaiting: {
      const double waited = WaitingOf(job, now_ms_);
      return waited < 0 ? QVariant() : QVariant(waited);
    }
    case JobColumn::kResult: {
      const std::int64_t bytes = ResultBytesOf(job);
      return bytes < 0 ? QVariant() : QVariant(static_cast<qlonglong>(bytes));
    }
    default:
      return {};
  }
}

int JobRows::rowCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : static_cast<int>(rows_.size());
}

int JobRows::columnCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : kJobColumns;
}

QVariant JobRows::data(const QModelIndex& index, int role) const {
  if (!index.isValid() || index.row() >= rowCount() || index.column() >= kJobColumns) return {};
  const JobRow& row = at(index.row());
  const auto column = static_cast<JobColumn>(index.column());
  switch (role) {
    case Qt::DisplayRole:
      return TextOf(row, column);
    case Qt::ToolTipRole:
      return SafeTip(TipOf(row, column));
    case kKeyRole:
      return QString::fromStdString(row.job->uid());
    case kSortRole: {
      if (MovesWithTime(column) && row.certainty != session::Certainty::kKnown &&
          !row.job->has_end_time()) {
        return NotKnown();
      }
      const QVariant number = NumberOf(*row.job, column);
      return number.isValid() || IsNumber(column) ? number : QVariant(TextOf(row, column));
    }
    case kToneRole:
      if (column == JobColumn::kState) return static_cast<int>(ToneOf(*row.job, row.certainty));
      if (MovesWithTime(column) && row.certainty != session::Certainty::kKnown)
        return static_cast<int>(StatusTone::kUnknown);
      return column == JobColumn::kError && row.job->has_error()
                 ? QVariant(static_cast<int>(StatusTone::kBad))
                 : QVariant();
    case Qt::TextAlignmentRole:
      return QVariant((IsNumber(column) ? Qt::AlignRight : Qt::AlignLeft) | Qt::AlignVCenter);
    default:
      return {};
  }
}

QVariant JobRows::headerData(int section, Qt::Orientation orientation, int role) const {
  struct Title {
    QString title, tip;
  };
  static const std::array<Title, kJobColumns> kTitles = {{
      {tr("Job"), tr("The beginning of its uid; Ctrl+C on its page copies all of it")},
      {tr("Application"), tr("app of `onepiece jobs`")},
      {tr("State"), tr("state of `onepiece jobs`; a cancel is requested, acknowledged, cancelled")},
      {tr("Progress"), tr("Where a job is that has not ended")},
      {tr("Set"), tr("The workflow set that computes it")},
      {tr("Created"), tr("When a proxy took it, by the proxy's clock")},
      {tr("Duration"), tr("From its creation to its end, or to now")},
      {tr("Waited"), tr("In queues, all stages together; N/A where no stage has told yet")},
      {tr("Result"),
       tr("Bytes of all files that it made; “fetched”: the cluster has given them up")},
      {tr("Labels"), tr("What whoever submitted it has put on it")},
      {tr("Error"), tr("Why it failed: reason and message")},
  }};
  if (orientation != Qt::Horizontal || section < 0 || section >= kJobColumns) return {};
  const Title& title = kTitles[static_cast<std::size_t>(section)];
  if (role == Qt::DisplayRole) return title.title;
  if (role == Qt::ToolTipRole) return title.tip;
  if (role == Qt::TextAlignmentRole)
    return QVariant((IsNumber(static_cast<JobColumn>(section)) ? Qt::AlignRight : Qt::AlignLeft) |
                    Qt::AlignVCenter);
  return {};
}

}  // namespace onepiece::gui
