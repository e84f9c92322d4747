// Plans in words: states, phases, what is left of a time, what a plan costs while it goes on, and
// why one cannot be undone.
//
// Threading  Pure functions.
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
/// DONE, REVERTED and FAILED: nothing will happen to it by itself any more.
bool HasEnded(const v1::Plan& plan);

/// "4 moves", "1 move"
QString MovesCount(int moves);
/// "instance-3 → vae_decode/…, instance-4 → idle", the first few.
QString MovesSummary(const v1::Plan& plan);
/// "2 of 4 moves done, instance-3 draining for 12 s": where a plan under way is.
QString ProgressText(const v1::Plan& plan, std::int64_t now_ms);

/// Until the server takes an unconfirmed plan back. `clock_skew_s`: the server's clock ahead of
/// ours, by which its times are. Negative: the time is over.
double SecondsToConfirm(const v1::Plan& plan, std::int64_t now_ms, double clock_skew_s);
/// "goes back by itself in 4 m 12 s"
QString ConfirmText(const v1::Plan& plan, std::int64_t now_ms, double clock_skew_s);

/// What is out of work at the same time at most, while a plan goes on.
struct Transient {
  double share = 0;  ///< Of the instances of the pool that loses most; counted, not predicted.
  QString text;  ///< "diffusion/…: 2 of 4 instances drain and load"; empty: no pool loses any.
};
Transient TransientOf(const v1::Plan& plan, const PoolBoard& board);

/// What an instance loads for its move: the model's name and whose work it is; empty: nothing.
QString LoadsText(const v1::Move& move, const PoolBoard& board);

/// "Revert to the assignment of 12:03:10"
QString UndoTitle(const v1::Plan& plan, std::int64_t now_ms);
/// Empty: it can be undone, as far as is seen from here.
QString WhyNoUndo(const v1::Plan& plan, const PoolBoard& board, const v1::ListPlansResponse* plans);

}  // namespace onepiece::gui
