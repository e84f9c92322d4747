#include "gui/views/plans_panel.h"

#include <QHBoxLayout>
#include <QHeaderView>
#include <algorithm>
#include <utility>

#include "gui/models/permissions.h"
#include "gui/models/plan_words.h"
#include "gui/views/prompts.h"

namespace onepiece::gui {
namespace {

void SetText(QLabel* label, const QString& text) {
  if (label->text() != text) label->setText(text);
}

std::int64_t ServerNowMs(const ShownCluster& shown_cluster) {
  return shown_cluster.viewing_ms() +
         static_cast<std::int64_t>(shown_cluster.link().clock_skew_s * 1e3);
}

QString Chain(const v1::Plan& plan) {
  if (!plan.undo_of().empty()) return PlansPanel::tr("undoes %1").arg(SafeText(plan.undo_of(), 60));
  if (!plan.undone_by().empty())
    return PlansPanel::tr("undone by %1").arg(SafeText(plan.undone_by(), 60));
  return {};
}

template <typename Row>
auto Text(QString Row::*field) {
  return [field](const Row& row, int role) -> QVariant {
    return role == Qt::DisplayRole || role == Qt::ToolTipRole ? QVariant(row.*field) : QVariant();
  };
}

template <typename Row>
auto Toned(QString Row::*field) {
  return [field](const Row& row, int role) -> QVariant {
    if (role == kToneRole) return static_cast<int>(row.tone);
    if (role != Qt::DisplayRole && role != Qt::ToolTipRole) return {};
    return ToneGlyph(row.tone) + u' ' + row.*field;
  };
}

}  // namespace

std::vector<const v1::Plan*> PlansOf(const session::Snapshot& snapshot) {
  std::vector<const v1::Plan*> plans;
  const auto known = [&](const v1::Plan& plan) {
    return std::ranges::any_of(
        plans, [&](const v1::Plan* other) { return other->plan_id() == plan.plan_id(); });
  };
  // The session asks for the plans under way first. The list of plans came later, so its entry of
  // the same plan is at least as new.
  if (snapshot.plans.value != nullptr) {
    for (const v1::Plan& plan : snapshot.plans.value->plans()) plans.push_back(&plan);
  }
  if (snapshot.elasticity.value != nullptr) {
    for (const v1::Plan& plan : snapshot.elasticity.value->plans()) {
      if (!known(plan)) plans.insert(plans.begin(), &plan);
    }
  }
  return plans;
}

const v1::Plan* FindPlan(const session::Snapshot& snapshot, const QString& plan_id) {
  for (const v1::Plan* plan : PlansOf(snapshot)) {
    if (QString::fromStdString(plan->plan_id()) == plan_id) return plan;
  }
  return nullptr;
}

PlansPanel::PlansPanel(ShownCluster& shown_cluster, QWidget* parent)
    : QWidget(parent),
      shown_cluster_(shown_cluster),
      split_(new QSplitter(Qt::Horizontal, this)),
      details_(new QWidget(this)),
      about_(new QLabel(this)),
      keep_(new QPushButton(tr("Keep…"), this)),
      undo_(new QPushButton(this)),
      effect_(new EffectPanel(tr("Effect of the plan"), this)) {
  MakeTables();
  about_->setTextFormat(Qt::PlainText);
  about_->setWordWrap(true);
  about_->setAccessibleName(tr("About the plan"));
  keep_->setObjectName(QStringLiteral("plan.keep"));
  undo_->setObjectName(QStringLiteral("plan.undo"));
  auto* buttons = new QHBoxLayout;
  buttons->addWidget(keep_);
  buttons->addWidget(undo_);
  buttons->addStretch();
  auto* inside = new QVBoxLayout(details_);
  inside->setContentsMargins(0, 0, 0, 0);
  inside->addWidget(about_);
  inside->addLayout(buttons);
  inside->addWidget(move_table_, 2);
  inside->addWidget(effect_, 3);
  split_->setChildrenCollapsible(false);
  split_->addWidget(plans_);
  split_->addWidget(details_);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(6, 6, 6, 6);
  layout->addWidget(split_);
  connect(plans_, &TablePanel::ClearWanted, this, &PlansPanel::ClearFilterWanted);
  connect(plans_, &TablePanel::Current, this, [this] {
    const auto snapshot = shown_cluster_.snapshot();
    ShowDetails(*snapshot, MakePoolBoard(*snapshot));
  });
  connect(keep_, &QPushButton::clicked, this, [this] { Q_EMIT KeepWanted(current()); });
  connect(undo_, &QPushButton::clicked, this, [this] { Q_EMIT UndoWanted(current()); });
}

void PlansPanel::SetOrientation(Qt::Orientation orientation) {
  split_->setOrientation(orientation);
  split_->setSizes({400, 600});
}

void PlansPanel::MakeTables() {
  rows_ = std::make_unique<KeyedTable<PlanRow>>(
      std::vector<KeyedTable<PlanRow>::Column>{
          {tr("Plan"), tr("Its id"), Text(&PlanRow::key)},
          {tr("State"), tr("Where it is"), Toned(&PlanRow::state)},
          {tr("When"), tr("When it began"),
           [](const PlanRow& row, int role) -> QVariant {
             if (role == kSortRole) return row.created;
             return role == Qt::DisplayRole || role == Qt::ToolTipRole ? QVariant(row.when)
                                                                       : QVariant();
           }},
          {tr("By"), tr("An operator or the policy"), Text(&PlanRow::actor)},
          {tr("Moves"), tr("Instances and where they go"), Text(&PlanRow::moves)},
          {tr("Reason"), tr("What was given as the reason"), Text(&PlanRow::reason)},
          {tr("Undo"), tr("The plan that it undoes, or that has undone it"),
           Text(&PlanRow::chain)}},
      [](const PlanRow& row) { return row.key; });
  plans_ = new TablePanel(tr("Plans"), rows_.get(), this);
  plans_->SetEmptyText(tr("There are no plans."));
  moves_ = std::make_unique<KeyedTable<MoveRow>>(
      std::vector<KeyedTable<MoveRow>::Column>{
          {tr("Instance"), tr("Node id"), Text(&MoveRow::key)},
          {tr("Phase"), tr("Where the move is"), Toned(&MoveRow::phase)},
          {tr("For"), tr("How long it has been in this phase"), Text(&MoveRow::since)},
          {tr("From"), tr("Its place before"), Text(&MoveRow::from)},
          {tr("To"), tr("Its place afterwards"), Text(&MoveRow::to)},
          {tr("Detail"), tr("What the server says of it"), Text(&MoveRow::detail)}},
      [](const MoveRow& row) { return row.key; });
  move_table_ = new TablePanel(tr("Moves of the plan"), moves_.get(), this);
  move_table_->table()->horizontalHeader()->setStretchLastSection(true);
}

void PlansPanel::Show(const session::Snapshot& snapshot, const PoolBoard& board) {
  std::vector<PlanRow> rows;
  const std::int64_t now_ms = shown_cluster_.viewing_ms();
  for (const v1::Plan* plan : PlansOf(snapshot)) {
    rows.push_back({.key = SafeText(plan->plan_id(), 80),
                    .state = PlanStateName(plan->state()),
                    .when = FormatTime(plan->create_unix_ms(), now_ms),
                    .actor = SafeText(plan->actor(), 60),
                    .moves = MovesSummary(*plan),
                    .reason = SafeText(plan->reason(), 200),
                    .chain = Chain(*plan),
                    .tone = PlanStateTone(plan->state()),
                    .created = plan->create_unix_ms()});
  }
  const bool first = rows_->rowCount() == 0 && !rows.empty();
  rows_->Update(std::move(rows), std::equal_to<PlanRow>());
  if (first) {
    plans_->table()->resizeColumnsToContents();
    for (const int column : {4, 5}) {  // Long texts are elided. Their tips have all of it.
      plans_->table()->setColumnWidth(column,
                                      std::min(plans_->table()->columnWidth(column),
                                               plans_->fontMetrics().averageCharWidth() * 40));
    }
    plans_->table()->selectRow(0);
  }
  ShowDetails(snapshot, board);
}

void PlansPanel::ShowDetails(const session::Snapshot& snapshot, const PoolBoard& board) {
  const v1::Plan* plan = FindPlan(snapshot, current());
  for (QWidget* each : std::initializer_list<QWidget*>{keep_, undo_, move_table_, effect_})
    each->setVisible(plan != nullptr);
  if (plan == nullptr) return SetText(about_, tr("Choose a plan to see it in full."));
  const std::int64_t now_ms = shown_cluster_.viewing_ms();
  QString about = tr("%1 %2, by %3 at %4")
                      .arg(SafeText(plan->plan_id(), 80), PlanStateName(plan->state()),
                           SafeText(plan->actor(), 60), FormatTime(plan->create_unix_ms(), now_ms));
  if (!plan->reason().empty()) about += QStringLiteral(": ") + SafeText(plan->reason(), 300);
  if (const QString chain = Chain(*plan); !chain.isEmpty()) about += u'\n' + chain;
  if (plan->state() == v1::Plan::UNCONFIRMED)
    about += u'\n' + ConfirmText(*plan, now_ms, shown_cluster_.link().clock_skew_s);
  SetText(about_, about);
  const bool ended = HasEnded(*plan);
  const QString why = shown_cluster_.WhyNoChange(methods::kUndoPlan);
  keep_->setVisible(!ended && plan->confirm_by_unix_ms() != 0);
  EnableUnless(keep_, shown_cluster_.WhyNoChange(methods::kConfirmPlan));
  undo_->setText(ended ? UndoTitle(*plan, now_ms) + u'…' : tr("Revert now…"));
  undo_->setVisible(plan->state() != v1::Plan::REVERTING);
  EnableUnless(undo_, !why.isEmpty() ? why
                      : ended        ? WhyNoUndo(*plan, board, snapshot.plans.value.get())
                                     : QString());
  std::vector<MoveRow> moves;
  for (const v1::Move& move : plan->moves()) {
    const double since =
        static_cast<double>(ServerNowMs(shown_cluster_) - move.phase_since_unix_ms()) / 1e3;
    moves.push_back({.key = SafeText(move.node_id(), 80),
                     .from = PlaceName(move.from()),
                     .to = PlaceName(move.to()),
                     .phase = PhaseName(move.phase()),
                     .since = ended || move.phase_since_unix_ms() == 0
                                  ? QString()
                                  : FormatSeconds(std::max(0.0, std::floor(since))),
                     .detail = SafeText(move.detail(), 300),
                     .tone = PhaseTone(move.phase())});
  }
  const bool fresh = moves_->rowCount() == 0;
  moves_->Update(std::move(moves), std::equal_to<MoveRow>());
  if (fresh) move_table_->table()->resizeColumnsToContents();
  // Measured values are compared with the last plan only: later plans have changed the effect of
  // earlier ones.
  const bool last = PlansOf(snapshot).front()->plan_id() == plan->plan_id();
  effect_->Show(*plan, last ? snapshot.elasticity.value.get() : nullptr,
                ServerNowMs(shown_cluster_));
}

PlanStrips::PlanStrips(ShownCluster& shown_cluster, QWidget* parent)
    : QWidget(parent),
      shown_cluster_(shown_cluster),
      layout_(new QVBoxLayout(this)),
      more_(new QLabel(this)) {
  layout_->setContentsMargins(0, 0, 0, 0);
  layout_->setSpacing(4);
  layout_->addWidget(more_);
  more_->hide();
  hide();
}

PlanStrips::Strip PlanStrips::MakeStrip(const QString& plan_id) {
  Strip strip{plan_id, new QFrame(this), nullptr, nullptr, nullptr};
  strip.frame->setFrameShape(QFrame::StyledPanel);
  strip.frame->setObjectName(QStringLiteral("strip.") + plan_id);
  strip.frame->setBackgroundRole(QPalette::AlternateBase);
  strip.frame->setAutoFillBackground(true);
  auto* line = new QHBoxLayout(strip.frame);
  line->setContentsMargins(8, 4, 8, 4);
  strip.text = new QLabel(strip.frame);
  strip.text->setTextFormat(Qt::PlainText);
  strip.text->setWordWrap(true);
  line->addWidget(strip.text, 1);
  const bool lost = plan_id.isEmpty();
  strip.keep = new QPushButton(lost ? tr("Ask again") : tr("Keep…"), strip.frame);
  strip.undo = new QPushButton(lost ? tr("Leave it") : tr("Revert now…"), strip.frame);
  strip.keep->setObjectName(lost ? QStringLiteral("again") : QStringLiteral("keep"));
  strip.undo->setObjectName(lost ? QStringLiteral("leave") : QStringLiteral("revert"));
  line->addWidget(strip.keep);
  line->addWidget(strip.undo);
  if (lost) {
    connect(strip.keep, &QPushButton::clicked, this, &PlanStrips::SendAgainWanted);
    connect(strip.undo, &QPushButton::clicked, this, &PlanStrips::LeaveItWanted);
    return strip;
  }
  strip.keep->setAccessibleName(tr("Keep plan %1").arg(plan_id));
  strip.undo->setAccessibleName(tr("Revert plan %1 now").arg(plan_id));
  auto* details = new QPushButton(tr("Details"), strip.frame);
  details->setAccessibleName(tr("Details of plan %1").arg(plan_id));
  line->addWidget(details);
  connect(strip.keep, &QPushButton::clicked, this, [this, plan_id] { Q_EMIT KeepWanted(plan_id); });
  connect(strip.undo, &QPushButton::clicked, this, [this, plan_id] { Q_EMIT UndoWanted(plan_id); });
  connect(details, &QPushButton::clicked, this, [this, plan_id] { Q_EMIT DetailsWanted(plan_id); });
  return strip;
}

void PlanStrips::ShowPlan(Strip& strip, const v1::Plan& plan) {
  const std::int64_t now_ms = shown_cluster_.viewing_ms();
  QString text = tr("%1 Plan %2 %3, by %4: ")
                     .arg(ToneGlyph(PlanStateTone(plan.state())), SafeText(plan.plan_id(), 60),
                          PlanStateName(plan.state()), SafeText(plan.actor(), 60));
  text +=
      plan.state() == v1::Plan::UNCONFIRMED
          ? QStringLiteral("%1; %2").arg(
                ConfirmText(plan, now_ms, shown_cluster_.link().clock_skew_s), MovesSummary(plan))
          : ProgressText(plan, ServerNowMs(shown_cluster_));
  SetText(strip.text, text);
  strip.keep->setVisible(plan.confirm_by_unix_ms() != 0 && plan.state() != v1::Plan::REVERTING);
  strip.undo->setVisible(plan.state() != v1::Plan::REVERTING);
  EnableUnless(strip.keep, shown_cluster_.WhyNoChange(methods::kConfirmPlan));
  EnableUnless(strip.undo, shown_cluster_.WhyNoChange(methods::kUndoPlan));
}

void PlanStrips::Show(const session::Snapshot& snapshot, const QString& unanswered) {
  std::vector<const v1::Plan*> plans;
  for (const v1::Plan* plan : PlansOf(snapshot)) {
    if (!HasEnded(*plan)) plans.push_back(plan);
  }
  // Plans that must be confirmed in time come first.
  std::ranges::stable_sort(
      plans, {}, [](const v1::Plan* plan) { return plan->state() != v1::Plan::UNCONFIRMED; });
  std::vector<QString> wanted;
  if (!unanswered.isEmpty()) wanted.emplace_back();
  for (std::size_t i = 0; i < std::min(plans.size(), kMost); ++i)
    wanted.push_back(QString::fromStdString(plans[i]->plan_id()));
  if (!std::ranges::equal(wanted, strips_, {}, {}, &Strip::plan_id)) {
    std::vector<Strip> strips;
    for (const QString& plan_id : wanted) {
      const auto known = std::ranges::find(strips_, plan_id, &Strip::plan_id);
      if (known == strips_.end()) {
        strips.push_back(MakeStrip(plan_id));
        continue;
      }
      strips.push_back(*known);
      strips_.erase(known);
    }
    for (const Strip& gone : strips_) {
      gone.frame->hide();
      gone.frame->deleteLater();  // A click on one of its buttons may have led here.
    }
    strips_ = std::move(strips);
    for (std::size_t i = 0; i < strips_.size(); ++i)
      layout_->insertWidget(static_cast<int>(i), strips_[i].frame);
  }
  for (Strip& strip : strips_) {
    if (strip.plan_id.isEmpty()) {
      SetText(strip.text, ToneGlyph(StatusTone::kWarning) + u' ' + unanswered);
      EnableUnless(strip.keep, shown_cluster_.WhyNoChange(methods::kApplyPlan));
    } else {
      ShowPlan(strip, *FindPlan(snapshot, strip.plan_id));
    }
  }
  SetText(more_, plans.size() > kMost ? tr("%1 more under way: see Plans").arg(plans.size() - kMost)
                                      : QString());
  more_->setVisible(plans.size() > kMost);
  setVisible(!strips_.empty());
}

}  // namespace onepiece::gui
