#include "gui/views/rebalance.h"

#include <QHBoxLayout>
#include <QMenu>
#include <QResizeEvent>
#include <QShortcut>
#include <QVBoxLayout>
#include <algorithm>
#include <utility>

#include "gui/models/plan_words.h"
#include "gui/views/prompts.h"

namespace onepiece::gui {
namespace {

/// From this width on, in average characters, draft and plans stand beside the pools and not below
/// them.
constexpr int kWideChars = 230;

bool WaitsToBeKept(const v1::Plan& plan) {
  return !HasEnded(plan) && plan.state() != v1::Plan::REVERTING && plan.confirm_by_unix_ms() != 0;
}

bool CanBeTakenBack(const v1::Plan& plan) {
  return plan.state() == v1::Plan::DONE || plan.state() == v1::Plan::RUNNING ||
         plan.state() == v1::Plan::UNCONFIRMED;
}

}  // namespace

RebalanceView::RebalanceView(ShownCluster& shown_cluster, QWidget* parent)
    : View(QStringLiteral("rebalance"), tr("Rebalance"), shown_cluster, parent),
      actions_(new PlanActions(shown_cluster, this)),
      strips_(new PlanStrips(shown_cluster, this)),
      policy_(new QLabel(this)),
      hold_(new QPushButton(tr("Hold automatic moves 30 min…"), this)),
      release_(new QPushButton(tr("Release…"), this)),
      split_(new QSplitter(Qt::Vertical, this)),
      columns_(new PoolColumns(this)),
      tabs_(new QTabWidget(this)),
      panel_(new DraftPanel(shown_cluster, draft_, this)),
      plans_(new PlansPanel(shown_cluster, this)) {
  MakeLayout();
  ConnectParts();
  clock_.setInterval(500);
  connect(&clock_, &QTimer::timeout, this, &RebalanceView::ShowTimes);
  clock_.start();
}

void RebalanceView::MakeLayout() {
  policy_->setTextFormat(Qt::PlainText);
  policy_->setWordWrap(true);
  policy_->setAccessibleName(tr("What the policy does"));
  hold_->setObjectName(QStringLiteral("hold"));
  release_->setObjectName(QStringLiteral("release"));
  auto* head = new QHBoxLayout;
  head->addWidget(policy_, 1);
  head->addWidget(hold_);
  head->addWidget(release_);
  tabs_->addTab(panel_, tr("Draft"));
  tabs_->addTab(plans_, tr("Plans"));
  tabs_->setDocumentMode(true);
  tabs_->setAccessibleName(tr("Draft and plans"));
  split_->setChildrenCollapsible(false);
  split_->addWidget(columns_);
  split_->addWidget(tabs_);
  columns_->setMinimumHeight(fontMetrics().height() * 11);
  columns_->setMinimumWidth(fontMetrics().averageCharWidth() * 44);
  auto* layout = new QVBoxLayout(this);
  layout->addLayout(head);
  layout->addWidget(strips_);
  layout->addWidget(split_, 1);
}

void RebalanceView::ConnectParts() {
  for (const auto& [key, redo] :
       {std::pair(QKeySequence::Undo, false), {QKeySequence::Redo, true}}) {
    auto* shortcut = new QShortcut(QKeySequence(key), this);
    shortcut->setContext(Qt::WidgetWithChildrenShortcut);
    connect(shortcut, &QShortcut::activated, this, [this, redo = redo] {
      redo ? draft_.Redo() : draft_.Undo();
      Edited();
    });
  }
  connect(columns_, &PoolColumns::MoveWanted, this, &RebalanceView::Move);
  connect(columns_, &PoolColumns::MoreWanted, this,
          [this](const PoolKey& pool) { Edited(draft_.Add(pool)); });
  connect(columns_, &PoolColumns::LessWanted, this,
          [this](const PoolKey& pool) { Edited(draft_.Remove(pool)); });
  connect(columns_, &PoolColumns::LimitsWanted, this, [this](const PoolKey& pool) {
    const QString why = shown_cluster().WhyNoChange(methods::kSetPoolLimits);
    if (!why.isEmpty()) return Edited(why);
    actions_->AskLimits(pool);
  });
  connect(columns_, &PoolColumns::MenuWanted, this, &RebalanceView::AskMenu);
  connect(columns_, &PoolColumns::DetailsWanted, this, [this](const std::string& id) {
    Q_EMIT Wanted(this->id(), QStringLiteral("node/") + QString::fromStdString(id));
  });
  connect(panel_, &DraftPanel::Edited, this, [this] { Edited(); });
  connect(panel_, &DraftPanel::ApplyWanted, this, &RebalanceView::RunApply);
  connect(panel_, &DraftPanel::Told, this, &RebalanceView::Told);
  connect(plans_, &PlansPanel::KeepWanted, this, &RebalanceView::RunKeep);
  connect(plans_, &PlansPanel::UndoWanted, this, &RebalanceView::RunUndo);
  connect(plans_, &PlansPanel::ClearFilterWanted, this, &RebalanceView::ClearFilterWanted);
  connect(strips_, &PlanStrips::KeepWanted, this, &RebalanceView::RunKeep);
  connect(strips_, &PlanStrips::UndoWanted, this, &RebalanceView::RunUndo);
  connect(strips_, &PlanStrips::DetailsWanted, this,
          [this](const QString& id) { Focus(QStringLiteral("plan/") + id); });
  connect(strips_, &PlanStrips::SendAgainWanted, actions_, &PlanActions::SendAgain);
  connect(strips_, &PlanStrips::LeaveItWanted, actions_, &PlanActions::LeaveIt);
  connect(actions_, &PlanActions::Told, this, &RebalanceView::Told);
  connect(actions_, &PlanActions::Stale, panel_, &DraftPanel::BecameStale);
  connect(actions_, &PlanActions::DraftBegan, this, [this] {
    draft_.Clear();  // Undo brings it back.
    Edited();
  });
  connect(actions_, &PlanActions::UnansweredChanged, this, &RebalanceView::ShowTimes);
  connect(hold_, &QPushButton::clicked, this, &RebalanceView::RunHold);
  connect(release_, &QPushButton::clicked, actions_, &PlanActions::Release);
}

void RebalanceView::Draw(const session::Snapshot& snapshot) {
  if (connection_ != shown_cluster().connection()) {  // The draft is not for this cluster.
    connection_ = shown_cluster().connection();
    draft_ = PlanDraft();
    seen_cluster_ = nullptr;
    panel_->Forget();
    actions_->LeaveIt();
    Edited();
  }
  if (snapshot.cluster.value != seen_cluster_ || snapshot.elasticity.value != seen_elasticity_ ||
      seen_cluster_ == nullptr) {
    seen_cluster_ = snapshot.cluster.value;
    seen_elasticity_ = snapshot.elasticity.value;
    draft_.See(MakePoolBoard(snapshot));
    columns_->Show(draft_);
  }
  panel_->Show();
  ShowTimes();
}

void RebalanceView::ShowTimes() {
  if (!isVisible()) return;
  const auto snapshot = shown_cluster().snapshot();
  ShowPolicy(*snapshot);
  strips_->Show(*snapshot, actions_->unanswered());
  if (plans_->isVisible()) plans_->Show(*snapshot, draft_.board());
  const int plans = static_cast<int>(PlansOf(*snapshot).size());
  tabs_->setTabText(1, plans == 0 ? tr("Plans") : tr("Plans (%1)").arg(plans));
}

void RebalanceView::ShowPolicy(const session::Snapshot& snapshot) {
  QStringList lines;
  const v1::Elasticity* elasticity = snapshot.elasticity.value.get();
  const bool held = elasticity != nullptr && elasticity->hold().active();
  if (elasticity == nullptr) {
    lines << (snapshot.elasticity.error.empty()
                  ? tr("Pools and policy: nothing has been heard yet.")
                  : tr("Pools and policy are not known: %1")
                        .arg(SafeText(snapshot.elasticity.error, 300)));
  } else {
    QString line =
        tr("Policy %1, mean over %2.")
            .arg(SafeText(elasticity->policy(), 40), FormatSeconds(elasticity->window_s()));
    if (!elasticity->policy_detail().empty())
      line += tr(" Moves nothing now: %1").arg(SafeText(elasticity->policy_detail(), 300));
    lines << line;
    if (held) {
      const v1::Hold& hold = elasticity->hold();
      const std::int64_t now_ms = shown_cluster().viewing_ms();
      const auto skew_ms = static_cast<std::int64_t>(shown_cluster().link().clock_skew_s * 1e3);
      lines << tr("Hold: no automatic moves %1, by %2%3")
                   .arg(
                       hold.until_unix_ms() == 0
                           ? tr("until it is released")
                           : tr("until %1").arg(FormatTime(hold.until_unix_ms() - skew_ms, now_ms)),
                       SafeText(hold.actor(), 60),
                       hold.reason().empty() ? QString()
                                             : QStringLiteral(": ") + SafeText(hold.reason(), 200));
    }
    if (!snapshot.elasticity.error.empty()) {
      lines << tr("As of %1: %2")
                   .arg(FormatAge(snapshot.elasticity.as_of_ms, snapshot.at_ms),
                        SafeText(snapshot.elasticity.error, 200));
    }
  }
  const QString text = lines.join(u'\n');
  if (policy_->text() != text) policy_->setText(text);
  const QString why = shown_cluster().WhyNoChange(methods::kSetHold);
  EnableUnless(hold_, why);
  EnableUnless(release_, why);
  release_->setVisible(held);
}

void RebalanceView::Edited(const QString& why_not) {
  if (!why_not.isEmpty()) Q_EMIT Told(why_not);
  columns_->Show(draft_);
  panel_->Show();
  if (why_not.isEmpty()) tabs_->setCurrentWidget(panel_);
  const int moves = static_cast<int>(draft_.moves().size());
  tabs_->setTabText(0, moves == 0 ? tr("Draft") : tr("Draft (%1)").arg(moves));
  drafted_.reset();
  if (const v1::Plan* proposed = panel_->proposed(); proposed != nullptr) {
    drafted_ = *proposed;
  } else if (moves > 0) {
    drafted_.emplace().set_state(v1::Plan::PROPOSED);
    for (const DraftMove& drafted : draft_.moves()) {
      v1::Move& move = *drafted_->add_moves();
      move.set_node_id(drafted.node_id);
      move.set_incarnation(drafted.incarnation);
      *move.mutable_from() = drafted.from;
      *move.mutable_to() = drafted.to;
    }
  }
  Q_EMIT DraftChanged();
}

void RebalanceView::Move(const std::string& node_id, const PoolKey& to) {
  const QString why = draft_.MoveTo(node_id, to);
  Edited(why);
  if (why.isEmpty()) columns_->SelectNode(node_id);  // The focus follows the card.
}

void RebalanceView::AskMenu(const std::string& node_id, const QPoint& at) {
  const InstanceCard* card = draft_.board().Find(node_id);
  if (card == nullptr) return;
  columns_->SelectNode(node_id);
  auto* menu = new QMenu(tr("Move %1").arg(SafeText(node_id, 60)), this);
  menu->setObjectName(QStringLiteral("card.menu"));
  menu->setAttribute(Qt::WA_DeleteOnClose);
  menu->addSection(menu->title());
  const v1::Placement place = draft_.PlaceOf(*card);
  for (const PoolColumn& column : draft_.board().columns) {
    QAction* action = menu->addAction(tr("Move to %1").arg(PoolName(column.key)));
    action->setEnabled(column.key.workflow_set != place.workflow_set() ||
                       column.key.pool != place.pool());
    connect(action, &QAction::triggered, this,
            [this, node_id, key = column.key] { Move(node_id, key); });
  }
  menu->addSeparator();
  for (const Command& command : NodeCommands()) {
    const QString why = shown_cluster().WhyNoChange(command.method);
    QAction* action = menu->addAction(command.title);
    action->setEnabled(why.isEmpty());
    action->setToolTip(SafeTip(why));
    connect(action, &QAction::triggered, this, command.run);
  }
  menu->setToolTipsVisible(true);
  menu->popup(at);
}

void RebalanceView::RunPlan() {
  tabs_->setCurrentWidget(panel_);
  if (draft_.empty()) {
    panel_->AskPolicy();
  } else {
    panel_->Ask();
  }
}

void RebalanceView::RunApply() {
  const QString why = panel_->WhyNotApply();
  if (!why.isEmpty()) {
    Q_EMIT Told(why);
    return;
  }
  actions_->Apply(*panel_->proposed(), panel_->confirm_within_s());
}

const v1::Plan* RebalanceView::Chosen(bool (*wanted)(const v1::Plan&)) {
  const auto snapshot = shown_cluster().snapshot();
  const v1::Plan* plan = FindPlan(*snapshot, plans_->current());
  if (plans_->isVisible() && plan != nullptr && wanted(*plan)) return plan;
  for (const v1::Plan* each : PlansOf(*snapshot)) {
    if (wanted(*each)) return each;
  }
  return nullptr;
}

void RebalanceView::RunKeep(const QString& plan_id) {
  const auto snapshot = shown_cluster().snapshot();
  const v1::Plan* plan = plan_id.isEmpty() ? Chosen(WaitsToBeKept) : FindPlan(*snapshot, plan_id);
  if (plan == nullptr) {
    Q_EMIT Told(tr("No plan waits to be kept"));
    return;
  }
  actions_->Keep(*plan);
}

void RebalanceView::RunUndo(const QString& plan_id) {
  const auto snapshot = shown_cluster().snapshot();
  const v1::Plan* plan = plan_id.isEmpty() ? Chosen(CanBeTakenBack) : FindPlan(*snapshot, plan_id);
  if (plan == nullptr) {
    Q_EMIT Told(tr("No plan can be taken back"));
    return;
  }
  if (HasEnded(*plan)) {
    const QString why = WhyNoUndo(*plan, draft_.board(), snapshot->plans.value.get());
    if (!why.isEmpty()) {
      Q_EMIT Told(tr("Plan %1 cannot be undone. %2").arg(SafeText(plan->plan_id(), 60), why));
      return;
    }
  }
  actions_->Undo(*plan);
}

void RebalanceView::RunHold() { actions_->Hold(kHoldS); }

std::vector<Command> RebalanceView::NodeCommands() {
  const auto node = [this](const char* id, const QString& title, const char* cli, auto run) {
    return Command{QString::fromLatin1(id),
                   title,
                   QString::fromLatin1(cli),
                   {},
                   true,
                   [this, run] {
                     if (const std::string chosen = columns_->current(); !chosen.empty()) {
                       run(chosen);
                     } else {
                       Q_EMIT Told(tr("Choose an instance first"));
                     }
                   },
                   methods::kApplyPlan};
  };
  return {node("node.drain", tr("Drain to be removed…"), "onepiece drain",
               [this](const std::string& id) { actions_->Drain(id); }),
          node("node.pin", tr("Pin where it is…"), "onepiece pin",
               [this](const std::string& id) { actions_->Pin(id, true); }),
          node("node.unpin", tr("Unpin…"), "onepiece unpin",
               [this](const std::string& id) { actions_->Pin(id, false); })};
}

std::vector<Command> RebalanceView::Commands() {
  std::vector<Command> commands = {
      {QStringLiteral("rebalance.plan"), tr("Ask what a rebalance would do"),
       QStringLiteral("onepiece rebalance plan"), QStringLiteral("Ctrl+Shift+R"), false,
       [this] { RunPlan(); }, methods::kProposePlan},
      {QStringLiteral("rebalance.apply"),
       tr("Apply the drafted moves…"),
       QStringLiteral("onepiece rebalance apply"),
       {},
       true,
       [this] { RunApply(); },
       methods::kApplyPlan},
      {QStringLiteral("rebalance.keep"),
       tr("Keep the plan that waits…"),
       QStringLiteral("onepiece rebalance confirm"),
       {},
       true,
       [this] { RunKeep({}); },
       methods::kConfirmPlan},
      {QStringLiteral("rebalance.undo"),
       tr("Undo a plan…"),
       QStringLiteral("onepiece rebalance undo"),
       {},
       true,
       [this] { RunUndo({}); },
       methods::kUndoPlan},
      {QStringLiteral("rebalance.hold"),
       tr("Hold automatic moves for 30 min…"),
       QStringLiteral("onepiece rebalance hold --for 1800"),
       {},
       true,
       [this] { RunHold(); },
       methods::kSetHold},
      {QStringLiteral("rebalance.release"),
       tr("Release automatic moves…"),
       QStringLiteral("onepiece rebalance hold --release"),
       {},
       true,
       [this] { actions_->Release(); },
       methods::kSetHold},
      {QStringLiteral("pool.limits"),
       tr("Limits of the pool…"),
       QStringLiteral("onepiece rebalance limits"),
       {},
       true,
       [this] {
         if (pool_.pool.empty()) {
           Q_EMIT Told(tr("Choose a pool first"));
         } else {
           actions_->AskLimits(pool_);
         }
       },
       methods::kSetPoolLimits}};
  for (Command& command : NodeCommands()) commands.push_back(std::move(command));
  return commands;
}

void RebalanceView::Focus(const QString& entity) {
  const QString kind = entity.section(u'/', 0, 0), rest = entity.section(u'/', 1);
  if (kind == QStringLiteral("plan")) {
    tabs_->setCurrentWidget(plans_);
    plans_->Show(*shown_cluster().snapshot(), draft_.board());
    plans_->Select(rest);
  } else if (kind == QStringLiteral("pool")) {
    pool_ = {rest.section(u'/', 0, 0).toStdString(), rest.section(u'/', 1).toStdString()};
    columns_->SelectPool(pool_);
  } else if (kind == QStringLiteral("node")) {
    columns_->SelectNode(rest.toStdString());
  }
}

void RebalanceView::SetFilter(const QString& text) {
  columns_->SetFilter(text);
  columns_->Show(draft_);
  plans_->SetFilter(text);
}

void RebalanceView::resizeEvent(QResizeEvent* event) {
  View::resizeEvent(event);
  const bool wide = width() > fontMetrics().averageCharWidth() * kWideChars;
  if (wide_ == wide) return;
  wide_ = wide;
  split_->setOrientation(wide ? Qt::Horizontal : Qt::Vertical);
  split_->setSizes(wide ? QList<int>{550, 450} : QList<int>{520, 480});
  panel_->SetOrientation(wide ? Qt::Vertical : Qt::Horizontal);
  plans_->SetOrientation(wide ? Qt::Vertical : Qt::Horizontal);
}

QString RebalanceView::Help() const {
  return tr(
      "Moves instances between pools: compose, ask, apply, keep or undo.\n\n"
      "Compose: drag a card to another pool, or choose it with the arrow keys and press M; + and − "
      "of a pool (or the keys + and −) choose an instance: idle ones first, never one that is "
      "pinned or moving. Dashed cards come by the draft, struck-out ones leave. Ctrl+Z and Ctrl+Y "
      "are of the draft alone.\n\n"
      "Ask what it would do (Ctrl+Shift+R; without a draft: what the policy would do): the server "
      "predicts throughput, ρ (offered work over capacity; above 100 % the rest is turned away) "
      "and waits. In brackets: 95 % of what the measured spread allows. It changes nothing and "
      "works in observe mode.\n\n"
      "Apply needs a reason. It is refused when the cluster has changed since the dry run; then "
      "there is a new one to look at. The server takes the plan back unless somebody keeps it in "
      "time, also when this console is gone.\n\n"
      "Plans: all that have been made, by whom and why. What is measured is set against the "
      "prediction once a window lies behind the last move. A plan can be undone while its "
      "instances are where it has put them.");
}

}  // namespace onepiece::gui
