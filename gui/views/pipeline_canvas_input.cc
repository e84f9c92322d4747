// The part of PipelineCanvas that handles keys, the mouse and other events.
#include <QApplication>
#include <QHelpEvent>
#include <QKeyEvent>
#include <QScrollBar>
#include <QToolTip>
#include <QWheelEvent>
#include <cmath>

#include "gui/views/pipeline_canvas.h"

namespace onepiece::gui {

PipelineCanvas::Place PipelineCanvas::Beside(Place from, int direction) const {
  // Looks for the nearest item in the nearest column on that side. From a stage it looks for
  // another stage.
  const QPointF here = SceneRectOf(from).center();
  Place best;
  double least = 0;
  const auto consider = [&](Place place) {
    const QPointF there = SceneRectOf(place).center();
    const double across = (there.x() - here.x()) * direction;
    if (across < 1) return;
    const double distance = across + 4 * std::abs(there.y() - here.y());
    if (best.stage < 0 || distance < least) best = place, least = distance;
  };
  for (int i = 0; i < static_cast<int>(graph_.stages.size()); ++i) {
    const PipelineStage& stage = graph_.stages[static_cast<std::size_t>(i)];
    if (from.card < 0 || stage.cards == 0) consider({i, -1});
    if (from.card < 0) continue;
    for (int card = stage.first_card; card < stage.first_card + stage.cards; ++card) {
      consider({i, card});
    }
  }
  return best.stage < 0 ? from : best;
}

void PipelineCanvas::MoveCurrent(int key) {
  Place place = current();
  if (place.stage < 0) {
    if (!graph_.stages.empty()) SetCurrent({0, -1});
    return;
  }
  const PipelineStage& stage = graph_.stages[static_cast<std::size_t>(place.stage)];
  const int last = stage.first_card + stage.cards - 1;
  switch (key) {
    case Qt::Key_Down:
      if (place.card < 0 && stage.cards > 0) {
        place.card = stage.first_card;
      } else if (place.card >= 0 && place.card < last) {
        ++place.card;
      }
      break;
    case Qt::Key_Up:
      if (place.card == stage.first_card) {
        place.card = -1;
      } else if (place.card > stage.first_card) {
        --place.card;
      }
      break;
    case Qt::Key_Home:
      place.card = -1;
      break;
    case Qt::Key_End:
      if (stage.cards > 0) place.card = last;
      break;
    default:
      place = Beside(place, key == Qt::Key_Right ? 1 : -1);
  }
  SetCurrent(place);
}

void PipelineCanvas::keyPressEvent(QKeyEvent* event) {
  switch (event->key()) {
    case Qt::Key_Up:
    case Qt::Key_Down:
    case Qt::Key_Left:
    case Qt::Key_Right:
    case Qt::Key_Home:
    case Qt::Key_End:
      return MoveCurrent(event->key());
    case Qt::Key_Return:
    case Qt::Key_Enter:
      return Activate(current());
    case Qt::Key_Escape:
      if (focused_stage() >= 0) return FocusStage(-1);
      break;
    default:
      break;
  }
  QGraphicsView::keyPressEvent(event);
}

bool PipelineCanvas::event(QEvent* event) {
  // The first Esc ends the focus on a stage, which only this page knows of. The window would use it
  // to clear the filter.
  if (event->type() == QEvent::ShortcutOverride &&
      static_cast<QKeyEvent*>(event)->key() == Qt::Key_Escape && focused_stage() >= 0) {
    event->accept();
    return true;
  }
  return QGraphicsView::event(event);
}

void PipelineCanvas::mousePressEvent(QMouseEvent* event) {
  if (event->button() != Qt::LeftButton) return QGraphicsView::mousePressEvent(event);
  pressed_ = event->pos();
  panned_ = false;
}

void PipelineCanvas::mouseMoveEvent(QMouseEvent* event) {
  if (!pressed_) return QGraphicsView::mouseMoveEvent(event);
  const QPoint by = event->pos() - *pressed_;
  if (!panned_ && by.manhattanLength() < QApplication::startDragDistance()) return;
  panned_ = true;
  pressed_ = event->pos();
  viewport()->setCursor(Qt::ClosedHandCursor);
  horizontalScrollBar()->setValue(horizontalScrollBar()->value() - by.x());
  verticalScrollBar()->setValue(verticalScrollBar()->value() - by.y());
}

void PipelineCanvas::mouseReleaseEvent(QMouseEvent* event) {
  if (!pressed_) return QGraphicsView::mouseReleaseEvent(event);
  pressed_.reset();
  viewport()->unsetCursor();
  if (panned_) return;
  const Place place = PlaceAt(event->pos());
  SetCurrent(place);
  if (place.stage < 0) FocusStage(-1);
}

void PipelineCanvas::mouseDoubleClickEvent(QMouseEvent* event) {
  if (event->button() != Qt::LeftButton) return;
  const Place place = PlaceAt(event->pos());
  SetCurrent(place);
  Activate(place);
}

void PipelineCanvas::wheelEvent(QWheelEvent* event) {
  if ((event->modifiers() & Qt::ControlModifier) == 0) return QGraphicsView::wheelEvent(event);
  ZoomBy(std::pow(1.0015, event->angleDelta().y()));
  event->accept();
}

void PipelineCanvas::resizeEvent(QResizeEvent* event) {
  QGraphicsView::resizeEvent(event);
  if (fits_) Fit();
  ShowMap();
}

void PipelineCanvas::scrollContentsBy(int dx, int dy) {
  QGraphicsView::scrollContentsBy(dx, dy);
  ShowMap();
}

void PipelineCanvas::changeEvent(QEvent* event) {
  QGraphicsView::changeEvent(event);
  if (event->type() != QEvent::PaletteChange && event->type() != QEvent::FontChange) return;
  Restyle();
  if (fits_) Fit();
}

bool PipelineCanvas::viewportEvent(QEvent* event) {
  if (event->type() != QEvent::ToolTip) return QGraphicsView::viewportEvent(event);
  const auto* help = static_cast<QHelpEvent*>(event);
  const Place place = PlaceAt(help->pos());
  QString text;
  if (place.stage >= 0) {
    const PipelineStage& stage = graph_.stages[static_cast<std::size_t>(place.stage)];
    text = place.card < 0
               ? TipOf(stage)
               : TipOf(graph_.cards[static_cast<std::size_t>(place.card)], stage, now_ms_);
  } else {
    const QPointF point = mapToScene(help->pos());
    for (std::size_t i = 0; i < graph_.edges.size(); ++i) {
      if (edge_at_[i]->shape().contains(point)) text = TipOf(graph_.edges[i], graph_);
    }
  }
  QToolTip::showText(help->globalPos(), text.toHtmlEscaped().replace(u'\n', QStringLiteral("<br>")),
                     viewport());
  return true;
}

}  // namespace onepiece::gui
