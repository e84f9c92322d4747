#include "gui/models/plan_words.h"

#include <QStringList>
#include <algorithm>
#include <cmath>

#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

constexpr int kNamed = 4;  // A line names at most so many moves.

QString Name(const v1::Move& move) { return SafeText(move.node_id(), 60); }

bool LeavesPool(const v1::Move& move) {
  return !move.from().pool().empty() && (move.from().pool() != move.to().pool() ||
                                         move.from().workflow_set() != move.to().workflow_set());
}

}  // namespace

QString PlanStateName(v1::Plan::State state) {
  switch (state) {
    case v1::Plan::PROPOSED:
      return Tr("proposed");
    case v1::Plan::RUNNING:
      return Tr("running");
    case v1::Plan::UNCONFIRMED:
      return Tr("unconfirmed");
    case v1::Plan::DONE:
      return Tr("done");
    case v1::Plan::REVERTING:
      return Tr("reverting");
    case v1::Plan::REVERTED:
      return Tr("reverted");
    case v1::Plan::FAILED:
      return Tr("failed");
    default:
      return Tr("unknown");
  }
}

StatusTone PlanStateTone(v1::Plan::State state) {
  switch (state) {
    case v1::Plan::RUNNING:
    case v1::Plan::REVERTING:
      return StatusTone::kBusy;
    case v1::Plan::UNCONFIRMED:
      return StatusTone::kWarning;
    case v1::Plan::DONE:
      return StatusTone::kGood;
    case v1::Plan::FAILED:
      return StatusTone::kBad;
    case v1::Plan::PROPOSED:
    case v1::Plan::REVERTED:
      return StatusTone::kNeutral;
    default:
      return StatusTone::kUnknown;
  }
}

QString PhaseName(v1::Move::Phase phase) {
  switch (phase) {
    case v1::Move::PENDING:
      return Tr("pending");
    case v1::Move::DRAINING:
      return Tr("draining");
    case v1::Move::SWITCHING:
      return Tr("switching");
    case v1::Move::DONE:
      return Tr("done");
    case v1::Move::REVERTING:
      return Tr("reverting");
    case v1::Move::REVERTED:
      return Tr("reverted");
    case v1::Move::FAILED:
      return Tr("failed");
    default:
      return Tr("unknown");
  }
}

StatusTone PhaseTone(v1::Move::Phase phase) {
  switch (phase) {
    case v1::Move::DRAINING:
    case v1::Move::SWITCHING:
    case v1::Move::REVERTING:
      return StatusTone::kBusy;
    case v1::Move::DONE:
      return StatusTone::kGood;
    case v1::Move::FAILED:
      return StatusTone::kBad;
    case v1::Move::PENDING:
    case v1::Move::REVERTED:
      return StatusTone::kNeutral;
    default:
      return StatusTone::kUnknown;
  }
}

bool HasEnded(const v1::Plan& plan) {
  return plan.state() == v1::Plan::DONE || plan.state() == v1::Plan::REVERTED ||
         plan.state() == v1::Plan::FAILED;
}

QString MovesCount(int moves) { return moves == 1 ? Tr("1 move") : Tr("%1 moves").arg(moves); }

QString MovesSummary(const v1::Plan& plan) {
  QStringList parts;
  for (int i = 0; i < std::min(plan.moves_size(), kNamed); ++i)
    parts << QStringLiteral("%1 → %2").arg(Name(plan.moves(i)), PlaceName(plan.moves(i).to()));
  if (plan.moves_size() > kNamed) parts << Tr("%1 more").arg(plan.moves_size() - kNamed);
  return parts.join(QStringLiteral(", "));
}

QString ProgressText(const v1::Plan& plan, std::int64_t now_ms) {
  const bool back = plan.state() == v1::Plan::REVERTING;
  const auto ended = [&](const v1::Move& move) {
    return move.phase() == (back ? v1::Move::REVERTED : v1::Move::DONE);
  };
  QStringList parts = {(back ? Tr("%1 of %2 brought back") : Tr("%1 of %2 done"))
                           .arg(std::ranges::count_if(plan.moves(), ended))
                           .arg(MovesCount(plan.moves_size()))};
  for (const v1::Move& move : plan.moves()) {
    if (ended(move) || parts.size() > kNamed) continue;
    QString text = QStringLiteral("%1 %2").arg(Name(move), PhaseName(move.phase()));
    if (move.phase_since_unix_ms() > 0) {
      text = Tr("%1 for %2")
                 .arg(text,
                      FormatSeconds(std::max<double>(
                          0, std::round(static_cast<double>(now_ms - move.phase_since_unix_ms()) /
                                        1e3))));
    }
    if (!move.detail().empty()) text += QStringLiteral(" (%1)").arg(SafeText(move.detail(), 120));
    parts << text;
  }
  return parts.join(QStringLiteral(", "));
}

