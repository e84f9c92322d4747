#include "gui/views/draft_panel.h"

#include <QApplication>
#include <QClipboard>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QVBoxLayout>
#include <utility>

#include "cluster/session/link.h"
#include "gui/models/permissions.h"
#include "gui/models/plan_words.h"
#include "gui/views/prompts.h"

namespace onepiece::gui {

DraftPanel::DraftPanel(ShownCluster& shown_cluster, PlanDraft& draft, QWidget* parent)
    : QWidget(parent),
      shown_cluster_(shown_cluster),
      draft_(draft),
      title_(new QLabel(this)),
      note_(new QLabel(this)),
      split_(new QSplitter(Qt::Horizontal, this)),
      effect_(new EffectPanel(tr("Predicted effect"), this)) {
  const auto text = [](QString MoveRow::*field) {
    return [field](const MoveRow& row, int role) -> QVariant {
      if (role == kToneRole) return static_cast<int>(row.tone);
      return role == Qt::DisplayRole || role == Qt::ToolTipRole ? QVariant(row.*field) : QVariant();
    };
  };
  rows_ = std::make_unique<KeyedTable<MoveRow>>(
      std::vector<KeyedTable<MoveRow>::Column>{
          {tr("Instance"), tr("Node id"), text(&MoveRow::node)},
          {tr("Move"), tr("From where to where"), text(&MoveRow::move)},
          {tr("Loads"), tr("Model of its new pool, and whose work it is"), text(&MoveRow::loads)}},
      [](const MoveRow& row) { return row.key; });
  moves_ = new TablePanel(tr("Draft"), rows_.get(), this);
  moves_->SetEmptyText(
      tr("No move is drafted. Drag an instance to another pool, press M on one, or + and − on a "
         "pool."));
  moves_->FitColumns();
  split_->setChildrenCollapsible(false);
  split_->addWidget(moves_);
  split_->addWidget(effect_);
  moves_->table()->setTextElideMode(Qt::ElideMiddle);
  QFont bold = title_->font();
  bold.setBold(true);
  title_->setFont(bold);
  note_->setTextFormat(Qt::PlainText);
  note_->setWordWrap(true);
  note_->setObjectName(QStringLiteral("draft.note"));
  MakeButtons();
  auto* edits = new QHBoxLayout;
  edits->addWidget(title_);
  for (QToolButton* button : {undo_, redo_, clear_, copy_}) edits->addWidget(button);
  edits->addStretch();
  edits->addWidget(policy_);
  edits->addWidget(ask_);
  auto* start = new QHBoxLayout;
  auto* label = new QLabel(tr("Goes back unless it is kept within"), this);
  label->setBuddy(confirm_);
  start->addStretch();
  start->addWidget(label);
  start->addWidget(confirm_);
  start->addWidget(apply_);
  auto* notes = new QHBoxLayout;
  notes->addWidget(note_, 1);
  notes->addWidget(renew_, 0, Qt::AlignTop);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(6, 6, 6, 6);
  layout->addLayout(edits);
  layout->addLayout(notes);
  layout->addWidget(split_, 1);
  layout->addLayout(start);
}

void DraftPanel::SetOrientation(Qt::Orientation orientation) {
  split_->setOrientation(orientation);
  split_->setSizes({450, 550});
}

void DraftPanel::MakeButtons() {
  const auto tool = [this](const QString& text, const QString& name, auto&& run) {
    auto* made = new QToolButton(this);
    made->setText(text);
    made->setObjectName(name);
    made->setAccessibleName(text);
    connect(made, &QToolButton::clicked, this, run);
    return made;
  };
  const auto edit = [this](auto&& change) {
    return [this, change] {
      change();
      Q_EMIT Edited();
    };
  };
  undo_ = tool(tr("Undo"), QStringLiteral("draft.undo"), edit([this] { draft_.Undo(); }));
  redo_ = tool(tr("Redo"), QStringLiteral("draft.redo"), edit([this] { draft_.Redo(); }));
  clear_ = tool(tr("Clear"), QStringLiteral("draft.clear"), edit([this] { draft_.Clear(); }));
  copy_ = tool(tr("Copy as command"), QStringLiteral("draft.copy"),
               [this] { QApplication::clipboard()->setText(draft_.ToCommandLine()); });
  const auto push = [this](const QString& text, const QString& name) {
    auto* made = new QPushButton(text, this);
    made->setObjectName(name);
    made->setAutoDefault(false);
    return made;
  };
  ask_ = push(tr("Ask what it would do"), QStringLiteral("draft.ask"));
  policy_ = push(tr("What would the policy do?"), QStringLiteral("draft.policy"));
  apply_ = push(tr("Apply…"), QStringLiteral("draft.apply"));
  renew_ = push(tr("Draft again from now"), QStringLiteral("draft.renew"));
  connect(ask_, &QPushButton::clicked, this, &DraftPanel::Ask);
  connect(policy_, &QPushButton::clicked, this, &DraftPanel::AskPolicy);
  connect(apply_, &QPushButton::clicked, this, &DraftPanel::ApplyWanted);
  connect(renew_, &QPushButton::clicked, this, edit([this] {
            draft_.Renew();
            stale_why_.clear();
          }));
  confirm_ = new QComboBox(this);
  confirm_->setObjectName(QStringLiteral("draft.confirm"));
  confirm_->setAccessibleName(tr("How long the server waits to be told that the plan is kept"));
  for (const int minutes : {1, 5, 15, 60})
    confirm_->addItem(tr("%1 min").arg(minutes), minutes * 60);
  confirm_->addItem(tr("never: it stays"), 0);
  confirm_->setCurrentIndex(1);
}

QString DraftPanel::WhyNotAsk() const {
  if (shown_cluster_.session() == nullptr) return tr("No cluster is connected");
  if (QString why = shown_cluster_.WhyForbidden(methods::kProposePlan); !why.isEmpty()) return why;
  if (!shown_cluster_.live()) return tr("Viewing the past: press L to go live");
  if (dry_run_.has_value() && dry_run_->asking) return tr("The server is being asked");
  return {};
}

bool DraftPanel::IsCurrent() const {
  return dry_run_.has_value() && !dry_run_->asking && !draft_.empty() &&
         dry_run_->request == draft_.ToRequest().SerializeAsString();
}

const v1::Plan* DraftPanel::proposed() const {
  return IsCurrent() && dry_run_->plan.ok() ? &*dry_run_->plan : nullptr;
}

QString DraftPanel::WhyNotApply() const {
  if (draft_.empty()) return tr("No move is drafted");
  if (QString why = shown_cluster_.WhyNoChange(methods::kApplyPlan); !why.isEmpty()) return why;
  const v1::Plan* plan = proposed();
  if (plan == nullptr) {
    if (IsCurrent()) return tr("The server refuses it: see above");
    return tr("Ask first what it would do");
  }
  if (plan->base_revision() != draft_.board().plan_revision) {
    return tr("The assignment has changed since the dry run (revision %1, now %2): ask again")
        .arg(plan->base_revision())
        .arg(draft_.board().plan_revision);
  }
  return {};
}

void DraftPanel::Ask() {
  if (draft_.empty() || !WhyNotAsk().isEmpty()) return;
  Propose(draft_.ToRequest(), false);
}

void DraftPanel::AskPolicy() {
  if (WhyNotAsk().isEmpty()) Propose({}, true);
}

void DraftPanel::Propose(const v1::ProposePlanRequest& request, bool policy) {
  dry_run_ = DryRun{request.SerializeAsString(), draft_.board(), true};
  shown_cluster_.Ask<v1::Plan>(
      this, [request](client::Client& client) { return client.ProposePlan(request); },
      [this, policy](absl::StatusOr<v1::Plan> plan) { Answered(std::move(plan), policy); },
      policy ? tr("Ask what the policy would move")
             : tr("Ask what %1 would do").arg(MovesCount(request.moves_size())));
  Show();
}

void DraftPanel::Answered(absl::StatusOr<v1::Plan> plan, bool policy) {
  if (!dry_run_.has_value()) return;
  dry_run_->asking = false;
  dry_run_->plan = std::move(plan);
  if (policy && dry_run_->plan.ok()) {
    if (dry_run_->plan->moves().empty()) {
      const std::string& why = dry_run_->plan->reason();
      Q_EMIT Told(why.empty()
                      ? tr("The policy would move nothing now")
                      : tr("The policy would move nothing now: %1").arg(SafeText(why, 300)));
    } else {
      draft_.Replace(*dry_run_->plan);
      dry_run_->request = draft_.ToRequest().SerializeAsString();
      dry_run_->board = draft_.board();
      Q_EMIT Told(tr("The policy's moves are drafted: Ctrl+Z brings your draft back"));
    }
    Q_EMIT Edited();
  } else if (dry_run_->plan.ok()) {
    Q_EMIT Told(
        tr("The server has said what %1 would do").arg(MovesCount(dry_run_->plan->moves_size())));
  }
  Q_EMIT Edited();  // Other pages that draw the draft draw its prediction, too.
}

void DraftPanel::BecameStale(const QString& why) {
  stale_why_ = why;
  stale_board_ = dry_run_.has_value() ? dry_run_->board : draft_.board();
  Ask();
  Show();
}

void DraftPanel::Forget() {
  dry_run_.reset();
  stale_why_.clear();
}

QString DraftPanel::Note() const {
  QStringList lines;
  if (!stale_why_.isEmpty()) {
    lines << tr("Nothing was started, for the cluster has changed (%1).").arg(stale_why_);
    const QStringList changes = ChangesBetween(stale_board_, draft_.board());
    lines << (changes.isEmpty()
                  ? tr("What has changed is not seen yet.")
                  : tr("Changed since: %1.").arg(changes.mid(0, 6).join(QStringLiteral("; "))));
  }
  for (const QString& line : draft_.Stale()) lines << ToneGlyph(StatusTone::kWarning) + u' ' + line;
  if (!lines.isEmpty() && IsCurrent() && dry_run_->plan.ok() && !stale_why_.isEmpty())
    lines << tr("This is a new dry run: look at it, then apply it again.");
  for (const QString& line : draft_.Problems()) lines << ToneGlyph(StatusTone::kBad) + u' ' + line;
  if (IsCurrent() && !dry_run_->plan.ok())
    lines << tr("The server refuses it: %1")
                 .arg(SafeText(session::Explain(dry_run_->plan.status()), 300));
  for (const QString& line : draft_.Notes()) lines << line;
  return lines.join(u'\n');
}

void DraftPanel::ShowMoves() {
  std::vector<MoveRow> rows;
  v1::Plan plan;
  for (const DraftMove& drafted : draft_.moves()) {
    v1::Move& move = *plan.add_moves();
    *move.mutable_from() = drafted.from;
    *move.mutable_to() = drafted.to;
    const InstanceCard* card = draft_.board().Find(drafted.node_id);
    const bool stale = card == nullptr || !SamePlace(card->place, drafted.from);
    rows.push_back({QString::fromStdString(drafted.node_id), SafeText(drafted.node_id, 60),
                    QStringLiteral("%1 → %2").arg(PlaceName(drafted.from), PlaceName(drafted.to)),
                    LoadsText(move, draft_.board()),
                    stale ? StatusTone::kWarning : StatusTone::kNeutral});
  }
  const bool more = static_cast<int>(rows.size()) > rows_->rowCount();
  rows_->Update(std::move(rows), std::equal_to<MoveRow>());
  if (more) moves_->table()->resizeColumnsToContents();
}

void DraftPanel::ShowEffect() {
  if (draft_.empty()) return effect_->ShowNothing(tr("Of no move there is no effect."));
  if (dry_run_.has_value() && dry_run_->asking)
    return effect_->ShowNothing(tr("The server is being asked…"));
  const v1::Plan* plan = proposed();
  if (plan == nullptr) {
    return effect_->ShowNothing(IsCurrent() ? tr("The server refuses it: see above.")
                                            : tr("Not asked yet. “Ask what it would do” changes "
                                                 "nothing."));
  }
  effect_->Show(*plan, nullptr, 0);
}

void DraftPanel::Show() {
  if (draft_.empty()) stale_why_.clear();
  const int moves = static_cast<int>(draft_.moves().size());
  const QString title = moves == 0 ? tr("Draft") : tr("Draft: %1").arg(MovesCount(moves));
  if (title_->text() != title) title_->setText(title);
  const QString apply = moves == 0 ? tr("Apply…") : tr("Apply %1…").arg(MovesCount(moves));
  if (apply_->text() != apply) apply_->setText(apply);
  const QString drafts_only = tr("Of the draft alone: it never changes the cluster");
  EnableUnless(undo_, draft_.CanUndo() ? QString() : tr("Nothing to undo"),
               tr("Ctrl+Z. %1").arg(drafts_only));
  EnableUnless(redo_, draft_.CanRedo() ? QString() : tr("Nothing to redo"),
               tr("Ctrl+Y. %1").arg(drafts_only));
  const QString none = draft_.empty() ? tr("No move is drafted") : QString();
  EnableUnless(clear_, none, drafts_only);
  EnableUnless(copy_, none, draft_.ToCommandLine());
  const QString why_not_ask = WhyNotAsk();
  EnableUnless(ask_, none.isEmpty() ? why_not_ask : none,
               tr("A dry run: changes nothing, works in observe mode too"));
  EnableUnless(policy_, why_not_ask, tr("Drafts the moves that the policy would make now"));
  EnableUnless(apply_, WhyNotApply(), tr("Asks for a reason first"));
  renew_->setVisible(!draft_.Stale().isEmpty());
  const QString note = Note();
  if (note_->text() != note) note_->setText(note);
  note_->setVisible(!note.isEmpty());
  ShowMoves();
  ShowEffect();
}

}  // namespace onepiece::gui
