// The page "Rebalance", which moves instances: compose a draft, ask what it would do, apply it,
// watch it, keep or undo it.
//
// Threading: GUI thread only.
#pragma once

#include <QLabel>
#include <QPushButton>
#include <QSplitter>
#include <QTabWidget>
#include <QTimer>
#include <memory>
#include <optional>

#include "gui/models/plan_draft.h"
#include "gui/views/draft_panel.h"
#include "gui/views/plan_actions.h"
#include "gui/views/plans_panel.h"
#include "gui/views/pool_columns.h"
#include "gui/views/view.h"

namespace onepiece::gui {

class RebalanceView : public View {
  Q_OBJECT
 public:
  static constexpr int kHoldS = 30 * 60;

  explicit RebalanceView(ShownCluster& shown_cluster, QWidget* parent = nullptr);

  [[nodiscard]] std::vector<Command> Commands() override;
  /// The list of plans.
  [[nodiscard]] QAbstractItemModel* ExportModel() override { return plans_->table(); }
  void Focus(const QString& entity) override;
  void SetFilter(const QString& text) override;
  [[nodiscard]] QString Help() const override;

  /// The draft as a plan, with the server's prediction if there is one. Other pages draw it over
  /// what they show. Null if nothing is drafted.
  ///
  /// Lifetime: until the next DraftChanged().
  [[nodiscard]] const v1::Plan* draft() const { return drafted_ ? &*drafted_ : nullptr; }

 Q_SIGNALS:
  void DraftChanged();

 protected:
  void Draw(const session::Snapshot& snapshot) override;
  void resizeEvent(QResizeEvent* event) override;

 private:
  void MakeLayout();
  void ConnectParts();
  /// Updates the page after an edit of the draft, or after a refused edit (`why_not`).
  void Edited(const QString& why_not = {});
  void ShowPolicy(const session::Snapshot& snapshot);
  /// Updates what depends on the clock: countdowns and ages.
  void ShowTimes();
  void AskMenu(const std::string& node_id, const QPoint& at);
  void RunPlan();
  void RunApply();
  void RunKeep(const QString& plan_id);
  void RunUndo(const QString& plan_id);
  void RunHold();
  [[nodiscard]] std::vector<Command> NodeCommands();
  /// The plan that a command acts on: the one selected in the table if it is `wanted`, else the
  /// newest that is. Null if there is none.
  [[nodiscard]] const v1::Plan* Chosen(bool (*wanted)(const v1::Plan&));
  void Move(const std::string& node_id, const PoolKey& to);

  PlanDraft draft_;
  std::optional<v1::Plan> drafted_;
  int connection_ = -1;  ///< The ShownCluster::connection() that the draft is for.
  std::shared_ptr<const v1::Cluster> seen_cluster_;
  std::shared_ptr<const v1::Elasticity> seen_elasticity_;
  PoolKey pool_;  ///< The pool that was focused last.
  PlanActions* actions_;
  PlanStrips* strips_;
  QLabel* policy_;
  QPushButton *hold_, *release_;
  std::optional<bool> wide_;  ///< True if draft and plans stand beside the pools.
  QSplitter* split_;
  PoolColumns* columns_;
  QTabWidget* tabs_;
  DraftPanel* panel_;
  PlansPanel* plans_;
  QTimer clock_;
};

}  // namespace onepiece::gui