double SecondsToConfirm(const v1::Plan& plan, std::int64_t now_ms, double clock_skew_s) {
  return static_cast<double>(plan.confirm_by_unix_ms() - now_ms) / 1e3 - clock_skew_s;
}

QString ConfirmText(const v1::Plan& plan, std::int64_t now_ms, double clock_skew_s) {
  const double left = std::ceil(SecondsToConfirm(plan, now_ms, clock_skew_s));
  if (left <= 0) return Tr("its time is over: the server takes it back");
  return Tr("goes back by itself in %1").arg(FormatSeconds(left));
}

Transient TransientOf(const v1::Plan& plan, const PoolBoard& board) {
  Transient worst;
  for (const PoolColumn& column : board.columns) {
    if (column.key.pool.empty()) continue;
    const auto all = std::ranges::count(board.cards, column.key, &InstanceCard::key);
    const auto away = std::ranges::count_if(plan.moves(), [&](const v1::Move& move) {
      const InstanceCard* card = board.Find(move.node_id());
      return card != nullptr && card->key() == column.key && LeavesPool(move);
    });
    if (all == 0 || away == 0) continue;
    const double share = static_cast<double>(away) / static_cast<double>(all);
    if (share <= worst.share) continue;
    worst = {share, Tr("%1: %2 of %3 instances stop serving it (%4)")
                        .arg(PoolName(column.key))
                        .arg(away)
                        .arg(all)
                        .arg(FormatShare(share))};
  }
  return worst;
}

QString LoadsText(const v1::Move& move, const PoolBoard& board) {
  const std::string& pool = move.to().pool();
  if (pool.empty() || !(move.from().pool() != pool)) return {};
  QStringList apps;
  for (const PoolColumn& column : board.columns) {
    if (column.key.pool != pool) continue;
    for (const std::string& app : column.app_ids) {
      if (const QString name = SafeText(app, 40); !apps.contains(name)) apps << name;
    }
  }
  const QString model = SafeText(pool.substr(pool.rfind('/') + 1), 60);
  return apps.isEmpty() ? model : Tr("%1, for %2").arg(model, apps.join(QStringLiteral(", ")));
}

QString UndoTitle(const v1::Plan& plan, std::int64_t now_ms) {
  return Tr("Revert to the assignment of %1").arg(FormatTime(plan.create_unix_ms(), now_ms));
}

QString WhyNoUndo(const v1::Plan& plan, const PoolBoard& board,
                  const v1::ListPlansResponse* plans) {
  if (plan.state() != v1::Plan::DONE)
    return Tr("It is %1: only a plan that is done can be undone").arg(PlanStateName(plan.state()));
  if (!plan.undone_by().empty()) {
    const v1::Plan* undo = nullptr;
    if (plans != nullptr) {
      const auto found = std::ranges::find(plans->plans(), plan.undone_by(), &v1::Plan::plan_id);
      if (found != plans->plans().end()) undo = &*found;
    }
    // An undo that was itself reverted has undone nothing.
    if (undo == nullptr || !HasEnded(*undo) || undo->state() == v1::Plan::DONE)
      return Tr("Plan %1 has undone it").arg(SafeText(plan.undone_by(), 60));
  }
  QStringList changed;
  for (const v1::Move& move : plan.moves()) {
    if (move.phase() == v1::Move::REVERTED) continue;  // There is nothing to undo.
    const InstanceCard* card = board.Find(move.node_id());
    v1::Placement to = move.to();
    if (card != nullptr && to.workflow_set().empty())
      to.set_workflow_set(card->place.workflow_set());
    if (card == nullptr) {
      changed << Tr("%1 has left").arg(Name(move));
    } else if (!card->moving.empty()) {
      changed << Tr("%1 is part of plan %2").arg(Name(move), SafeText(card->moving, 60));
    } else if (!SamePlace(card->place, to)) {
      changed << Tr("%1 is in %2 now").arg(Name(move), PlaceName(card->place));
    }
  }
  if (changed.isEmpty()) return {};
  return Tr("Changed since: %1").arg(changed.join(QStringLiteral(", ")));
}

}  // namespace onepiece::gui
