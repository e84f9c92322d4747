// A page that is one table under a line in words.
#pragma once

#include <QHBoxLayout>
#include <QLabel>

#include "gui/models/format.h"
#include "gui/views/table_panel.h"
#include "gui/views/view.h"

namespace onepiece::gui {

/// Threading  GUI thread only.
class ListPage : public View {
  Q_OBJECT
 public:
  [[nodiscard]] QAbstractItemModel* ExportModel() override { return panel_->rows(); }
  /// Keys of rows are what follows the first "/" of their entity.
  void Focus(const QString& entity) override;
  void SetFilter(const QString& text) override { panel_->SetFilter(text); }

 protected:
  /// `model` is the derived class's, and outlives the page's table: it is given in its constructor
  /// after the model was made.
  ListPage(const QString& id, const QString& title, Store& store, QWidget* parent);
  ~ListPage() override;
  void SetModel(QAbstractItemModel* model);
  /// What the table says in words; loud when it is bad.
  void Say(const QString& headline, StatusTone tone, const QString& note = {});
  [[nodiscard]] TablePanel* panel() const { return panel_; }
  /// Right of the line in words, for buttons.
  [[nodiscard]] QHBoxLayout* head() const { return head_; }

  void changeEvent(QEvent* event) override;

 private:
  void Colour();

  QHBoxLayout* head_;
  QLabel *headline_, *note_;
  StatusTone tone_ = StatusTone::kNeutral;
  TablePanel* panel_ = nullptr;
};

}  // namespace onepiece::gui
