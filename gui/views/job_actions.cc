#include "gui/views/job_actions.h"

#include <QDialog>
#include <QDialogButtonBox>
#include <QLabel>
#include <QListWidget>
#include <QVBoxLayout>
#include <algorithm>
#include <utility>

#include "cluster/client/client.h"
#include "cluster/session/link.h"
#include "gui/models/format.h"
#include "gui/models/permissions.h"
#include "gui/views/prompts.h"

namespace onepiece::gui {
namespace {

/// The most calls under way at the same time. A session takes a few more.
constexpr std::size_t kAtOnce = 4;

QString Jobs(std::size_t count) {
  return count == 1 ? JobActions::tr("1 job") : JobActions::tr("%1 jobs").arg(count);
}

/// "0190a3-…  wan-t2v  running, stage 2 of 3 · diffusion"
QString TargetText(const v1::Job& job) {
  const QString progress = JobProgressText(job);
  return SafeText(job.uid(), 64) + QStringLiteral("  ") + SafeText(job.app_id(), 63) +
         QStringLiteral("  ") + JobStateName(job.state()) +
         (progress.isEmpty() ? QString() : QStringLiteral(", ") + progress);
}

QStringList TargetTexts(const std::vector<std::shared_ptr<const v1::Job>>& jobs) {
  QStringList texts;
  for (const auto& job : jobs) texts.append(TargetText(*job));
  return texts;
}

/// What became of each job that did not end as wished.
void TellAnswers(QWidget* parent, const QString& title, const QStringList& lines) {
  auto* dialog = new QDialog(parent);
  dialog->setAttribute(Qt::WA_DeleteOnClose);
  dialog->setObjectName(QStringLiteral("jobs.answers"));
  dialog->setWindowTitle(title);
  auto* text = new QLabel(title, dialog);
  text->setTextFormat(Qt::PlainText);
  text->setWordWrap(true);
  auto* list = new QListWidget(dialog);
  list->setAccessibleName(title);
  list->addItems(lines);
  list->setWordWrap(true);
  auto* buttons = new QDialogButtonBox(QDialogButtonBox::Close, dialog);
  QObject::connect(buttons, &QDialogButtonBox::rejected, dialog, &QDialog::reject);
  auto* layout = new QVBoxLayout(dialog);
  layout->addWidget(text);
  layout->addWidget(list);
  layout->addWidget(buttons);
  dialog->resize(dialog->fontMetrics().averageCharWidth() * 90, 300);
  dialog->open();
}

}  // namespace

JobActions::JobActions(ShownCluster& shown_cluster, JobRows& rows, QWidget* window)
    : QObject(window), shown_cluster_(shown_cluster), rows_(rows), window_(window) {}

QString JobActions::WhyNot(Kind kind) const {
  return shown_cluster_.WhyNoChange(kind == Kind::kCancel ? methods::kCancelJob
                                                          : methods::kDeleteJob);
}

bool JobActions::MayAsk(Kind kind, const std::vector<Job>& jobs) {
  QString why_not = WhyNot(kind);
  const v1::WhoAmIResponse* me = shown_cluster_.me();
  for (auto job = jobs.begin(); me != nullptr && why_not.isEmpty() && job != jobs.end(); ++job)
    why_not = WhyNotTheirs(*me, (*job)->tenant());
  if (!why_not.isEmpty()) {
    Q_EMIT Told(why_not);
    return false;
  }
  if (static_cast<int>(jobs.size()) > kMaxTargets) {
    Q_EMIT Told(tr("Select at most %1 jobs at a time").arg(kMaxTargets));
    return false;
  }
  return true;
}

void JobActions::Cancel(const std::vector<Job>& jobs) {
  std::vector<Job> active;
  std::ranges::copy_if(jobs, std::back_inserter(active),
                       [](const Job& job) { return !client::IsTerminal(job->state()); });
  if (!MayAsk(Kind::kCancel, active)) return;
  if (active.empty()) {
    Q_EMIT Told(jobs.empty() ? tr("Select jobs to cancel first")
                             : tr("What is selected has ended already"));
    return;
  }
  const auto running = static_cast<std::size_t>(std::ranges::count_if(
      active, [](const Job& job) { return job->state() == v1::Job::RUNNING; }));
  Question question;
  question.title = tr("Cancel %1").arg(Jobs(active.size()));
  question.verb = question.title;
  // The audit log is about the cluster's configuration and not about jobs.
  question.reason = false;
  question.text = tr("They stop at their next step and make no result. ");
  if (running > 0) {
    question.text +=
        tr("%1 of them run: what they have computed is lost, and that cannot be undone. ")
            .arg(running);
  }
  question.text +=
      tr("Those that wait can be submitted again (Clone). Just these are cancelled, "
         "whatever the list shows by then.");
  if (jobs.size() > active.size()) {
    question.text += u'\n' + tr("%1 of the selected have ended already and are left alone.")
                                 .arg(jobs.size() - active.size());
  }
  question.targets = TargetTexts(active);
  Confirm(window_, shown_cluster_, question,
          [this, active](const QString&) { Start(Kind::kCancel, active); });
}

void JobActions::Delete(const std::vector<Job>& jobs) {
  if (!MayAsk(Kind::kDelete, jobs)) return;
  if (jobs.empty()) {
    Q_EMIT Told(tr("Select jobs to delete first"));
    return;
  }
  const auto active = static_cast<std::size_t>(std::ranges::count_if(
      jobs, [](const Job& job) { return !client::IsTerminal(job->state()); }));
  Question question;
  question.title = tr("Delete %1").arg(Jobs(jobs.size()));
  question.verb = question.title;
  question.reason = false;
  question.text =
      tr("The cluster forgets them and their results; nobody can fetch these any more. "
         "That cannot be undone.");
  if (active > 0) {
    question.text += u' ' + tr("%1 of them have not ended: they are cancelled first.").arg(active);
  }
  question.targets = TargetTexts(jobs);
  Confirm(window_, shown_cluster_, question,
          [this, jobs](const QString&) { Start(Kind::kDelete, jobs); });
}

void JobActions::Start(Kind kind, const std::vector<Job>& jobs) {
  auto batch = std::make_shared<Batch>();
  batch->asked_of = shown_cluster_.connection();
  batch->kind = kind;
  for (const Job& job : jobs) {
    batch->uids.push_back(job->uid());
    if (kind == Kind::kCancel)
      rows_.SetCancel(QString::fromStdString(job->uid()), CancelPhase::kRequested);
  }
  batch->operation = shown_cluster_.operations().Begin(
      kind == Kind::kCancel ? tr("Cancel %1").arg(Jobs(jobs.size()))
                            : tr("Delete %1").arg(Jobs(jobs.size())));
  Q_EMIT Told(kind == Kind::kCancel ? tr("Cancel of %1 requested").arg(Jobs(jobs.size()))
                                    : tr("Deletion of %1 requested").arg(Jobs(jobs.size())));
  Send(batch);
}

void JobActions::Send(const std::shared_ptr<Batch>& batch) {
  // If the operator locks changes or connects to another cluster, the jobs that were not sent yet
  // are not sent.
  const QString why = batch->asked_of != shown_cluster_.connection()
                          ? tr("another cluster is connected")
                          : WhyNot(batch->kind);
  if (!why.isEmpty() && batch->next < batch->uids.size()) {
    batch->others.append(
        tr("%1 not asked for: %2").arg(Jobs(batch->uids.size() - batch->next), why));
    for (std::size_t i = batch->next; i < batch->uids.size(); ++i) {
      rows_.ClearCancel(QString::fromStdString(batch->uids[i]));
    }
    batch->uids.resize(batch->next);
    if (batch->under_way == 0) return Finish(*batch);
  }
  while (batch->under_way < kAtOnce && batch->next < batch->uids.size()) {
    const std::string uid = batch->uids[batch->next++];
    ++batch->under_way;
    shown_cluster_.Ask<v1::Job>(
        this,
        [uid, kind = batch->kind](client::Client& client) -> absl::StatusOr<v1::Job> {
          if (kind == Kind::kCancel) return client.Cancel(uid);
          const absl::Status deleted = client.Delete(uid);
          if (!deleted.ok()) return deleted;
          return v1::Job();
        },
        [this, batch, uid](absl::StatusOr<v1::Job> answer) { Answered(batch, uid, answer); }, {});
  }
}

void JobActions::Answered(const std::shared_ptr<Batch>& batch, const std::string& uid,
                          const absl::StatusOr<v1::Job>& answer) {
  --batch->under_way;
  const QString id = QString::fromStdString(uid);
  const bool cancel = batch->kind == Kind::kCancel;
  if (!answer.ok()) {
    batch->failure.Update(answer.status());
    batch->others.append(
        tr("%1: %2").arg(SafeText(uid, 64), SafeText(session::Explain(answer.status()), 300)));
    if (cancel && session::IsUncertain(answer.status())) {
      rows_.SetCancel(id, CancelPhase::kUnknown);
    } else if (cancel) {
      rows_.ClearCancel(id);
    }
  } else if (cancel && answer->state() != v1::Job::CANCELLED) {
    batch->others.append(
        tr("%1: had ended already, it %2").arg(SafeText(uid, 64), JobStateName(answer->state())));
    rows_.ClearCancel(id);
  } else {
    ++batch->done;
    if (cancel) rows_.SetCancel(id, CancelPhase::kAcknowledged);
  }
  const std::size_t answered = batch->next - batch->under_way;
  if (answered == batch->uids.size()) {
    Finish(*batch);
  } else {
    const QString far = tr("%1 of %2 answered").arg(answered).arg(batch->uids.size());
    shown_cluster_.operations().Note(batch->operation, far);
    if (batch->uids.size() > kAtOnce && answered % kAtOnce == 0) Q_EMIT Told(far);
    Send(batch);
  }
}

void JobActions::Finish(const Batch& batch) {
  const QString text =
      batch.kind == Kind::kCancel
          ? tr("Cancel of %1 of %2 acknowledged").arg(batch.done).arg(Jobs(batch.uids.size()))
          : tr("%1 of %2 deleted").arg(batch.done).arg(Jobs(batch.uids.size()));
  absl::Status outcome;
  if (!batch.others.isEmpty()) {
    outcome = absl::Status(
        batch.failure.ok() ? absl::StatusCode::kFailedPrecondition : batch.failure.code(),
        (text + QStringLiteral("; ") + batch.others.first()).toStdString());
  }
  shown_cluster_.operations().End(batch.operation, outcome, text);
  Q_EMIT Told(text);
  if (!batch.others.isEmpty()) TellAnswers(window_, text, batch.others);
}

}  // namespace onepiece::gui
