// The page "Pipelines": how jobs flow through the stages of each workflow set, and where they are
// held up.
//
// Threading: GUI thread only.
#pragma once

#include <QLabel>
#include <QPushButton>
#include <QStackedLayout>
#include <memory>

#include "gui/models/pipeline_table.h"
#include "gui/views/pipeline_canvas.h"
#include "gui/views/view.h"

namespace onepiece::gui {

class PipelinesView : public View {
  Q_OBJECT
 public:
  explicit PipelinesView(ShownCluster& shown_cluster, QWidget* parent = nullptr);
  [[nodiscard]] std::vector<Command> Commands() override;
  [[nodiscard]] QAbstractItemModel* ExportModel() override;
  void Focus(const QString& entity) override;
  void SetFilter(const QString& text) override;
  [[nodiscard]] QString Help() const override;

  /// Shows the moves of a draft. Null shows none.
  void SetDraft(const v1::Plan* draft);
  [[nodiscard]] PipelineCanvas& canvas() { return *canvas_; }

 protected:
  void Draw(const session::Snapshot& snapshot) override;
  /// Passes the focus on to the canvas. A focus proxy would keep Tab from the buttons.
  void focusInEvent(QFocusEvent* event) override;

 private:
  void JumpToBottleneck();
  void Say();

  PipelineModel model_;
  std::unique_ptr<PipelineTable> table_;
  PipelineCanvas* canvas_;
  QLabel *verdict_, *note_, *zoom_, *empty_;
  QPushButton *clear_, *jump_;
  QStackedLayout* body_;
  QString filter_;
  std::shared_ptr<const session::Snapshot> drawn_;
};

}  // namespace onepiece::gui
