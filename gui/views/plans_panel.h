// Plans, newest first, and one of them in full; and above the page a strip for each that is under
// way, whoever started it.
//
// Threading  GUI thread only.
#pragma once

#include <QFrame>
#include <QLabel>
#include <QPushButton>
#include <QSplitter>
#include <QVBoxLayout>
#include <memory>
#include <vector>

#include "gui/models/pool_board.h"
#include "gui/models/store.h"
#include "gui/views/effect_panel.h"
#include "gui/views/table_panel.h"

namespace onepiece::gui {

/// The plans of a snapshot, newest first, those under way included though the list is older. They
/// live as long as the snapshot.
std::vector<const v1::Plan*> PlansOf(const Snapshot& snapshot);
/// Null: the snapshot has no such plan.
const v1::Plan* FindPlan(const Snapshot& snapshot, const QString& plan_id);

class PlansPanel : public QWidget {
  Q_OBJECT
 public:
  explicit PlansPanel(Store& store, QWidget* parent = nullptr);

  void Show(const Snapshot& snapshot, const PoolBoard& board);
  bool Select(const QString& plan_id) { return plans_->Select(plan_id); }
  void SetFilter(const QString& text) { plans_->SetFilter(text); }
  /// Of the current row; empty: none.
  [[nodiscard]] QString current() const { return plans_->current(); }
  [[nodiscard]] QAbstractItemModel* table() const { return plans_->rows(); }
  /// How the table and the chosen plan lie.
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
  void ShowDetails(const Snapshot& snapshot, const PoolBoard& board);

  Store& store_;
  std::unique_ptr<KeyedTable<PlanRow>> rows_;
  std::unique_ptr<KeyedTable<MoveRow>> moves_;
  QSplitter* split_;
  TablePanel *plans_, *move_table_;
  QWidget* details_;
  QLabel* about_;
  QPushButton *keep_, *undo_;
  EffectPanel* effect_;
};

/// One line each: where the plan is, and until when it must be kept.
class PlanStrips : public QWidget {
  Q_OBJECT
 public:
  static constexpr std::size_t kMost = 3;  ///< Of more, the rest is counted.

  explicit PlanStrips(Store& store, QWidget* parent = nullptr);
  /// `unanswered`: of a change whose answer has not come; empty: none.
  void Show(const Snapshot& snapshot, const QString& unanswered);

 Q_SIGNALS:
  void KeepWanted(const QString& plan_id);
  void UndoWanted(const QString& plan_id);
  void DetailsWanted(const QString& plan_id);
  void SendAgainWanted();
  void LeaveItWanted();

 private:
  struct Strip {
    QString plan_id;  ///< Empty: the change without an answer.
    QFrame* frame;
    QLabel* text;
    QPushButton *keep, *undo;
  };
  Strip MakeStrip(const QString& plan_id);
  void ShowPlan(Strip& strip, const v1::Plan& plan);

  Store& store_;
  QVBoxLayout* layout_;
  std::vector<Strip> strips_;
  QLabel* more_;
};

}  // namespace onepiece::gui
