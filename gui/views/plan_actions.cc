#include "gui/views/plan_actions.h"

#include <QDialog>
#include <QDialogButtonBox>
#include <QFormLayout>
#include <QLabel>
#include <QPushButton>
#include <QSpinBox>
#include <utility>

#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/session/link.h"
#include "gui/models/permissions.h"
#include "gui/models/plan_words.h"
#include "gui/views/prompts.h"

namespace onepiece::gui {
namespace {

constexpr int kMaxInstances = 4096;  // The CLI has the same limit.

/// True if the change may have been made. Only the same request with the same id can tell.
bool IsUnanswered(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
      return true;
    default:
      return false;
  }
}

QStringList MoveLines(const v1::Plan& plan, const PoolBoard& board) {
  QStringList lines;
  for (const v1::Move& move : plan.moves()) {
    QString line =
        QStringLiteral("%1: %2 → %3")
            .arg(SafeText(move.node_id(), 60), PlaceName(move.from()), PlaceName(move.to()));
    const QString loads = LoadsText(move, board);
    if (!loads.isEmpty()) line += PlanActions::tr(", loads %1").arg(loads);
    lines << line;
  }
  return lines;
}

QString EffectText(const v1::Plan& plan, const Transient& transient) {
  QStringList lines;
  lines << (transient.text.isEmpty()
                ? PlanActions::tr("No pool loses an instance while it goes on.")
                : PlanActions::tr("Worst while it goes on: %1.").arg(transient.text));
  const v1::Prediction& prediction = plan.prediction();
  if (!prediction.insufficient_data().empty()) {
    lines << PlanActions::tr("What it will do is not known, insufficient data: %1.")
                 .arg(SafeText(prediction.insufficient_data(), 200));
  } else if (!prediction.basis().empty()) {
    lines << PlanActions::tr("Predicted loss: %1 of worker time. No job is lost.")
                 .arg(FormatSeconds(prediction.transient_loss_s()));
  }
  return lines.join(u'\n');
}

QString PolicyText(const session::Snapshot& snapshot) {
  const v1::Elasticity* elasticity = snapshot.elasticity.value.get();
  if (elasticity == nullptr || elasticity->hold().active() || elasticity->policy() == "static" ||
      elasticity->policy().empty())
    return {};
  return PlanActions::tr(
             "Automatic moves are on (policy %1) and may move instances again: hold them first "
             "if they must not.")
      .arg(SafeText(elasticity->policy(), 40));
}

/// Says who asks and why, with an id by which the server knows a repeated request.
template <typename Request>
void Sign(Request& request, const QString& reason) {
  request.set_actor(Actor());
  request.set_reason(reason.toStdString());
  request.set_request_id(base::Uid::GenerateRandom().ToString());
}

}  // namespace

PlanActions::PlanActions(ShownCluster& shown_cluster, QWidget* parent)
    : QObject(parent), shown_cluster_(shown_cluster), parent_(parent) {}

void PlanActions::Send(const QString& what, const Call& call, bool draft) {
  LeaveIt();
  Q_EMIT Told(tr("%1: asked for").arg(what));
  const int asked = shown_cluster_.connection();
  shown_cluster_.Ask<v1::Plan>(
      this, call,
      [this, what, call, draft, asked](absl::StatusOr<v1::Plan> plan) {
        if (asked != shown_cluster_.connection()) return;  // The answer is from another cluster.
        if (plan.ok()) {
          const QString id = SafeText(plan->plan_id(), 60);
          Q_EMIT Told(tr("%1: plan %2 is %3").arg(what, id, PlanStateName(plan->state())));
          if (draft) Q_EMIT DraftBegan(QString::fromStdString(plan->plan_id()));
        } else if (IsUnanswered(plan.status())) {
          unanswered_ = tr("%1: no answer came, so whether it was done is not known (%2)")
                            .arg(what, SafeText(session::Explain(plan.status()), 200));
          again_ = [this, what, call, draft] { Send(what, call, draft); };
          Q_EMIT UnansweredChanged();
        } else if (draft && base::GetReason(plan.status()).reason == "STALE_REVISION") {
          Q_EMIT Stale(SafeText(session::Explain(plan.status()), 300));
        } else {
          TellFailure(parent_, tr("%1 was refused").arg(what), plan.status());
        }
      },
      what);
}

