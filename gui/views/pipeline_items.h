// The items on the canvas of the page "Pipelines". An item paints only when it is told a look or a
// place that differs from the last one.
//
// Units: pixels at 100 % zoom.
// Threading: GUI thread only.
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

/// How much the items show, by zoom.
enum class Detail {
  kFull,
  kFill,    ///< Below 60 %: states by fill and glyph, no labels.
  kStages,  ///< Below 30 %: a block for each stage.
};
Detail DetailAt(double zoom);

/// The colours and sizes of all items, from the palette. All items borrow one style.
class PipelineStyle {
 public:
  QPalette palette;
  QFont font;
  double zoom = 1;
  std::array<QColor, 6> tones;  ///< By StatusTone.

  void Set(const QPalette& new_palette, const QFont& new_font);
  [[nodiscard]] QColor tone(StatusTone tone) const { return tones[static_cast<std::size_t>(tone)]; }
  [[nodiscard]] QColor color(QPalette::ColorRole role) const { return palette.color(role); }
  /// Mixes `share` of `color` into the background of a card.
  [[nodiscard]] QColor Tint(const QColor& color, double share) const;
  /// The share of its tone in a card's background.
  [[nodiscard]] double card_tint() const;
  /// The colour of less important text. Its contrast is still 4.5.
  [[nodiscard]] QColor Muted() const;
  /// A font of this size. Fonts are kept, because finding one takes longer than writing with it.
  ///
  /// Lifetime: until the next Set().
  [[nodiscard]] const QFont& Type(double pixels, bool bold = false) const;

 private:
  mutable std::map<std::pair<int, bool>, QFont> fonts_;
};

/// The base of all items.
class PipelineItem : public QGraphicsItem {
 public:
  explicit PipelineItem(const PipelineStyle& style) : style_(style) {}
  [[nodiscard]] QRectF boundingRect() const override { return area_; }
  /// Dims an item that does not match the search.
  void SetDimmed(bool dimmed);
  /// How far the item has faded in, 0 to 1.
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

/// An instance.
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

/// A stage, with its header.
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

/// The flow from one stage to another.
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

/// An arrow from an instance to where a plan moves it.
class MoveItem : public PipelineItem {
 public:
  using PipelineItem::PipelineItem;
  void Set(const QRectF& from, const QRectF& to);
  void paint(QPainter* painter, const QStyleOptionGraphicsItem* option, QWidget* widget) override;

 private:
  QRectF from_, to_;
  QPainterPath path_;
};

/// The name of a workflow set, above its stages.
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
