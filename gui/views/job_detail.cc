#include "gui/views/job_detail.h"

#include <QHBoxLayout>
#include <QHeaderView>
#include <QLocale>
#include <QScrollArea>
#include <QVBoxLayout>
#include <algorithm>
#include <array>
#include <map>

#include "cluster/client/client.h"
#include "gui/models/job_query.h"
#include "gui/models/job_rows.h"
#include "gui/views/job_gantt.h"
#include "gui/views/plain_label.h"
#include "gui/views/result_preview.h"
#include "gui/views/table_panel.h"
#include "gui/views/tone.h"

namespace onepiece::gui {
namespace {

constexpr int kLongText = 4096;

double Seconds(const google::protobuf::Duration& duration) {
  return static_cast<double>(duration.seconds()) + duration.nanos() * 1e-9;
}

QVariant SecondsCell(double seconds, int role) {
  if (role == kSortRole) return seconds < 0 ? QVariant() : QVariant(seconds);
  if (role != Qt::DisplayRole) return {};
  return seconds < 0 ? JobDetail::tr("N/A") : FormatSeconds(seconds);
}

QVariant TextCell(const QString& text, int role) {
  return role == Qt::DisplayRole || role == Qt::ToolTipRole ? QVariant(text) : QVariant();
}

std::vector<KeyedTable<StageLine>::Column> StageColumns() {
  const auto right = Qt::AlignRight | Qt::AlignVCenter;
  return {
      {JobDetail::tr("Stage"),
       {},
       [](const StageLine& line, int role) { return TextCell(line.stage, role); }},
      {JobDetail::tr("State"),
       {},
       [](const StageLine& line, int role) {
         if (role == kToneRole) return QVariant(static_cast<int>(line.tone));
         return TextCell(ToneGlyph(line.tone) + u' ' + line.state, role);
       }},
      {JobDetail::tr("Step"),
       {},
       [](const StageLine& line, int role) { return TextCell(line.step, role); }},
      {JobDetail::tr("Waited"), JobDetail::tr("queued_s of `onepiece get`: in this stage's queue"),
       [](const StageLine& line, int role) { return SecondsCell(line.queued_s, role); }, right},
      {JobDetail::tr("Computed"), JobDetail::tr("compute_s of `onepiece get`"),
       [](const StageLine& line, int role) { return SecondsCell(line.compute_s, role); }, right},
      {JobDetail::tr("Transfer"),
       JobDetail::tr(
           "transfer_s of `onepiece get`: from the sender's encoding to the arrival here"),
       [](const StageLine& line, int role) { return SecondsCell(line.transfer_s, role); }, right},
      {JobDetail::tr("Node"),
       {},
       [](const StageLine& line, int role) { return TextCell(line.node, role); }},
  };
}

StageLine LineOf(const v1::Job& job, const std::string& stage, int place) {
  StageLine line;
  line.stage = SafeText(stage, 60);
  const bool ended = client::IsTerminal(job.state());
  const bool here = !ended && (job.stage() == stage || (job.stage().empty() && place == 0));
  if (here) {
    line.state =
        job.state() == v1::Job::RUNNING ? JobDetail::tr("computing") : JobDetail::tr("waiting");
    line.tone = job.state() == v1::Job::RUNNING ? StatusTone::kBusy : StatusTone::kNeutral;
    if (job.steps() > 0) line.step = JobDetail::tr("%1 of %2").arg(job.step()).arg(job.steps());
  } else if (ended) {
    // The job did not get that far, or no stage has reported its times.
    line.state = job.state() == v1::Job::SUCCEEDED ? JobDetail::tr("done, no times told")
                                                   : JobDetail::tr("not reached");
  } else {
    line.state = place < job.stage_index() ? JobDetail::tr("done, no times told")
                                           : JobDetail::tr("not reached yet");
  }
  return line;
}

QString ValueText(const google::protobuf::Value& value) {
  switch (value.kind_case()) {
    case google::protobuf::Value::kStringValue:
      return SafeText(value.string_value(), kLongText);
    case google::protobuf::Value::kNumberValue:
      return QString::number(value.number_value(), 'g', 16);
    case google::protobuf::Value::kBoolValue:
      return value.bool_value() ? QStringLiteral("true") : QStringLiteral("false");
    case google::protobuf::Value::kNullValue:
      return QStringLiteral("null");
    default:
      return SafeText(value.ShortDebugString(), kLongText);
  }
}

QLabel* SelectableLabel(QWidget* parent) {
  auto* label = PlainLabel(parent);
  label->setTextInteractionFlags(Qt::TextSelectableByMouse);
  return label;
}

}  // namespace

std::vector<StageLine> StageLinesOf(const v1::Job& job, const v1::Workflow* workflow) {
  std::vector<StageLine> lines;
  std::multimap<std::string, const v1::StageTiming*> told;
  for (const v1::StageTiming& timing : job.timings()) told.emplace(timing.stage(), &timing);
  const auto add_told = [&](const std::string& stage) {
    const auto [first, last] = told.equal_range(stage);
    for (auto at = first; at != last; ++at) {
      StageLine line;
      line.stage = SafeText(stage, 60);
      line.node = SafeText(at->second->node(), 60);
      line.state = JobDetail::tr("done");
      line.tone = StatusTone::kGood;
      line.queued_s = Seconds(at->second->queued());
      line.compute_s = Seconds(at->second->compute());
      line.transfer_s = Seconds(at->second->transfer());
      lines.push_back(line);
    }
    const bool any = first != last;
    told.erase(first, last);
    return any;
  };
  if (workflow != nullptr) {
    for (int i = 0; i < workflow->stages_size(); ++i) {
      const std::string& stage = workflow->stages(i).stage();
      if (!add_told(stage)) lines.push_back(LineOf(job, stage, i));
    }
  }
  while (!told.empty()) add_told(std::string(told.begin()->first));
  if (workflow == nullptr && !job.stage().empty() && !client::IsTerminal(job.state())) {
    lines.push_back(LineOf(job, job.stage(), job.stage_index()));
  }
  return lines;
}

JobDetail::JobDetail(ShownCluster& shown_cluster, QWidget* parent)
    : QWidget(parent),
      shown_cluster_(shown_cluster),
      title_(SelectableLabel(this)),
      state_(SelectableLabel(this)),
      wait_(SelectableLabel(this)),
      note_(SelectableLabel(this)),
      progress_(new QProgressBar(this)),
      tabs_(new QTabWidget(this)),
      stages_(std::make_unique<KeyedTable<StageLine>>(
          StageColumns(), [](const StageLine& line) { return line.stage + u'/' + line.node; })),
      parameters_(std::make_unique<KeyedTable<Pair>>(
          std::vector<KeyedTable<Pair>::Column>{
              {tr("Parameter"),
               {},
               [](const Pair& pair, int role) { return TextCell(pair.name, role); }},
              {tr("Value"),
               {},
               [](const Pair& pair, int role) { return TextCell(pair.value, role); }}},
          [](const Pair& pair) { return pair.name; })),
      gantt_(new JobGantt(shown_cluster, this)),
      result_(new ResultPreview(shown_cluster, this)),
      error_(SelectableLabel(this)) {
  setObjectName(QStringLiteral("jobs.detail"));
  QFont bold = title_->font();
  bold.setBold(true);
  title_->setFont(bold);
  title_->setObjectName(QStringLiteral("jobs.detail.title"));
  state_->setObjectName(QStringLiteral("jobs.detail.state"));
  wait_->setObjectName(QStringLiteral("jobs.detail.wait"));
  note_->setObjectName(QStringLiteral("jobs.detail.note"));
  error_->setObjectName(QStringLiteral("jobs.detail.error"));
  progress_->setRange(0, 1000);
  progress_->setTextVisible(false);
  progress_->setMaximumHeight(fontMetrics().height());
  progress_->setAccessibleName(tr("Progress over all stages"));
  tabs_->setAccessibleName(tr("Parts of the job"));
  AddTabs();
  auto* head = new QHBoxLayout;
  head->addWidget(title_, 1);
  head->addWidget(state_);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addLayout(head);
  layout->addWidget(progress_);
  layout->addWidget(wait_);
  layout->addWidget(note_);
  layout->addWidget(tabs_, 1);
  state_->setWordWrap(false);
  Show(nullptr, {});
}

void JobDetail::AddTabs() {
  auto* stage_panel = new TablePanel(QStringLiteral("stages"), stages_.get(), this);
  stage_panel->SetEmptyText(tr("The cluster does not know its workflow, and no stage has told."));
  const std::array<int, 7> letters = {20, 26, 12, 12, 12, 12, 24};
  for (std::size_t i = 0; i < letters.size(); ++i) {
    stage_panel->table()->setColumnWidth(static_cast<int>(i),
                                         letters[i] * fontMetrics().averageCharWidth());
  }
  stage_panel->table()->horizontalHeader()->setStretchLastSection(true);
  auto* parameter_panel = new TablePanel(QStringLiteral("parameters"), parameters_.get(), this);
  parameter_panel->table()->setColumnWidth(0, 26 * fontMetrics().averageCharWidth());
  parameter_panel->table()->horizontalHeader()->setStretchLastSection(true);
  parameter_panel->SetEmptyText(tr("It was asked for with the application's defaults."));
  error_->setAlignment(Qt::AlignTop | Qt::AlignLeft);
  error_->setMargin(8);
  auto* error_area = new QScrollArea(this);
  error_area->setWidgetResizable(true);
  error_area->setWidget(error_);
  error_area->setFrameShape(QFrame::NoFrame);
  error_area->setAccessibleName(tr("Error"));
  tabs_->addTab(stage_panel, tr("Progress"));
  tabs_->addTab(gantt_, tr("Gantt"));
  tabs_->addTab(parameter_panel, tr("Parameters"));
  tabs_->addTab(result_, tr("Result"));
  tabs_->addTab(error_area, tr("Error"));
}

void JobDetail::Show(const std::shared_ptr<const v1::Job>& job, const Words& words) {
  const bool same = job == job_;
  job_ = job;
  ShowHead(words);
  gantt_->Show(job);
  result_->Show(job);
  if (job_ == nullptr) return;
  ShowStages();  // The workflow may have become known since.
  if (same) return;
  ShowParameters();
  ShowError();
}

void JobDetail::ShowHead(const Words& words) {
  const bool any = job_ != nullptr;
  tabs_->setVisible(any);
  title_->setVisible(any);
  state_->setVisible(any);
  note_->setText(words.note);
  note_->setVisible(!words.note.isEmpty());
  wait_->setText(words.wait);
  wait_->setVisible(any && !words.wait.isEmpty());
  const bool active = any && !client::IsTerminal(job_->state());
  progress_->setVisible(active);
  if (!any) return;
  title_->setText(tr("%1 · %2").arg(SafeText(job_->uid(), 64), SafeText(job_->app_id(), 63)));
  const QString progress = JobProgressText(*job_);
  state_->setText(progress.isEmpty() ? words.state
                                     : words.state + QStringLiteral(" · ") + progress);
  QPalette palette = state_->palette();
  palette.setColor(QPalette::WindowText, ToneColor(words.tone, this->palette()));
  state_->setPalette(palette);
  const double step = job_->steps() > 0 ? static_cast<double>(job_->step()) / job_->steps() : 0;
  const double share = (job_->stage_index() + step) / std::max(1, job_->stage_count());
  progress_->setValue(static_cast<int>(std::clamp(share, 0.0, 1.0) * 1000));
}

void JobDetail::ShowStages() {
  const v1::Workflow* workflow = nullptr;
  const auto& cluster = shown_cluster_.snapshot()->cluster.value;
  if (cluster != nullptr) {
    const auto& workflows = cluster->workflows();
    const auto at = std::ranges::find(workflows, job_->app_id(), &v1::Workflow::app_id);
    if (at != workflows.end()) workflow = &*at;
  }
  stages_->Update(StageLinesOf(*job_, workflow), std::equal_to<StageLine>());
}

void JobDetail::ShowParameters() {
  std::vector<Pair> pairs;
  for (const auto& [name, value] : job_->parameters().fields()) {
    pairs.push_back({SafeText(name, 100), ValueText(value)});
  }
  std::sort(pairs.begin(), pairs.end(),
            [](const Pair& a, const Pair& b) { return a.name < b.name; });
  for (const v1::InputDigest& input : job_->inputs()) {
    pairs.push_back({tr("input %1").arg(SafeText(input.name(), 100)),
                     tr("%1, %2, sha256 %3")
                         .arg(SafeText(input.media_type(), 80),
                              FormatBytes(static_cast<double>(input.size_bytes())),
                              SafeText(input.sha256(), 64))});
  }
  for (const auto& [key, value] : job_->labels()) {
    pairs.push_back({tr("label %1").arg(SafeText(key, 100)), SafeText(value, 300)});
  }
  pairs.push_back({tr("request id"), SafeText(job_->request_id(), 100)});
  if (job_->has_deadline()) {
    pairs.push_back(
        {tr("deadline"), FormatTime(ToMs(job_->deadline()), shown_cluster_.snapshot()->at_ms)});
  }
  if (job_->has_expire_time()) {
    pairs.push_back({tr("forgotten at"),
                     FormatTime(ToMs(job_->expire_time()), shown_cluster_.snapshot()->at_ms)});
  }
  parameters_->Update(std::move(pairs), std::equal_to<Pair>());
}

void JobDetail::ShowError() {
  const int tab = tabs_->count() - 1;
  const bool failed = job_->has_error();
  tabs_->setTabText(tab, failed ? ToneGlyph(StatusTone::kBad) + u' ' + tr("Error") : tr("Error"));
  if (failed) {
    error_->setText(tr("Reason: %1\n\n%2")
                        .arg(SafeText(job_->error().reason(), 100),
                             SafeText(job_->error().message(), kLongText)));
  } else if (job_->state() == v1::Job::CANCELLED) {
    error_->setText(tr("It was cancelled; that is no error."));
  } else if (job_->state() == v1::Job::EXPIRED) {
    error_->setText(tr("Nobody fetched its result in time, so the cluster has given it up."));
  } else {
    error_->setText(tr("None."));
  }
}

}  // namespace onepiece::gui
