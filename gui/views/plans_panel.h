// The list of plans with one of them in full, and the strips above the page for plans under way.
//
// Threading: GUI thread only.
#pragma once

#include <QFrame>
#include <QLabel>
#include <QPushButton>
#include <QSplitter>
#include <QVBoxLayout>
#include <memory>
#include <vector>

#include "gui/models/pool_board.h"
#include "gui/models/shown_cluster.h"
#include "gui/views/effect_panel.h"
#include "gui/views/table_panel.h"

namespace onepiece::gui {

/// The plans of a snapshot, newest first. Plans under way are included even if the list is older
/// than they are.
///
/// Lifetime: that of the snapshot.
std::vector<const v1::Plan*> PlansOf(const session::Snapshot& snapshot);
/// The plan with this id. Null if the snapshot has none.
const v1::Plan* FindPlan(const session::Snapshot& snapshot, const QString& plan_id);

/// The list and the selected plan.
class PlansPanel : public QWidget {
  Q_OBJECT
 public:
  explicit PlansPanel(ShownCluster& shown_cluster, QWidget* parent = nullptr);

  void Show(const session::Snapshot& snapshot, const PoolBoard& board);
  bool Select(const QString& plan_id) { return plans_->Select(plan_id); }
  void SetFilter(const QString& text) { plans_->SetFilter(text); }
  /// The id of the selected plan. Empty for none.
  [[nodiscard]] QString current() const { return plans_->current(); }
  [[nodiscard]] QAbstractItemModel* table() const { return plans_->rows(); }
  /// Sets whether the table and the selected plan stand beside or below each other.
  void SetOrientation(Qt::Orientation orientation);

 Q_SIGNALS:
  void KeepWanted(const QString& plan_id);
  void UndoWanted(const QString& plan_id);
  void ClearFilterWanted();

 private:
  struct PlanRow {
    QString key, state, when, actor, moves, reason, chain;
    StatusTone tone = StatusTone::kNeutral;
    qlonglong created = 0;
    friend bool operator==(const PlanRow&, const PlanRow&) = default;
  };
  struct MoveRow {
    QString key, from, to, phase, since, detail;
    StatusTone tone = StatusTone::kNeutral;
    friend bool operator==(const MoveRow&, const MoveRow&) = default;
  };
  void MakeTables();
  void ShowDetails(const session::Snapshot& snapshot, const PoolBoard& board);

  ShownCluster& shown_cluster_;
  std::unique_ptr<KeyedTable<PlanRow>> rows_;
  std::unique_ptr<KeyedTable<MoveRow>> moves_;
  QSplitter* split_;
  TablePanel *plans_, *move_table_;
  QWidget* details_;
  QLabel* about_;
  QPushButton *keep_, *undo_;
  EffectPanel* effect_;
};

/// A strip for each plan under way, whoever started it: how far it is, and until when it must be
/// kept.
class PlanStrips : public QWidget {
  Q_OBJECT
 public:
  static constexpr std::size_t kMost = 3;  ///< The most strips. The rest is only counted.

  explicit PlanStrips(ShownCluster& shown_cluster, QWidget* parent = nullptr);
  /// Shows the strips. `unanswered` describes a change whose answer was lost; empty for none.
  void Show(const session::Snapshot& snapshot, const QString& unanswered);

 Q_SIGNALS:
  void KeepWanted(const QString& plan_id);
  void UndoWanted(const QString& plan_id);
  void DetailsWanted(const QString& plan_id);
  void SendAgainWanted();
  void LeaveItWanted();

 private:
  struct Strip {
    QString plan_id;  ///< Empty for the strip of the change without an answer.
    QFrame* frame;
    QLabel* text;
    QPushButton *keep, *undo;
  };
  Strip MakeStrip(const QString& plan_id);
  void ShowPlan(Strip& strip, const v1::Plan& plan);

  ShownCluster& shown_cluster_;
  QVBoxLayout* layout_;
  std::vector<Strip> strips_;
  QLabel* more_;
};

}  // namespace onepiece::gui
