// The changes of plans and placements: how the operator is asked, and how the change is sent. Each
// change is confirmed once and has one request id. The console never repeats a change with another
// id.
//
// Threading: GUI thread only.
#pragma once

#include <QObject>
#include <functional>
#include <string>

#include "gui/models/pool_board.h"
#include "gui/models/shown_cluster.h"
#include "onepiece/v1/elasticity.pb.h"

namespace onepiece::gui {

struct Question;

/// Asks about changes and sends them.
class PlanActions : public QObject {
  Q_OBJECT
 public:
  /// If more than this share of a pool's instances stop serving at the same time, the operator must
  /// type the cluster's name.
  static constexpr double kRiskyShare = 0.25;

  PlanActions(ShownCluster& shown_cluster, QWidget* parent);

  /// Asks about a proposed plan, and starts its moves unless its base revision is out of date.
  /// `confirm_within_s` 0 means that it needs no confirmation afterwards.
  void Apply(const v1::Plan& proposed, int confirm_within_s);
  void Keep(const v1::Plan& plan);
  /// Reverts a plan that has not ended, or starts the inverse of a plan that is done.
  void Undo(const v1::Plan& plan);
  /// Stops automatic moves for so many seconds.
  void Hold(int for_s);
  void Release();
  void AskLimits(const PoolKey& pool);
  /// Makes an instance idle for good, so that it can be removed. First asks the server what that
  /// would do.
  void Drain(const std::string& node_id);
  void Pin(const std::string& node_id, bool pinned);

  /// Describes a change whose answer was lost, and why. Empty if there is none.
  [[nodiscard]] const QString& unanswered() const { return unanswered_; }
  /// Sends that change again, with the same request id, so that nothing is done twice.
  void SendAgain();
  /// Forgets the change without an answer.
  void LeaveIt();

 Q_SIGNALS:
  void Told(const QString& text);
  /// The plan that Apply() asked about has begun.
  void DraftBegan(const QString& plan_id);
  /// The server has refused the plan with ABORTED, because its base has changed. Nothing was done.
  void Stale(const QString& why);
  void UnansweredChanged();

 private:
  using Call = std::function<absl::StatusOr<v1::Plan>(client::Client&)>;
  using Decision = absl::StatusOr<v1::Plan> (client::Client::*)(v1::DecidePlanRequest);
  /// If `draft` is true, a stale revision is signalled by Stale() and not shown in a box.
  void Send(const QString& what, const Call& call, bool draft);
  void Decide(const Question& question, const v1::Plan& plan, Decision decision);
  void SendHold(const QString& what, const v1::SetHoldRequest& request);
  void SendLimits(const v1::PoolLimits& limits, const QString& reason);
  void ApplyMoves(const QString& what, const QString& text, const QStringList& targets,
                  v1::ApplyPlanRequest request, bool risky, bool draft);
  [[nodiscard]] bool IsProduction() const;
  [[nodiscard]] PoolBoard Board() const { return MakePoolBoard(*shown_cluster_.snapshot()); }

  ShownCluster& shown_cluster_;
  QWidget* parent_;
  QString unanswered_;
  std::function<void()> again_;
};

}  // namespace onepiece::gui