void PlanActions::SendAgain() {
  if (!shown_cluster_.WhyNoChange(methods::kApplyPlan).isEmpty()) return;
  if (const auto again = again_; again) again();
}

void PlanActions::LeaveIt() {
  if (!again_) return;
  again_ = nullptr;
  unanswered_.clear();
  Q_EMIT UnansweredChanged();
}

void PlanActions::ApplyMoves(const QString& what, const QString& text, const QStringList& targets,
                             v1::ApplyPlanRequest request, bool risky, bool draft) {
  Question question;
  question.title = what;
  question.verb = what;
  question.text = text;
  question.targets = targets;
  question.risky = risky;
  Confirm(parent_, shown_cluster_, question,
          [this, what, draft, request = std::move(request)](const QString& reason) mutable {
            Sign(request, reason);
            Send(
                what, [request](client::Client& client) { return client.ApplyPlan(request); },
                draft);
          });
}

void PlanActions::Apply(const v1::Plan& proposed, int confirm_within_s) {
  const PoolBoard board = Board();
  const Transient transient = TransientOf(proposed, board);
  QStringList text = {EffectText(proposed, transient)};
  text << (confirm_within_s > 0
               ? tr("It goes back by itself unless it is kept within %1 after its moves are done.")
                     .arg(FormatSeconds(confirm_within_s))
               : tr("It stays: nothing takes it back by itself."));
  if (const QString policy = PolicyText(*shown_cluster_.snapshot()); !policy.isEmpty())
    text << policy;
  v1::ApplyPlanRequest request;
  for (const v1::Move& move : proposed.moves()) {
    v1::Move& added = *request.add_moves();
    added.set_node_id(move.node_id());
    *added.mutable_to() = move.to();
  }
  request.set_base_revision(proposed.base_revision());
  request.set_confirm_within_s(confirm_within_s);
  ApplyMoves(tr("Apply %1").arg(MovesCount(proposed.moves_size())), text.join(u'\n'),
             MoveLines(proposed, board), std::move(request),
             IsProduction() || transient.share > kRiskyShare, true);
}

bool PlanActions::IsProduction() const {
  return shown_cluster_.session() != nullptr && shown_cluster_.session()->target().production;
}

void PlanActions::Decide(const Question& question, const v1::Plan& plan, Decision decision) {
  Confirm(parent_, shown_cluster_, question,
          [this, what = question.title, id = plan.plan_id(), decision](const QString& reason) {
            v1::DecidePlanRequest request;
            request.set_plan_id(id);
            Sign(request, reason);
            Send(
                what,
                [request, decision](client::Client& client) { return (client.*decision)(request); },
                false);
          });
}

void PlanActions::Keep(const v1::Plan& plan) {
  Question question;
  question.title = tr("Keep plan %1").arg(SafeText(plan.plan_id(), 60));
  question.verb = tr("Keep it");
  question.text = tr("It stays: the server does not take it back by itself any more.");
  question.targets = MoveLines(plan, Board());
  question.reason = false;
  Decide(question, plan, &client::Client::ConfirmPlan);
}

