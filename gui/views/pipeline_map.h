// The map in the corner of a canvas: all of it, and which part is seen.
//
// Threading  GUI thread only.
#pragma once

#include <QWidget>
#include <vector>

namespace onepiece::gui {

class PipelineMap : public QWidget {
  Q_OBJECT
 public:
  struct Block {
    QRectF box;
    QColor color;
    bool operator==(const Block&) const = default;
  };
  explicit PipelineMap(QWidget* parent);
  /// All in the scene's coordinates.
  void Show(std::vector<Block> blocks, const QRectF& all, const QRectF& seen);

 Q_SIGNALS:
  /// A press or a drag: this point shall be in the middle.
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
