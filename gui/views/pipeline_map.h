// The map in the corner of a canvas. It shows the whole scene and the visible part.
//
// Threading: GUI thread only.
#pragma once

#include <QWidget>
#include <vector>

namespace onepiece::gui {

class PipelineMap : public QWidget {
  Q_OBJECT
 public:
  /// A box in the scene.
  struct Block {
    QRectF box;
    QColor color;
    bool operator==(const Block&) const = default;
  };
  explicit PipelineMap(QWidget* parent);
  /// Sets what the map shows, in scene coordinates.
  void Show(std::vector<Block> blocks, const QRectF& all, const QRectF& seen);

 Q_SIGNALS:
  /// The operator has pressed or dragged on this point. It shall be in the middle of the view.
  void Chosen(const QPointF& in_scene);

 protected:
  void paintEvent(QPaintEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;

 private:
  [[nodiscard]] QTransform FromScene() const;
  std::vector<Block> blocks_;
  QRectF all_, seen_;
};

}  // namespace onepiece::gui
