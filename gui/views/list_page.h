// The base of pages that are one table under a headline.
#pragma once

#include <QHBoxLayout>
#include <QLabel>

#include "gui/models/format.h"
#include "gui/views/table_panel.h"
#include "gui/views/view.h"

namespace onepiece::gui {

/// A page with a headline, a note and a table.
///
/// Threading: GUI thread only.
class ListPage : public View {
  Q_OBJECT
 public:
  [[nodiscard]] QAbstractItemModel* ExportModel() override { return panel_->rows(); }
  /// Selects a row. The key of a row is what follows the first "/" of its entity.
  void Focus(const QString& entity) override;
  void SetFilter(const QString& text) override { panel_->SetFilter(text); }

 protected:
  /// The derived class owns the model. It makes the model first, and then calls SetModel() in its
  /// constructor.
  ListPage(const QString& id, const QString& title, ShownCluster& shown_cluster, QWidget* parent);
  ~ListPage() override;
  void SetModel(QAbstractItemModel* model);
  /// Sets the headline and its note. A bad tone makes the headline stand out.
  void Say(const QString& headline, StatusTone tone, const QString& note = {});
  [[nodiscard]] TablePanel* panel() const { return panel_; }
  /// The row of the headline, for buttons at its right.
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
