// The pools side by side with their instances as cards. Cards are dragged from one pool to another,
// or moved by keys.
//
// Threading: GUI thread only.
#pragma once

#include <QHBoxLayout>
#include <QScrollArea>
#include <string>
#include <vector>

#include "gui/models/plan_draft.h"

namespace onepiece::gui {

class PoolBox;

/// Draws a draft over its board, and signals what the operator wants. It changes nothing itself.
/// The arrow keys go from card to card, M and the context menu offer what can be done with a card,
/// and Enter asks for its details.
class PoolColumns : public QScrollArea {
  Q_OBJECT
 public:
  static constexpr const char* kMimeType = "application/x-onepiece-instance";

  explicit PoolColumns(QWidget* parent = nullptr);
  ~PoolColumns() override;

  void Show(const PlanDraft& draft);
  /// While a card is dragged no column is removed.
  void SetDragging(bool dragging) { dragging_ = dragging; }
  /// Shows only cards that contain the text, and says above them how many are hidden.
  void SetFilter(const QString& text);
  /// Makes the card current and gives it the focus, in the pool where the draft puts it. False if
  /// there is no such card; current() returns its id all the same.
  bool SelectNode(const std::string& node_id);
  bool SelectPool(const PoolKey& key);
  /// The instance whose card is current. Empty for none.
  [[nodiscard]] std::string current() const { return current_; }

 Q_SIGNALS:
  void MoveWanted(const std::string& node_id, const onepiece::gui::PoolKey& to);
  void MoreWanted(const onepiece::gui::PoolKey& pool);
  void LessWanted(const onepiece::gui::PoolKey& pool);
  void LimitsWanted(const onepiece::gui::PoolKey& pool);
  void MenuWanted(const std::string& node_id, const QPoint& at);
  void DetailsWanted(const std::string& node_id);

 protected:
  void changeEvent(QEvent* event) override;

 private:
  friend class PoolBox;
  /// Makes the columns of these pools. Columns that exist already stay.
  void MakeColumns(const PoolBoard& board);
  void Step(const PoolBox* from, int columns, int row);

  QHBoxLayout* layout_;
  bool dragging_ = false;
  std::vector<PoolBox*> columns_;
  std::string current_;
  QString filter_;
};

}  // namespace onepiece::gui
