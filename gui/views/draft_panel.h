// The panel of the draft: its moves, the server's prediction of their effect, and the button that
// starts them.
//
// Threading: GUI thread only.
#pragma once

#include <QComboBox>
#include <QLabel>
#include <QPushButton>
#include <QSplitter>
#include <QToolButton>
#include <memory>
#include <optional>

#include "gui/models/plan_draft.h"
#include "gui/models/shown_cluster.h"
#include "gui/views/effect_panel.h"
#include "gui/views/table_panel.h"

namespace onepiece::gui {

/// The last dry run. It belongs to the draft that it was asked for, and to no other.
struct DryRun {
  std::string request;  ///< The draft's moves, serialised.
  PoolBoard board;      ///< The board at that time.
  bool asking = false;
  absl::StatusOr<v1::Plan> plan = v1::Plan();
};

/// The panel.
class DraftPanel : public QWidget {
  Q_OBJECT
 public:
  DraftPanel(ShownCluster& shown_cluster, PlanDraft& draft, QWidget* parent = nullptr);

  /// Draws the draft again. Call it after an edit and when the shown snapshot has changed.
  void Show();
  /// Ask() asks the server what the draft would do. AskPolicy() asks what the policy would do,
  /// which becomes the draft.
  void Ask();
  void AskPolicy();
  /// Call this when the server has refused to start the draft because its base has changed. The
  /// panel says what has changed and makes a new dry run. It starts nothing by itself.
  void BecameStale(const QString& why);
  /// Drops the dry run.
  void Forget();
  /// The server's plan for the present draft. Null if it has not been asked for.
  [[nodiscard]] const v1::Plan* proposed() const;
  /// Why the draft cannot be started. Empty if it can.
  [[nodiscard]] QString WhyNotApply() const;
  /// The time within which the plan must be confirmed. 0 if it needs no confirmation.
  [[nodiscard]] int confirm_within_s() const { return confirm_->currentData().toInt(); }
  /// Sets whether moves and effect stand beside or below each other.
  void SetOrientation(Qt::Orientation orientation);
  [[nodiscard]] const EffectPanel& effect() const { return *effect_; }
  [[nodiscard]] QString note() const { return note_->text(); }

 Q_SIGNALS:
  /// The panel has edited the draft.
  void Edited();
  void ApplyWanted();
  void Told(const QString& text);

 private:
  struct MoveRow {
    QString key, node, move, loads;
    StatusTone tone = StatusTone::kNeutral;
    friend bool operator==(const MoveRow&, const MoveRow&) = default;
  };
  void MakeButtons();
  /// Why a dry run cannot be asked for. Empty if it can.
  [[nodiscard]] QString WhyNotAsk() const;
  [[nodiscard]] bool IsCurrent() const;
  void Propose(const v1::ProposePlanRequest& request, bool policy);
  void Answered(absl::StatusOr<v1::Plan> plan, bool policy);
  void ShowMoves();
  void ShowEffect();
  [[nodiscard]] QString Note() const;

  ShownCluster& shown_cluster_;
  PlanDraft& draft_;
  std::optional<DryRun> dry_run_;
  /// The server's refusal, and the board for which the refused plan was made.
  QString stale_why_;
  PoolBoard stale_board_;
  std::unique_ptr<KeyedTable<MoveRow>> rows_;
  QLabel *title_, *note_;
  QToolButton *undo_, *redo_, *clear_, *copy_;
  QPushButton *ask_, *policy_, *apply_, *renew_;
  QComboBox* confirm_;
  QSplitter* split_;
  TablePanel* moves_;
  EffectPanel* effect_;
};

}  // namespace onepiece::gui
