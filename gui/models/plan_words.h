// Plans in words: states, phases, remaining time, the cost while a plan runs, and why a plan cannot
// be undone.
//
// Threading: pure functions.
#pragma once

#include <QString>
#include <cstdint>

#include "gui/models/format.h"
#include "gui/models/pool_board.h"
#include "onepiece/v1/elasticity.pb.h"

namespace onepiece::gui {

QString PlanStateName(v1::Plan::State state);  ///< "running", "unconfirmed", …
StatusTone PlanStateTone(v1::Plan::State state);
QString PhaseName(v1::Move::Phase phase);  ///< "draining", …
StatusTone PhaseTone(v1::Move::Phase phase);
/// True in DONE, REVERTED and FAILED: the plan will not change by itself any more.
bool HasEnded(const v1::Plan& plan);

/// "4 moves", "1 move"
QString MovesCount(int moves);
/// "instance-3 → vae_decode/…, instance-4 → idle". Names the first few moves.
QString MovesSummary(const v1::Plan& plan);
/// How far a plan under way is: "2 of 4 moves done, instance-3 draining for 12 s".
QString ProgressText(const v1::Plan& plan, std::int64_t now_ms);

/// Seconds until the server reverts an unconfirmed plan. Negative if that time is over.
/// `clock_skew_s` says how far the server's clock, which the plan's times are by, is ahead of ours.
double SecondsToConfirm(const v1::Plan& plan, std::int64_t now_ms, double clock_skew_s);
/// "goes back by itself in 4 m 12 s"
QString ConfirmText(const v1::Plan& plan, std::int64_t now_ms, double clock_skew_s);

/// The largest share of a pool that a plan takes out of work at the same time.
struct Transient {
  /// Share of the instances of the pool that loses most. Counted, not predicted.
  double share = 0;
  /// "diffusion/…: 2 of 4 instances stop serving it (50 %)". Empty if no pool loses any.
  QString text;
};
Transient TransientOf(const v1::Plan& plan, const PoolBoard& board);

/// What an instance loads for its move: the model's name and the applications that it is for. Empty
/// if nothing.
QString LoadsText(const v1::Move& move, const PoolBoard& board);

/// "Revert to the assignment of 12:03:10"
QString UndoTitle(const v1::Plan& plan, std::int64_t now_ms);
/// Why the plan cannot be undone. Empty if it can, as far as the console can tell.
QString WhyNoUndo(const v1::Plan& plan, const PoolBoard& board, const v1::ListPlansResponse* plans);

}  // namespace onepiece::gui
