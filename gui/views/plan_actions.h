// What is asked before instances are moved, kept or brought back, and how it is sent: each change
// is confirmed once, has one request id, and is never repeated by itself with another one.
//
// Threading  GUI thread only.
#pragma once

#include <QObject>
#include <functional>
#include <string>

#include "gui/models/pool_board.h"
#include "gui/models/store.h"
#include "onepiece/v1/elasticity.pb.h"

namespace onepiece::gui {

class PlanActions : public QObject {
  Q_OBJECT
 public:
  /// Beyond this share of a pool's instances at the same time the cluster's name must be typed.
  static constexpr double kRiskyShare = 0.25;

  PlanActions(Store& store, QWidget* parent);

  /// Asks about a plan that was proposed, and starts its moves if they are still what they were
  /// (base revision). 0: it needs no confirmation afterwards.
  void Apply(const v1::Plan& proposed, int confirm_within_s);
  void Keep(const v1::Plan& plan);
  /// Takes a plan back that has not ended, or starts the inverse of one that is done.
  void Undo(const v1::Plan& plan);
  /// No automatic moves for so long.
  void Hold(int for_s);
  void Release();
  void AskLimits(const PoolKey& pool);
  /// Makes the instance idle for good, so that it can be removed: asks the server first what that
  /// does.
  void Drain(const std::string& node_id);
  void Pin(const std::string& node_id, bool pinned);

  /// A change whose answer has not come: what it was, and why. Empty: none.
  [[nodiscard]] const QString& unanswered() const { return unanswered_; }
  /// Sends it again: the same request with the same id, so that nothing is done twice.
  void SendAgain();
  void LeaveIt();

 Q_SIGNALS:
  void Told(const QString& text);
  /// What Apply was asked about has begun.
  void DraftBegan(const QString& plan_id);
  /// What the applied plan was made for has changed (ABORTED): nothing was done.
  void Stale(const QString& why);
  void UnansweredChanged();

 private:
  using Call = std::function<absl::StatusOr<v1::Plan>(client::Client&)>;
  /// `draft`: a stale revision is told by Stale, not by a box.
  void Send(const QString& what, const Call& call, bool draft);
  void SendHold(const QString& what, const v1::SetHoldRequest& request);
  void SendLimits(const v1::PoolLimits& limits, const QString& reason);
  void ApplyMoves(const QString& what, const QString& text, const QStringList& targets,
                  v1::ApplyPlanRequest request, bool risky, bool draft);
  [[nodiscard]] PoolBoard Board() const { return MakePoolBoard(*store_.snapshot()); }

  Store& store_;
  QWidget* parent_;
  QString unanswered_;
  std::function<void()> again_;
};

}  // namespace onepiece::gui
