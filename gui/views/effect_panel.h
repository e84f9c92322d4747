// The effect of a plan, predicted or measured: the server's numbers, what they are based on, and
// how well they fit what is measured.
//
// Threading: GUI thread only.
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

  /// Shows no numbers, and says why.
  void ShowNothing(const QString& why);
  /// Shows the effect of a plan. If `elasticity` is not null, the column of measured values is
  /// filled for a plan that has begun.
  void Show(const v1::Plan& plan, const v1::Elasticity* elasticity, std::int64_t server_now_ms);
  [[nodiscard]] const KeyedTable<EffectRow>& rows() const { return *rows_; }
  [[nodiscard]] QString head() const { return head_->text(); }

 private:
  std::unique_ptr<KeyedTable<EffectRow>> rows_;
  QLabel* head_;
  TablePanel* table_;
};

}  // namespace onepiece::gui
