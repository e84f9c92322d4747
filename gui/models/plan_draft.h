// A draft of moves over the cluster's present assignment: edited, undone and redone here, asked
// about and applied elsewhere. It changes nothing by itself and predicts nothing.
//
// Threading  Thread-confined.
#pragma once

#include <QString>
#include <QStringList>
#include <cstdint>
#include <string>
#include <vector>

#include "gui/models/pool_board.h"
#include "onepiece/v1/elasticity.pb.h"

namespace onepiece::gui {

struct DraftMove {
  std::string node_id;
  std::uint64_t incarnation = 0;  ///< When the move was drafted.
  v1::Placement from, to;         ///< Workflow sets are filled in.
};

class PlanDraft {
 public:
  static constexpr std::size_t kMaxUndo = 200;

  /// The assignment that the draft is seen against from now on; the moves stay as they are.
  void See(PoolBoard board) { board_ = std::move(board); }
  [[nodiscard]] const PoolBoard& board() const { return board_; }

  // Edits. What is returned says why nothing was changed; empty: it was.
  /// To where it is already: takes its move out of the draft.
  QString MoveTo(const std::string& node_id, const PoolKey& to);
  /// One more. Whom the draft has taken away comes back first; else an idle one comes, of the same
  /// workflow set if there is one, by name. Who is pinned, moving, removed or quarantined stays.
  QString Add(const PoolKey& pool);
  /// One less, to the idle ones. Whom the draft has brought goes back first; else who holds no
  /// work, the last by name; the same stay.
  QString Remove(const PoolKey& pool);
  /// The moves of a plan that was proposed take the place of all.
  void Replace(const v1::Plan& proposed);
  void Clear();
  /// Moves that are done already, or that cannot be, go; the others begin where instances are now.
  void Renew();

  [[nodiscard]] bool CanUndo() const { return !past_.empty(); }
  [[nodiscard]] bool CanRedo() const { return !future_.empty(); }
  void Undo();
  void Redo();

  /// By name of the instance.
  [[nodiscard]] const std::vector<DraftMove>& moves() const { return moves_; }
  [[nodiscard]] bool empty() const { return moves_.empty(); }
  /// Null: the draft does not move it.
  [[nodiscard]] const DraftMove* Find(const std::string& node_id) const;
  /// Where it would be; where it is when the draft does not move it.
  [[nodiscard]] v1::Placement PlaceOf(const InstanceCard& card) const;
  /// Instances that the pool would have.
  [[nodiscard]] int CountAfter(const PoolKey& pool) const;
  [[nodiscard]] int CountNow(const PoolKey& pool) const;

  /// Why the server will refuse it, as far as is seen from here: limits, instances that are moving.
  /// The server's word counts.
  [[nodiscard]] QStringList Problems() const;
  /// What is good to know: instances that stay pinned where they go.
  [[nodiscard]] QStringList Notes() const;
  /// Instances that are not where they were when their move was drafted, a line each.
  [[nodiscard]] QStringList Stale() const;

  [[nodiscard]] v1::ProposePlanRequest ToRequest() const;
  /// "onepiece rebalance plan 'instance-3=vae_decode/…'"
  [[nodiscard]] QString ToCommandLine() const;

 private:
  using Moves = std::vector<DraftMove>;
  /// Makes the moves these, which can be undone.
  void Set(Moves moves);
  /// Empty: it may be moved by +, − or by hand (`by_hand`: also who is pinned, removed, …).
  [[nodiscard]] QString WhyNotMove(const InstanceCard& card, const PoolKey& to, bool by_hand) const;

  PoolBoard board_;
  Moves moves_;
  std::vector<Moves> past_, future_;
};

}  // namespace onepiece::gui