void PlanActions::Undo(const v1::Plan& plan) {
  const bool done = plan.state() == v1::Plan::DONE;
  Question question;
  const QString id = SafeText(plan.plan_id(), 60);
  question.title =
      done ? UndoTitle(plan, shown_cluster_.viewing_ms()) : tr("Revert plan %1 now").arg(id);
  question.verb = done ? tr("Bring back %1").arg(MovesCount(plan.moves_size())) : tr("Revert now");
  question.text =
      done ? tr("Starts the inverse of plan %1: its instances go back where they were.").arg(id)
           : tr("All its moves are brought back, those that are done too.");
  for (const v1::Move& move : plan.moves()) {
    question.targets << QStringLiteral("%1: %2 → %3")
                            .arg(SafeText(move.node_id(), 60), PlaceName(move.to()),
                                 PlaceName(move.from()));
  }
  v1::Plan inverse;
  for (const v1::Move& move : plan.moves()) {
    v1::Move& back = *inverse.add_moves();
    back = move;
    *back.mutable_from() = move.to();
    *back.mutable_to() = move.from();
  }
  question.risky = IsProduction() || (done && TransientOf(inverse, Board()).share > kRiskyShare);
  Decide(question, plan, &client::Client::UndoPlan);
}

void PlanActions::Drain(const std::string& node_id) {
  const PoolBoard board = Board();
  const InstanceCard* card = board.Find(node_id);
  const QString name = SafeText(node_id, 60);
  const QString what = tr("Drain %1").arg(name);
  if (card == nullptr) {
    Q_EMIT Told(tr("%1 is no live instance").arg(name));
    return;
  }
  v1::ProposePlanRequest request;
  v1::Move& move = *request.add_moves();
  move.set_node_id(node_id);
  *move.mutable_to() = card->place;
  move.mutable_to()->clear_pool();
  move.mutable_to()->set_removed(true);
  shown_cluster_.Ask<v1::Plan>(
      this, [request](client::Client& client) { return client.ProposePlan(request); },
      [this, what, request, asked = shown_cluster_.connection()](absl::StatusOr<v1::Plan> plan) {
        if (asked != shown_cluster_.connection()) return;
        if (!plan.ok()) return TellFailure(parent_, tr("%1 was refused").arg(what), plan.status());
        const PoolBoard now = Board();
        const Transient transient = TransientOf(*plan, now);
        v1::ApplyPlanRequest apply;
        *apply.mutable_moves() = request.moves();
        apply.set_base_revision(plan->base_revision());
        const QString text =
            tr("It ends or passes on what it holds and stays idle. It is safe to remove once it "
               "is drained.") +
            u'\n' + EffectText(*plan, transient);
        ApplyMoves(what, text, MoveLines(*plan, now), std::move(apply),
                   IsProduction() || transient.share > kRiskyShare, false);
      },
      tr("Ask what draining %1 would do").arg(name));
}

void PlanActions::Pin(const std::string& node_id, bool pinned) {
  const PoolBoard board = Board();
  const InstanceCard* card = board.Find(node_id);
  const QString name = SafeText(node_id, 60);
  if (card == nullptr) {
    Q_EMIT Told(tr("%1 is no live instance").arg(name));
    return;
  }
  if (card->place.pinned() == pinned) {
    Q_EMIT Told(pinned ? tr("%1 is pinned already").arg(name) : tr("%1 is not pinned").arg(name));
    return;
  }
  v1::ApplyPlanRequest request;
  v1::Move& move = *request.add_moves();
  move.set_node_id(node_id);
  *move.mutable_to() = card->place;
  move.mutable_to()->set_pinned(pinned);
  // A pin is a move to the present place. If the instance has moved since, the base revision makes
  // the server refuse it, so that it does not go back.
  request.set_base_revision(board.plan_revision);
  ApplyMoves(pinned ? tr("Pin %1").arg(name) : tr("Unpin %1").arg(name),
             pinned ? tr("Automatic moves leave it where it is. Nothing moves now.")
                    : tr("Automatic moves may take it again. Nothing moves now."),
             {QStringLiteral("%1: %2").arg(name, PlaceName(move.to()))}, request, false, false);
}

void PlanActions::SendHold(const QString& what, const v1::SetHoldRequest& request) {
  shown_cluster_.Ask<v1::Hold>(
      this, [request](client::Client& client) { return client.SetHold(request); },
      [this, what](absl::StatusOr<v1::Hold> hold) {
        if (!hold.ok()) return TellFailure(parent_, tr("%1 was refused").arg(what), hold.status());
        Q_EMIT Told(tr("%1: done").arg(what));
      },
      what);
}

