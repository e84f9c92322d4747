#include "gui/views/pipeline_items.h"

#include <QCoreApplication>
#include <QFontMetricsF>
#include <QPainter>
#include <QPainterPathStroker>
#include <algorithm>
#include <cmath>

#include "gui/views/tone.h"

namespace onepiece::gui {
namespace {

constexpr double kRing = 4;  ///< Room around an item for the ring of the current one.

QColor Mix(const QColor& ground, const QColor& color, double share) {
  return QColor::fromRgbF(
      static_cast<float>(ground.redF() * (1 - share) + color.redF() * share),
      static_cast<float>(ground.greenF() * (1 - share) + color.greenF() * share),
      static_cast<float>(ground.blueF() * (1 - share) + color.blueF() * share));
}

/// Writes a text, cut with "…" if it does not fit. Returns its width.
double Write(QPainter& painter, const QRectF& box, Qt::Alignment align, const QFont& font,
             const QColor& color, const QString& text) {
  if (text.isEmpty() || box.width() <= 0) return 0;
  const QFontMetricsF metrics(font);
  const double width = metrics.horizontalAdvance(text);
  const bool fits = width <= box.width();
  const QString cut = fits ? text : metrics.elidedText(text, Qt::ElideRight, box.width());
  painter.setFont(font);
  painter.setPen(color);
  painter.drawText(box, static_cast<int>(align | Qt::AlignVCenter | Qt::TextSingleLine), cut);
  return std::min(width, box.width());
}

void Bar(QPainter& painter, const QRectF& box, int permille, const QColor& ground,
         const QColor& color) {
  painter.setPen(Qt::NoPen);
  painter.setBrush(ground);
  const double radius = box.height() / 2;
  painter.drawRoundedRect(box, radius, radius);
  if (permille <= 0) return;
  const double width = std::max(box.width() * permille / 1000, box.height());
  painter.setBrush(color);
  painter.drawRoundedRect(QRectF(box.topLeft(), QSizeF(width, box.height())), radius, radius);
}

void ArrowHead(QPainter& painter, const QPainterPath& path, const QColor& color, double size) {
  const QPointF tip = path.pointAtPercent(1), back = path.pointAtPercent(0.985);
  const double angle = std::atan2(tip.y() - back.y(), tip.x() - back.x());
  const auto corner = [&](double turn) {
    return tip - QPointF(std::cos(angle + turn), std::sin(angle + turn)) * size;
  };
  painter.setPen(Qt::NoPen);
  painter.setBrush(color);
  painter.drawPolygon(QPolygonF({tip, corner(0.5), corner(-0.5)}));
}

}  // namespace

Detail DetailAt(double zoom) {
  return zoom < 0.3 ? Detail::kStages : zoom < 0.6 ? Detail::kFill : Detail::kFull;
}

void PipelineStyle::Set(const QPalette& new_palette, const QFont& new_font) {
  palette = new_palette;
  font = new_font;
  fonts_.clear();
  for (std::size_t i = 0; i < tones.size(); ++i) {
    tones[i] = ToneColor(static_cast<StatusTone>(i), palette);
  }
  // A neutral tone is muted, so that it does not draw attention.
  tones[static_cast<std::size_t>(StatusTone::kNeutral)] =
      Mix(color(QPalette::Base), color(QPalette::Text), 0.68);
}

QColor PipelineStyle::Tint(const QColor& tint, double share) const {
  return Mix(color(QPalette::Base), tint, share);
}

double PipelineStyle::card_tint() const { return IsDark(palette) ? 0.20 : 0.11; }

QColor PipelineStyle::Muted() const {
  return Mix(color(QPalette::Base), color(QPalette::Text), 0.78);
}

const QFont& PipelineStyle::Type(double pixels, bool bold) const {
  const int size = std::max(static_cast<int>(std::lround(pixels)), 1);
  const auto [at, is_new] = fonts_.try_emplace({size, bold}, font);
  if (is_new) {
    at->second.setPixelSize(size);
    at->second.setBold(bold);
  }
  return at->second;
}

void PipelineItem::SetArea(const QRectF& area) {
  const QRectF wide = area.adjusted(-kRing, -kRing, kRing, kRing);
  if (wide == area_) return;
  prepareGeometryChange();
  area_ = wide;
}

void PipelineItem::SetDimmed(bool dimmed) {
  dimmed_ = dimmed;
  Blend();
}

void PipelineItem::SetArrival(double share) {
  arrival_ = share;
  Blend();
}

void PipelineItem::Blend() {
  const double wanted = arrival_ * (dimmed_ ? 0.28 : 1);
  if (std::abs(wanted - opacity()) > 1e-6) setOpacity(wanted);
}

void PipelineItem::SetCurrent(bool current) {
  if (std::exchange(current_, current) != current) update();
}

void PipelineItem::PaintRing(QPainter& painter, const QRectF& box, double radius) const {
  if (!current_) return;
  // The ring keeps its thickness on the screen when everything gets small.
  const double width = std::clamp(2.5 / style_.zoom, 2.5, 8.0);
  painter.setPen(QPen(style_.color(QPalette::Highlight), width));
  painter.setBrush(Qt::NoBrush);
  painter.drawRoundedRect(box.adjusted(-1.5, -1.5, 1.5, 1.5), radius + 1.5, radius + 1.5);
}

// Cards.

void CardItem::Set(const CardLook& look, const QRectF& box) {
  SetArea(box);
  if (look == look_ && box == box_) return;
  look_ = look;
  box_ = box;
  update();
}

void CardItem::paint(QPainter* painter, const QStyleOptionGraphicsItem* /*option*/,
                     QWidget* /*widget*/) {
  const Detail detail = DetailAt(style_.zoom);
  if (detail == Detail::kStages) return;
  if (detail == Detail::kFull) {
    PaintFull(*painter);
  } else {
    PaintFill(*painter);
  }
  PaintRing(*painter, box_, 8);
}

void CardItem::PaintGround(QPainter& painter, double strength) const {
  const QColor tone = style_.tone(look_.tone);
  if (look_.kind == PipelineCard::Kind::kLive) {
    painter.setPen(Qt::NoPen);
    painter.setBrush(style_.Tint(tone, strength));
    painter.drawRoundedRect(box_, 8, 8);
    return;
  }
  QPen dashes(tone, std::clamp(1.4 / style_.zoom, 1.4, 4.0));
  dashes.setDashPattern({4, 3});
  painter.setPen(dashes);
  painter.setBrush(style_.Tint(style_.color(QPalette::Window), 0.5));
  painter.drawRoundedRect(box_.adjusted(1, 1, -1, -1), 7, 7);
}

void CardItem::PaintFull(QPainter& painter) const {
  const QColor tone = style_.tone(look_.tone);
  PaintGround(painter, style_.card_tint());
  const double left = box_.left() + 14, right = box_.right() - 12;
  if (look_.kind == PipelineCard::Kind::kLive) {
    painter.setPen(Qt::NoPen);
    painter.setBrush(tone);
    painter.drawRoundedRect(QRectF(box_.left() + 5, box_.top() + 9, 3.5, box_.height() - 18), 1.7,
                            1.7);
  }
  const QRectF line(left, box_.top() + 7, right - left, 18);
  const bool planned = look_.kind == PipelineCard::Kind::kPlanned;
  const double glyph = Write(painter, line, Qt::AlignLeft, style_.Type(12, true), tone,
                             planned ? QStringLiteral("+") : ToneGlyph(look_.tone)) +
                       5;
  const QFont small = style_.Type(11);
  const double state =
      std::min(QFontMetricsF(small).horizontalAdvance(look_.state), line.width() * 0.48);
  QFont name = style_.Type(12.5, true);
  if (look_.fate == PipelineCard::Fate::kLeaves) name.setStrikeOut(true);
  Write(painter, line.adjusted(glyph, 0, -state - 8, 0), Qt::AlignLeft, name,
        style_.color(QPalette::Text), look_.name);
  Write(painter, QRectF(line.right() - state - 1, line.top(), state + 1, line.height()),
        Qt::AlignRight, small, style_.Muted(), look_.state);
  PaintNumbers(painter);
}

void CardItem::PaintNumbers(QPainter& painter) const {
  const double left = box_.left() + 14, right = box_.right() - 12, top = box_.top();
  const QFont small = style_.Type(11);
  const QColor text = style_.color(QPalette::Text), muted = style_.Muted();
  const QRectF last(left, top + 61, right - left, 15);
  if (look_.kind != PipelineCard::Kind::kLive) {
    Write(painter, last.translated(0, -22), Qt::AlignLeft, small, muted, look_.mark);
    return;
  }
  const QColor tone = style_.tone(look_.tone),
               groove = Mix(style_.color(QPalette::Base), text, 0.16);
  Write(painter, QRectF(right - 40, top + 26, 40, 15), Qt::AlignRight, style_.Type(11, true), text,
        look_.busy);
  if (look_.busy_permille >= 0) {
    Bar(painter, QRectF(left, top + 31, right - left - 46, 6), look_.busy_permille, groove, tone);
  }
  // A dot for each worker, if they are few enough to be distinguished.
  double x = left;
  const QRectF line(left, top + 42, right - left, 15);
  if (look_.workers > 0 && look_.workers <= 8) {
    painter.setPen(Qt::NoPen);
    for (std::int64_t i = 0; i < look_.workers; ++i) {
      painter.setBrush(i < look_.running ? tone : groove);
      painter.drawRoundedRect(QRectF(x, line.center().y() - 3.5, 7, 7), 2, 2);
      x += 9;
    }
    x += 2;
  }
  Write(painter, line.adjusted(x - left, 0, 0, 0), Qt::AlignLeft, small, text, look_.jobs);
  const QString ring =
      QCoreApplication::translate("onepiece::gui::PipelineText", "ring %1").arg(look_.ring);
  const double ring_width = QFontMetricsF(small).horizontalAdvance(ring);
  Write(painter, line, Qt::AlignRight, small, muted, ring);
  if (look_.ring_permille >= 0) {
    Bar(painter, QRectF(right - ring_width, line.bottom() + 0.5, ring_width, 2.5),
        look_.ring_permille, groove, style_.tone(StatusTone::kBusy));
  }
  if (look_.mark.isEmpty()) {
    Write(painter, last, Qt::AlignLeft, small, muted, look_.service);
  } else {
    Write(painter, last, Qt::AlignLeft, style_.Type(11, true),
          style_.tone(look_.stale ? StatusTone::kUnknown : StatusTone::kBusy), look_.mark);
  }
  Write(painter, last.adjusted(last.width() * 0.5, 0, 0, 0), Qt::AlignRight, small, muted,
        look_.sm);
}

void CardItem::PaintFill(QPainter& painter) const {
  const QColor tone = style_.tone(look_.tone);
  PaintGround(painter, 0.24);
  if (look_.kind == PipelineCard::Kind::kLive && look_.busy_permille > 0) {
    QPainterPath shape;
    shape.addRoundedRect(box_, 8, 8);
    painter.save();
    painter.setClipPath(shape, Qt::IntersectClip);
    painter.fillRect(
        QRectF(box_.left(), box_.top(), box_.width() * look_.busy_permille / 1000, box_.height()),
        style_.Tint(tone, 0.55));
    painter.restore();
  }
  const bool planned = look_.kind == PipelineCard::Kind::kPlanned;
  // A good state stays quiet, so that the others stand out.
  const bool well = look_.tone == StatusTone::kGood || look_.tone == StatusTone::kNeutral;
  Write(painter, box_, Qt::AlignHCenter, style_.Type(well ? 22 : 36, true),
        well ? style_.Muted() : style_.color(QPalette::Text),
        planned ? QStringLiteral("+") : ToneGlyph(look_.tone));
  if (look_.fate == PipelineCard::Fate::kLeaves) {
    painter.setPen(QPen(style_.color(QPalette::Text), 4));
    painter.drawLine(QPointF(box_.left() + 20, box_.center().y()),
                     QPointF(box_.right() - 20, box_.center().y()));
  }
}

// Stages.

void StageItem::Set(const StageLook& look, const QRectF& box, const QRectF& header) {
  SetArea(box);
  if (look == look_ && box == box_ && header == header_) return;
  look_ = look;
  box_ = box;
  header_ = header;
  update();
}

void StageItem::paint(QPainter* painter, const QStyleOptionGraphicsItem* /*option*/,
                      QWidget* /*widget*/) {
  const Detail detail = DetailAt(style_.zoom);
  const bool block = detail == Detail::kStages && look_.kind == PipelineStage::Kind::kPool;
  const QColor base = style_.color(QPalette::Base), text = style_.color(QPalette::Text);
  // If blocks have the colour of the page, only a line shows them.
  const bool flat = base == style_.color(QPalette::Window);
  painter->setPen(QPen(Mix(base, text, flat ? 0.5 : 0.14), flat ? 1.5 : 1));
  painter->setBrush(block ? style_.Tint(style_.tone(look_.tone), 0.30) : base);
  painter->drawRoundedRect(box_, 12, 12);
  if (look_.bottleneck) {
    // The whole header is filled, so that it is visible from afar. A line would not be.
    QPainterPath all, head;
    all.addRoundedRect(box_.adjusted(0.5, 0.5, -0.5, -0.5), 12, 12);
    head.addRect(header_.adjusted(0, 0, 0, box_.height() > header_.height() ? -4 : 0));
    if (!block)
      painter->fillPath(all.intersected(head), style_.Tint(style_.tone(look_.tone), 0.22));
  }
  if (detail == Detail::kFull) {
    PaintFull(*painter);
  } else {
    PaintLarge(*painter, block ? box_ : header_);
  }
  PaintRing(*painter, detail == Detail::kStages ? box_ : header_, 12);
}

void StageItem::PaintFull(QPainter& painter) const {
  const QColor text = style_.color(QPalette::Text), muted = style_.Muted();
  const QRectF inside = header_.adjusted(14, 0, -14, 0);
  const double top = header_.top();
  const bool pool = look_.kind == PipelineStage::Kind::kPool;
  if (!pool && look_.kind != PipelineStage::Kind::kIdle) {
    Write(painter, QRectF(inside.left(), top + 14, inside.width(), 22), Qt::AlignHCenter,
          style_.Type(15, true), text, look_.counts);
    Write(painter, QRectF(header_.left() + 4, top + 36, header_.width() - 8, 18), Qt::AlignHCenter,
          style_.Type(11.5), muted, look_.name);
    return;
  }
  double badge = 0;
  if (!look_.badge.isEmpty()) {
    const QFont type = style_.Type(11, true);
    QString words = ToneGlyph(look_.tone) + u' ' + look_.badge;
    badge = QFontMetricsF(type).horizontalAdvance(words);
    const double name = QFontMetricsF(style_.Type(14, true)).horizontalAdvance(look_.name);
    // The pool's name matters more. The tip has the words.
    if (name + badge + 8 > inside.width()) {
      words = ToneGlyph(look_.tone);
      badge = QFontMetricsF(type).horizontalAdvance(words);
    }
    Write(painter, QRectF(inside.right() - badge - 1, top + 9, badge + 1, 20), Qt::AlignRight, type,
          style_.tone(look_.tone), words);
  }
  Write(painter, QRectF(inside.left(), top + 9, inside.width() - badge - 8, 20), Qt::AlignLeft,
        style_.Type(14, true), text, look_.name);
  const double load =
      Write(painter, QRectF(inside.left(), top + 29, inside.width(), 17), Qt::AlignRight,
            style_.Type(12, true), style_.tone(look_.tone), look_.load);
  Write(painter, QRectF(inside.left(), top + 29, inside.width() - load - 8, 17), Qt::AlignLeft,
        style_.Type(11.5), text, look_.counts);
  if (!pool) return;
  if (look_.load_permille >= 0) {
    Bar(painter, QRectF(inside.left(), top + 47, inside.width(), 4), look_.load_permille,
        Mix(style_.color(QPalette::Base), text, 0.14), style_.tone(look_.tone));
  }
  const double work = Write(painter, QRectF(inside.left(), top + 53, inside.width(), 16),
                            Qt::AlignLeft, style_.Type(11), muted, look_.work);
  // The applications are written only if they fit. The tip has them, too.
  const double rest = inside.width() - work - 12;
  if (QFontMetricsF(style_.Type(11)).horizontalAdvance(look_.apps) > rest) return;
  Write(painter, QRectF(inside.right() - rest, top + 53, rest, 16), Qt::AlignRight, style_.Type(11),
        muted, look_.apps);
}

void StageItem::PaintLarge(QPainter& painter, const QRectF& box) const {
  const QRectF inside = box.adjusted(6, 4, -6, -4);
  const QString load = look_.kind == PipelineStage::Kind::kPool ? look_.load : look_.counts;
  QStringList lines = {look_.bottleneck ? ToneGlyph(look_.tone) + u' ' + look_.name : look_.name,
                       load};
  // The name would be too small to read.
  if (box.width() <= PipelineLayout::kEndWidth) lines = {load};
  // As large on the screen as at 100 %, or smaller until it fits.
  double size = std::clamp(11.5 / style_.zoom, 14.0, box.height() / 2.4);
  const double width = QFontMetricsF(style_.Type(size, true)).horizontalAdvance(lines[0]);
  if (width > inside.width()) {
    size = std::max(size * 0.95 * inside.width() / width, 8 / style_.zoom);
  }
  const double row = size * 1.2;
  double y = inside.center().y() - row * static_cast<double>(lines.size()) / 2;
  for (const QString& line : lines) {
    Write(painter, QRectF(inside.left(), y, inside.width(), row), Qt::AlignHCenter,
          style_.Type(size, &line == &lines.front()), style_.color(QPalette::Text), line);
    y += row;
  }
}

// Edges.

void EdgeItem::Set(const EdgeLook& look, const PipelineLayout::Edge& way) {
  if (look == look_ && way == way_ && !path_.isEmpty()) return;
  if (way != way_ || path_.isEmpty()) {
    way_ = way;
    path_ = QPainterPath(way.begin);
    if (way.rise == 0) {
      const double bend = std::max((way.end.x() - way.begin.x()) / 2, 30.0);
      path_.cubicTo(way.begin + QPointF(bend, 0), way.end - QPointF(bend, 0), way.end);
    } else {
      const double top =
          std::min(way.begin.y(), way.end.y()) - PipelineLayout::kHeader / 2 - way.rise;
      const double out = PipelineLayout::kColumnGap * 0.45;
      const QPointF up(way.begin.x() + out, top), down(way.end.x() - out, top);
      path_.cubicTo(way.begin + QPointF(out, 0), QPointF(up.x() - out / 2, top), up);
      path_.lineTo(down);
      path_.cubicTo(QPointF(down.x() + out / 2, top), way.end - QPointF(out, 0), way.end);
    }
    SetArea(path_.boundingRect().adjusted(-10, -40, 10, 70));
  }
  look_ = look;
  update();
}

QPainterPath EdgeItem::shape() const {
  QPainterPathStroker stroker;
  stroker.setWidth(24);
  return stroker.createStroke(path_);
}

QPointF EdgeItem::Middle() const {
  return way_.rise == 0 ? path_.pointAtPercent(0.5)
                        : QPointF((way_.begin.x() + way_.end.x()) / 2,
                                  std::min(way_.begin.y(), way_.end.y()) -
                                      PipelineLayout::kHeader / 2 - way_.rise);
}

void EdgeItem::paint(QPainter* painter, const QStyleOptionGraphicsItem* /*option*/,
                     QWidget* /*widget*/) {
  const QColor color =
      look_.stalled ? style_.tone(StatusTone::kBad)
      : look_.flows ? style_.tone(StatusTone::kBusy)
                    : Mix(style_.color(QPalette::Window), style_.color(QPalette::Text), 0.38);
  const double width = std::max(look_.width / 2.0, 1.5 / style_.zoom);
  QPen pen(color, width, Qt::SolidLine, Qt::FlatCap);
  if (look_.stalled) pen.setDashPattern({std::max(8 / width, 2.0), std::max(5 / width, 1.5)});
  painter->setPen(pen);
  painter->setBrush(Qt::NoBrush);
  painter->drawPath(path_);
  ArrowHead(*painter, path_, color, 7 + width);
  if (DetailAt(style_.zoom) == Detail::kFull) PaintLabel(*painter);
}

void EdgeItem::PaintLabel(QPainter& painter) const {
  const QPointF middle = Middle();
  const QFont bold = style_.Type(12, true), small = style_.Type(10.5);
  const double above = look_.width / 4.0 + 3, line = 14;
  const double room = PipelineLayout::kColumnGap - 10;
  double top = middle.y() - above - 16, below = middle.y() + above;
  if (way_.begin.y() != way_.end.y()) {
    // The line is steep here and would cross the words. They get a background and stand close to
    // it.
    top = below - 16;
    painter.setPen(Qt::NoPen);
    painter.setBrush(style_.color(QPalette::Window));
    const double height = 20 + line * static_cast<double>(look_.details.size());
    painter.drawRoundedRect(QRectF(middle.x() - 38, top - 2, 76, height), 6, 6);
  }
  const auto write = [&](double y, double height, const QFont& font, const QColor& color,
                         const QString& text) {
    Write(painter, QRectF(middle.x() - room / 2, y, room, height), Qt::AlignHCenter, font, color,
          text);
  };
  const QColor muted = style_.Muted();
  write(top, 16, look_.known ? bold : small, look_.known ? style_.color(QPalette::Text) : muted,
        look_.rate);
  for (const QString& detail : look_.details) {
    const bool warns = look_.stalled && &detail == &look_.details.front();
    write(below, line, warns ? style_.Type(10.5, true) : small,
          warns ? style_.tone(StatusTone::kBad) : muted, detail);
    below += line;
  }
}

// Moves and titles.

void MoveItem::Set(const QRectF& from, const QRectF& to) {
  if (from == from_ && to == to_) return;
  from_ = from;
  to_ = to;
  const bool right = to.center().x() >= from.center().x();
  const QPointF begin(right ? from.right() : from.left(), from.center().y());
  const QPointF end(right ? to.left() : to.right(), to.center().y());
  const double bend = (right ? 1 : -1) * std::max(std::abs(end.x() - begin.x()) / 2, 40.0);
  path_ = QPainterPath(begin);
  path_.cubicTo(begin + QPointF(bend, 0), end - QPointF(bend, 0), end);
  SetArea(path_.boundingRect().adjusted(-12, -12, 12, 12));
  update();
}

void MoveItem::paint(QPainter* painter, const QStyleOptionGraphicsItem* /*option*/,
                     QWidget* /*widget*/) {
  if (DetailAt(style_.zoom) == Detail::kStages) return;
  QColor color = style_.tone(StatusTone::kBusy);
  color.setAlphaF(0.7F);  // It passes over other cards.
  QPen pen(color, 2);
  pen.setDashPattern({3, 3});
  painter->setPen(pen);
  painter->setBrush(Qt::NoBrush);
  painter->drawPath(path_);
  ArrowHead(*painter, path_, color, 11);
}

void TitleItem::Set(const QString& text, const QRectF& box) {
  SetArea(box);
  if (text == text_ && box == box_) return;
  text_ = text;
  box_ = box;
  update();
}

void TitleItem::paint(QPainter* painter, const QStyleOptionGraphicsItem* /*option*/,
                      QWidget* /*widget*/) {
  const double size = std::clamp(11 / style_.zoom, 15.0, box_.height() * 0.9);
  Write(*painter, box_, Qt::AlignLeft, style_.Type(size, true), style_.color(QPalette::WindowText),
        text_);
}

}  // namespace onepiece::gui
