// What stands on the canvas of the page "pipelines". Items are told what they look like and where,
// and paint only when that differs from before.
//
// Units      Pixels at 100 % zoom.
// Threading  GUI thread only.
#pragma once

#include <QFont>
#include <QGraphicsItem>
#include <QPainterPath>
#include <QPalette>
#include <array>
#include <map>
#include <utility>

#include "gui/models/pipeline_layout.h"
#include "gui/models/pipeline_text.h"

namespace onepiece::gui {

/// How much is shown at a zoom.
enum class Detail {
  kFull,
  kFill,    ///< Below 60 %: states by fill and glyph, no labels.
  kStages,  ///< Below 30 %: a block for each stage.
};
Detail DetailAt(double zoom);

/// Colours and sizes of all items, of the palette. They borrow it.
class PipelineStyle {
 public:
  QPalette palette;
  QFont font;
  double zoom = 1;
  std::array<QColor, 6> tones;  ///< By StatusTone.

  void Set(const QPalette& new_palette, const QFont& new_font);
  [[nodiscard]] QColor tone(StatusTone tone) const { return tones[static_cast<std::size_t>(tone)]; }
  [[nodiscard]] QColor color(QPalette::ColorRole role) const { return palette.color(role); }
  /// `share` of `color` on the ground of cards; of the page.
  [[nodiscard]] QColor Tint(const QColor& color, double share) const;
  /// Share of its tone in a card's ground.
  [[nodiscard]] double card_tint() const;
  [[nodiscard]] QColor Muted() const;  ///< Of text that matters less; contrast is still 4.5.
  /// Valid until the next Set: finding a font takes longer than writing with it.
  [[nodiscard]] const QFont& Type(double pixels, bool bold = false) const;

 private:
  mutable std::map<std::pair<int, bool>, QFont> fonts_;
};

class PipelineItem : public QGraphicsItem {
 public:
  explicit PipelineItem(const PipelineStyle& style) : style_(style) {}
  [[nodiscard]] QRectF boundingRect() const override { return area_; }
  /// Beside what is searched for.
  void SetDimmed(bool dimmed);
  /// 0 to 1 of its coming.
  void SetArrival(double share);
  [[nodiscard]] bool dimmed() const { return dimmed_; }
  [[nodiscard]] double arrival() const { return arrival_; }
  void SetCurrent(bool current);

 protected:
  void SetArea(const QRectF& area);
  void PaintRing(QPainter& painter, const QRectF& box, double radius) const;
  const PipelineStyle& style_;
  bool current_ = false;

 private:
  void Blend();
  QRectF area_;
  bool dimmed_ = false;
  double arrival_ = 1;
};

class CardItem : public PipelineItem {
 public:
  using PipelineItem::PipelineItem;
  void Set(const CardLook& look, const QRectF& box);
  [[nodiscard]] const CardLook& look() const { return look_; }
  [[nodiscard]] QRectF box() const { return box_; }
  void paint(QPainter* painter, const QStyleOptionGraphicsItem* option, QWidget* widget) override;

 private:
  void PaintGround(QPainter& painter, double strength) const;
  void PaintFull(QPainter& painter) const;
  void PaintNumbers(QPainter& painter) const;
  void PaintFill(QPainter& painter) const;
  CardLook look_;
  QRectF box_;
};

class StageItem : public PipelineItem {
 public:
  using PipelineItem::PipelineItem;
  void Set(const StageLook& look, const QRectF& box, const QRectF& header);
  [[nodiscard]] const StageLook& look() const { return look_; }
  [[nodiscard]] QRectF box() const { return box_; }
  [[nodiscard]] QRectF header() const { return header_; }
  void paint(QPainter* painter, const QStyleOptionGraphicsItem* option, QWidget* widget) override;

 private:
  void PaintFull(QPainter& painter) const;
  void PaintLarge(QPainter& painter, const QRectF& box) const;
  StageLook look_;
  QRectF box_, header_;
};

class EdgeItem : public PipelineItem {
 public:
  using PipelineItem::PipelineItem;
  void Set(const EdgeLook& look, const PipelineLayout::Edge& way);
  [[nodiscard]] const EdgeLook& look() const { return look_; }
  void paint(QPainter* painter, const QStyleOptionGraphicsItem* option, QWidget* widget) override;
  [[nodiscard]] QPainterPath shape() const override;

 private:
  void PaintLabel(QPainter& painter) const;
  [[nodiscard]] QPointF Middle() const;
  EdgeLook look_;
  PipelineLayout::Edge way_;
  QPainterPath path_;
};

/// From an instance to where a plan puts it.
class MoveItem : public PipelineItem {
 public:
  using PipelineItem::PipelineItem;
  void Set(const QRectF& from, const QRectF& to);
  void paint(QPainter* painter, const QStyleOptionGraphicsItem* option, QWidget* widget) override;

 private:
  QRectF from_, to_;
  QPainterPath path_;
};

/// Name of a workflow set, above its stages.
class TitleItem : public PipelineItem {
 public:
  using PipelineItem::PipelineItem;
  void Set(const QString& text, const QRectF& box);
  void paint(QPainter* painter, const QStyleOptionGraphicsItem* option, QWidget* widget) override;

 private:
  QString text_;
  QRectF box_;
};

}  // namespace onepiece::gui