void PlanActions::Hold(int for_s) {
  Question question;
  question.title = tr("Hold automatic moves for %1").arg(FormatSeconds(for_s));
  question.verb = tr("Hold automatic moves");
  question.text = tr("The policy moves nothing until then. Plans under way go on.");
  Confirm(parent_, shown_cluster_, question,
          [this, what = question.title, for_s](const QString& reason) {
            v1::SetHoldRequest request;
            request.set_active(true);
            request.set_for_s(for_s);
            Sign(request, reason);
            SendHold(what, request);
          });
}

void PlanActions::Release() {
  Question question;
  question.title = tr("Release automatic moves");
  question.verb = tr("Release automatic moves");
  question.text = tr("The policy may move instances again.");
  Confirm(parent_, shown_cluster_, question, [this, what = question.title](const QString& reason) {
    v1::SetHoldRequest request;
    Sign(request, reason);
    SendHold(what, request);
  });
}

void PlanActions::SendLimits(const v1::PoolLimits& limits, const QString& reason) {
  v1::SetPoolLimitsRequest request;
  *request.mutable_limits() = limits;
  Sign(request, reason);
  const QString what = tr("Limits of %1").arg(PoolName({limits.workflow_set(), limits.pool()}));
  shown_cluster_.Ask<v1::PoolLimits>(
      this, [request](client::Client& client) { return client.SetPoolLimits(request); },
      [this, what](absl::StatusOr<v1::PoolLimits> set) {
        if (!set.ok()) return TellFailure(parent_, tr("%1 were refused").arg(what), set.status());
        Q_EMIT Told(tr("%1: set").arg(what));
      },
      what);
}

void PlanActions::AskLimits(const PoolKey& pool) {
  const PoolBoard board = Board();
  const PoolColumn* column = board.Find(pool);
  if (column == nullptr || pool.pool.empty()) return;
  auto* dialog = new QDialog(parent_);
  dialog->setObjectName(QStringLiteral("limits"));
  dialog->setAttribute(Qt::WA_DeleteOnClose);
  dialog->setWindowTitle(tr("Limits of %1").arg(PoolName(pool)));
  auto* form = new QFormLayout(dialog);
  const auto spin = [&](const QString& name, int value) {
    auto* made = new QSpinBox(dialog);
    made->setRange(0, kMaxInstances);
    made->setSpecialValueText(tr("as the workflows say"));
    made->setValue(value);
    made->setAccessibleName(name);
    form->addRow(name, made);
    return made;
  };
  auto* note = new QLabel(tr("How many instances automatic moves leave and give it."), dialog);
  form->addRow(note);
  QSpinBox* least = spin(tr("At least"), column->min_instances);
  QSpinBox* most = spin(tr("At most"), column->max_instances);
  auto* buttons = new QDialogButtonBox(QDialogButtonBox::Cancel, dialog);
  QPushButton* next = buttons->addButton(tr("Set limits…"), QDialogButtonBox::AcceptRole);
  next->setAutoDefault(false);
  form->addRow(buttons);
  connect(buttons, &QDialogButtonBox::rejected, dialog, &QDialog::reject);
  connect(buttons, &QDialogButtonBox::accepted, dialog, [this, dialog, pool, least, most] {
    v1::PoolLimits limits;
    limits.set_workflow_set(pool.workflow_set);
    limits.set_pool(pool.pool);
    limits.set_min_instances(least->value());
    limits.set_max_instances(most->value());
    dialog->accept();
    Question question;
    question.title = tr("Set the limits of %1").arg(PoolName(pool));
    question.verb = tr("Set limits");
    question.text =
        tr("At least %1, at most %2. It moves nothing by itself.").arg(least->text(), most->text());
    Confirm(parent_, shown_cluster_, question,
            [this, limits](const QString& reason) { SendLimits(limits, reason); });
  });
  dialog->open();
}

}  // namespace onepiece::gui
