// Pools side by side with their instances as cards, which are dragged from one to another, or
// moved by keys.
//
// Threading  GUI thread only.
#pragma once

#include <QHBoxLayout>
#include <QScrollArea>
#include <string>
#include <vector>

#include "gui/models/plan_draft.h"

namespace onepiece::gui {

class PoolBox;

/// Draws a draft over its board and says what people want of it; it changes nothing itself. Arrow
/// keys go from card to card, M and the context menu ask for what can be done with one, Enter for
/// its details.
class PoolColumns : public QScrollArea {
  Q_OBJECT
 public:
  static constexpr const char* kMimeType = "application/x-onepiece-instance";

  explicit PoolColumns(QWidget* parent = nullptr);
  ~PoolColumns() override;

  void Show(const PlanDraft& draft);
  /// A card is under way: no column goes until it has been dropped.
  void SetDragging(bool dragging) { dragging_ = dragging; }
  /// Keeps cards that contain the text; how many are hidden stands above them.
  void SetFilter(const QString& text);
  /// The card becomes the current one and gets the focus, where it would be by the draft; false:
  /// there is none, and its id is kept for those who ask what is current.
  bool SelectNode(const std::string& node_id);
  bool SelectPool(const PoolKey& key);
  /// The instance whose card is current; empty: none.
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
  /// Makes columns for these pools; those that are there already stay.
  void MakeColumns(const PoolBoard& board);
  void Step(const PoolBox* from, int columns, int row);

  QHBoxLayout* layout_;
  bool dragging_ = false;
  std::vector<PoolBox*> columns_;
  std::string current_;
  QString filter_;
};

}  // namespace onepiece::gui
