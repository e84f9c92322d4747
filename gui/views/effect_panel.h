// What a plan would do, or has done: the server's numbers, where they come from, and how well they
// fit what is measured.
//
// Threading  GUI thread only.
#pragma once

#include <QLabel>
#include <memory>

#include "gui/models/plan_effect.h"
#include "gui/views/table_panel.h"

namespace onepiece::gui {

class EffectPanel : public QWidget {
  Q_OBJECT
 public:
  explicit EffectPanel(const QString& name, QWidget* parent = nullptr);

  /// Nothing to show, and why.
  void ShowNothing(const QString& why);
  /// `elasticity` null: nothing is measured; the column of what is measured is for plans that have
  /// begun.
  void Show(const v1::Plan& plan, const v1::Elasticity* elasticity, std::int64_t server_now_ms);
  [[nodiscard]] const KeyedTable<EffectRow>& rows() const { return *rows_; }
  [[nodiscard]] QString head() const { return head_->text(); }

 private:
  std::unique_ptr<KeyedTable<EffectRow>> rows_;
  QLabel* head_;
  TablePanel* table_;
};

}  // namespace onepiece::gui
