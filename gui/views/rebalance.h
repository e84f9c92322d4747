// The page that moves instances: compose, ask what it would do, apply, watch, keep or undo.
//
// Threading  GUI thread only.
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

  explicit RebalanceView(Store& store, QWidget* parent = nullptr);

  [[nodiscard]] std::vector<Command> Commands() override;
  /// Plans.
  [[nodiscard]] QAbstractItemModel* ExportModel() override { return plans_->table(); }
  void Focus(const QString& entity) override;
  void SetFilter(const QString& text) override;
  [[nodiscard]] QString Help() const override;

  /// The draft as a plan, for other pages to draw over what they show; with the server's prediction
  /// where there is one. Null: nothing is drafted. It lives until DraftChanged.
  [[nodiscard]] const v1::Plan* draft() const { return drafted_ ? &*drafted_ : nullptr; }

 Q_SIGNALS:
  void DraftChanged();

 protected:
  void Draw(const Snapshot& snapshot) override;
  void resizeEvent(QResizeEvent* event) override;

 private:
  void MakeLayout();
  void ConnectParts();
  /// After an edit of the draft, or a refusal (`why_not`).
  void Edited(const QString& why_not = {});
  void ShowPolicy(const Snapshot& snapshot);
  /// What goes by the clock: countdowns and ages.
  void ShowTimes();
  void AskMenu(const std::string& node_id, const QPoint& at);
  void RunPlan();
  void RunApply();
  void RunKeep(const QString& plan_id);
  void RunUndo(const QString& plan_id);
  void RunHold();
  [[nodiscard]] std::vector<Command> NodeCommands();
  /// The plan that a command means: the one chosen in the table if it is `wanted`, else the newest
  /// that is; null: none.
  [[nodiscard]] const v1::Plan* Chosen(bool (*wanted)(const v1::Plan&));
  void Move(const std::string& node_id, const PoolKey& to);

  PlanDraft draft_;
  std::optional<v1::Plan> drafted_;
  int connection_ = -1;  ///< As Store::connection: what the draft is for.
  std::shared_ptr<const v1::Cluster> seen_cluster_;
  std::shared_ptr<const v1::Elasticity> seen_elasticity_;
  PoolKey pool_;  ///< Focused last.
  PlanActions* actions_;
  PlanStrips* strips_;
  QLabel* policy_;
  QPushButton *hold_, *release_;
  std::optional<bool> wide_;  ///< Draft and plans stand beside the pools.
  QSplitter* split_;
  PoolColumns* columns_;
  QTabWidget* tabs_;
  DraftPanel* panel_;
  PlansPanel* plans_;
  QTimer clock_;
};

}  // namespace onepiece::gui
