// The draft of a plan: its moves, what the server says that they would do, and the way to start
// them.
//
// Threading  GUI thread only.
#pragma once

#include <QComboBox>
#include <QLabel>
#include <QPushButton>
#include <QSplitter>
#include <QToolButton>
#include <memory>
#include <optional>

#include "gui/models/plan_draft.h"
#include "gui/models/store.h"
#include "gui/views/effect_panel.h"
#include "gui/views/table_panel.h"

namespace onepiece::gui {

/// What the last dry run came to. It is of the draft that it was asked for, and of no other.
struct DryRun {
  std::string request;  ///< The draft's moves, serialised.
  PoolBoard board;      ///< As it was seen then.
  bool asking = false;
  absl::StatusOr<v1::Plan> plan = v1::Plan();
};

class DraftPanel : public QWidget {
  Q_OBJECT
 public:
  DraftPanel(Store& store, PlanDraft& draft, QWidget* parent = nullptr);

  /// Draws the draft again: after an edit, and when what is shown has changed.
  void Show();
  /// Asks the server what the draft would do; what the policy would, which becomes the draft.
  void Ask();
  void AskPolicy();
  /// The server has refused to start it, for what it was made for has changed: says what, and makes
  /// a new dry run. Nothing is started again by itself.
  void BecameStale(const QString& why);
  /// Drops what the server has said.
  void Forget();
  /// The dry run of the present draft; null: there is none.
  [[nodiscard]] const v1::Plan* proposed() const;
  /// Empty: the draft can be started.
  [[nodiscard]] QString WhyNotApply() const;
  /// 0: it needs no confirmation.
  [[nodiscard]] int confirm_within_s() const { return confirm_->currentData().toInt(); }
  /// How moves and effect lie.
  void SetOrientation(Qt::Orientation orientation);
  [[nodiscard]] const EffectPanel& effect() const { return *effect_; }
  [[nodiscard]] QString note() const { return note_->text(); }

 Q_SIGNALS:
  /// The draft has been edited here.
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
  /// What a dry run needs; empty: it can be asked for.
  [[nodiscard]] QString WhyNotAsk() const;
  [[nodiscard]] bool IsCurrent() const;
  void Propose(const v1::ProposePlanRequest& request, bool policy);
  void Answered(absl::StatusOr<v1::Plan> plan, bool policy);
  void ShowMoves();
  void ShowEffect();
  [[nodiscard]] QString Note() const;

  Store& store_;
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
