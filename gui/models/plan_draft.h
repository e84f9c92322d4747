// A draft of moves, seen against the cluster's present assignment. It can be edited, undone and
// redone. Other code asks the server about it and applies it; the draft changes nothing and
// predicts nothing.
//
// Threading: thread-confined.
#pragma once

#include <QString>
#include <QStringList>
#include <cstdint>
#include <string>
#include <vector>

#include "gui/models/pool_board.h"
#include "onepiece/v1/elasticity.pb.h"

namespace onepiece::gui {

/// One move of the draft.
struct DraftMove {
  std::string node_id;
  std::uint64_t incarnation = 0;  ///< The instance's incarnation when the move was drafted.
  v1::Placement from, to;         ///< Workflow sets are filled in.
};

class PlanDraft {
 public:
  static constexpr std::size_t kMaxUndo = 200;

  /// Sets the assignment that the draft is seen against. The moves stay.
  void See(PoolBoard board) { board_ = std::move(board); }
  [[nodiscard]] const PoolBoard& board() const { return board_; }

  // Edits. Each returns why nothing was changed; empty if it was.
  /// Moves an instance to a pool. If the instance is there already, its move is taken out of the
  /// draft.
  QString MoveTo(const std::string& node_id, const PoolKey& to);
  /// Adds one instance to the pool. An instance that the draft takes away from it comes back first.
  /// Otherwise an idle one comes, by name, of the same workflow set if there is one. Pinned,
  /// moving, removed and quarantined instances are not taken.
  QString Add(const PoolKey& pool);
  /// Takes one instance out of the pool, which becomes idle. An instance that the draft brings goes
  /// back first. Otherwise one without work goes, the last by name. Pinned, moving, removed and
  /// quarantined instances are not taken.
  QString Remove(const PoolKey& pool);
  /// Replaces all moves by those of a proposed plan.
  void Replace(const v1::Plan& proposed);
  void Clear();
  /// Adapts the draft to the present assignment. Moves that are done or no longer possible are
  /// dropped; the others begin where the instances are now.
  void Renew();

  [[nodiscard]] bool CanUndo() const { return !past_.empty(); }
  [[nodiscard]] bool CanRedo() const { return !future_.empty(); }
  void Undo();
  void Redo();

  /// Ordered by the instance's name.
  [[nodiscard]] const std::vector<DraftMove>& moves() const { return moves_; }
  [[nodiscard]] bool empty() const { return moves_.empty(); }
  /// The move of an instance; nullptr if the draft does not move it.
  [[nodiscard]] const DraftMove* Find(const std::string& node_id) const;
  /// Where the instance would be with the draft applied.
  [[nodiscard]] v1::Placement PlaceOf(const InstanceCard& card) const;
  /// The number of instances in the pool with the draft applied, and now.
  [[nodiscard]] int CountAfter(const PoolKey& pool) const;
  [[nodiscard]] int CountNow(const PoolKey& pool) const;

  /// Why the server will refuse the draft, as far as the console can tell: limits, instances that
  /// are moving. The server decides.
  [[nodiscard]] QStringList Problems() const;
  /// Hints that refuse nothing: instances that stay pinned where they go.
  [[nodiscard]] QStringList Notes() const;
  /// Instances that are no longer as they were when their move was drafted, a line each.
  [[nodiscard]] QStringList Stale() const;

  [[nodiscard]] v1::ProposePlanRequest ToRequest() const;
  /// "onepiece rebalance plan 'instance-3=vae_decode/…'"
  [[nodiscard]] QString ToCommandLine() const;

 private:
  using Moves = std::vector<DraftMove>;
  /// Replaces the moves, as a step that can be undone.
  void Set(Moves moves);
  /// Why the instance may not be moved; empty if it may. `by_hand` is true for a move that names
  /// the instance; such a move may take instances that are pinned, removed or quarantined.
  [[nodiscard]] QString WhyNotMove(const InstanceCard& card, const PoolKey& to, bool by_hand) const;

  PoolBoard board_;
  Moves moves_;
  std::vector<Moves> past_, future_;
};

}  // namespace onepiece::gui
