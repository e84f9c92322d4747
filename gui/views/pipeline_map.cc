#include "gui/views/pipeline_map.h"

#include <QMouseEvent>
#include <QPainter>
#include <algorithm>
#include <utility>

namespace onepiece::gui {

PipelineMap::PipelineMap(QWidget* parent) : QWidget(parent) {
  setObjectName(QStringLiteral("pipelines.map"));
  setAccessibleName(tr("Map"));
  setToolTip(tr("Press to see that part"));
  setFocusPolicy(Qt::NoFocus);
}

void PipelineMap::Show(std::vector<Block> blocks, const QRectF& all, const QRectF& seen) {
  if (blocks == blocks_ && all == all_ && seen == seen_) return;
  blocks_ = std::move(blocks);
  all_ = all;
  seen_ = seen;
  update();
}

QTransform PipelineMap::FromScene() const {
  const QRectF room = QRectF(rect()).adjusted(6, 6, -6, -6);
  if (all_.isEmpty()) return {};
  const double scale = std::min(room.width() / all_.width(), room.height() / all_.height());
  const QPointF middle = room.center() - all_.center() * scale;
  return {scale, 0, 0, scale, middle.x(), middle.y()};
}

void PipelineMap::paintEvent(QPaintEvent* /*event*/) {
  QPainter painter(this);
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setPen(palette().color(QPalette::Mid));
  painter.setBrush(palette().color(QPalette::Base));
  painter.drawRoundedRect(QRectF(rect()).adjusted(0.5, 0.5, -0.5, -0.5), 6, 6);
  const QTransform transform = FromScene();
  painter.setPen(Qt::NoPen);
  for (const Block& block : blocks_) {
    painter.setBrush(block.color);
    painter.drawRoundedRect(transform.mapRect(block.box), 1.5, 1.5);
  }
  painter.setBrush(Qt::NoBrush);
  painter.setPen(QPen(palette().color(QPalette::Highlight), 1.5));
  painter.drawRect(transform.mapRect(seen_.intersected(all_)));
}

void PipelineMap::mousePressEvent(QMouseEvent* event) {
  Q_EMIT Chosen(FromScene().inverted().map(event->position()));
}

void PipelineMap::mouseMoveEvent(QMouseEvent* event) {
  if (event->buttons() & Qt::LeftButton) mousePressEvent(event);
}

}  // namespace onepiece::gui
