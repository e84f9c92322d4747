#include "gui/views/pipeline_canvas.h"

#include <QApplication>
#include <QFontInfo>
#include <QKeyEvent>
#include <QScrollBar>
#include <QToolTip>
#include <QWheelEvent>
#include <algorithm>
#include <cmath>
#include <set>

#include "gui/views/pipeline_accessible.h"
#include "gui/views/pipeline_map.h"
#include "gui/views/tone.h"

namespace onepiece::gui {
namespace {

constexpr double kMargin = 28;  ///< Room around everything, at 100 %.
/// Pixel size of a 10-point font, which the layout is made for.
constexpr double kUsualPixels = 13.33;
constexpr int kMapWidth = 190;

/// The key of a stage: its set, kind and pool.
std::string KeyOf(const PipelineGraph& graph, const PipelineStage& stage) {
  const std::string& set = graph.sets[static_cast<std::size_t>(stage.set)].name;
  return set + '\x01' + std::to_string(static_cast<int>(stage.kind)) + '\x01' + stage.pool;
}

/// Deletes the items that the last graph does not show.
template <typename Map, typename Keep>
void DeleteOthers(Map& items, const Keep& keep) {
  std::erase_if(items, [&](const auto& one) {
    if (keep.contains(one.first)) return false;
    delete one.second;  // Takes itself out of the scene.
    return true;
  });
}

template <typename Item, typename Map, typename Key>
Item& Take(Map& items, const Key& key, QGraphicsScene& scene, const PipelineStyle& style,
           double z) {
  Item*& item = items[key];
  if (item == nullptr) {
    item = new Item(style);
    item->setZValue(z);
    scene.addItem(item);
  }
  return *item;
}

}  // namespace

PipelineCanvas::PipelineCanvas(QWidget* parent)
    : QGraphicsView(parent), map_(new PipelineMap(this)) {
  InstallPipelineAccessibility();
  setObjectName(QStringLiteral("pipelines.canvas"));
  setAccessibleName(tr("Pipelines"));
  setScene(&scene_);
  scene_.setItemIndexMethod(QGraphicsScene::NoIndex);
  setFrameShape(QFrame::NoFrame);
  setRenderHint(QPainter::Antialiasing);
  setViewportUpdateMode(QGraphicsView::SmartViewportUpdate);
  setOptimizationFlag(QGraphicsView::DontSavePainterState);
  setTransformationAnchor(QGraphicsView::AnchorUnderMouse);
  setFocusPolicy(Qt::StrongFocus);
  clock_.start();
  arrival_.setInterval(33);
  connect(&arrival_, &QTimer::timeout, this, &PipelineCanvas::Arrive);
  connect(map_, &PipelineMap::Chosen, this, [this](const QPointF& point) { centerOn(point); });
  map_->hide();
  Restyle();
}

// The scene is destroyed before the view's base class, which would still look at it.
PipelineCanvas::~PipelineCanvas() { setScene(nullptr); }

void PipelineCanvas::Restyle() {
  style_.Set(palette(), font());
  setBackgroundBrush(palette().color(QPalette::Window));
  SetScale(style_.zoom);
}

void PipelineCanvas::Show(const PipelineGraph& graph, std::int64_t now_ms, bool arrivals) {
  const bool first = graph_.stages.empty();
  now_ms_ = now_ms;
  graph_ = graph;
  PipelineLayout layout = LayOut(graph_);
  const bool moved = layout != layout_;
  layout_ = std::move(layout);
  keys_.clear();
  for (const PipelineStage& stage : graph_.stages) keys_.push_back(KeyOf(graph_, stage));
  PlaceStages();
  PlaceCards(arrivals && !first && MotionWanted());
  PlaceEdges();
  if (moved) {
    const double margin = kMargin;
    setSceneRect(layout_.bounds.adjusted(-margin, -margin, margin, margin));
    if (fits_) Fit();
    TellReordered(*this);
  }
  Dim();
  MarkCurrent();
  ShowMap();
}

void PipelineCanvas::PlaceStages() {
  std::set<std::string> there, sets;
  stage_at_.clear();
  for (std::size_t i = 0; i < graph_.stages.size(); ++i) {
    there.insert(keys_[i]);
    StageItem& item = Take<StageItem>(stages_, keys_[i], scene_, style_, 1);
    stage_at_.push_back(&item);
    item.Set(LookOf(graph_.stages[i]), layout_.stages[i], layout_.headers[i]);
  }
  for (std::size_t i = 0; layout_.titled && i < graph_.sets.size(); ++i) {
    sets.insert(graph_.sets[i].name);
    QRectF box = layout_.sets[i];
    box.setHeight(PipelineLayout::kSetTitle - 6);
    Take<TitleItem>(titles_, graph_.sets[i].name, scene_, style_, 0)
        .Set(tr("Workflow set %1").arg(SafeText(graph_.sets[i].name, 80)), box);
  }
  DeleteOthers(stages_, there);
  DeleteOthers(titles_, sets);
}

void PipelineCanvas::PlaceCards(bool arrivals) {
  std::set<CardKey> there;
  card_at_.clear();
  for (std::size_t i = 0; i < graph_.cards.size(); ++i) {
    const PipelineCard& card = graph_.cards[i];
    CardKey key(keys_[static_cast<std::size_t>(card.stage)], card.key);
    const bool is_new = !cards_.contains(key);
    CardItem& item = Take<CardItem>(cards_, key, scene_, style_, 2);
    card_at_.push_back(&item);
    item.Set(LookOf(card, now_ms_), layout_.cards[i]);
    if (is_new && arrivals) {
      item.SetArrival(0);
      arriving_[key] = clock_.elapsed();
    }
    there.insert(std::move(key));
  }
  DeleteOthers(cards_, there);
  if (!arriving_.empty() && !arrival_.isActive()) arrival_.start();
}

void PipelineCanvas::Arrive() {
  std::erase_if(arriving_, [this](const auto& one) {
    const auto item = cards_.find(one.first);
    if (item == cards_.end()) return true;
    const double share = static_cast<double>(clock_.elapsed() - one.second) / kArrivalMs;
    item->second->SetArrival(MotionWanted() ? std::clamp(share, 0.0, 1.0) : 1);
    return share >= 1;
  });
  if (arriving_.empty()) arrival_.stop();
}

void PipelineCanvas::PlaceEdges() {
  std::set<std::pair<std::string, std::string>> there;
  edge_at_.clear();
  for (std::size_t i = 0; i < graph_.edges.size(); ++i) {
    const PipelineEdge& edge = graph_.edges[i];
    const std::pair key(keys_[static_cast<std::size_t>(edge.from)],
                        keys_[static_cast<std::size_t>(edge.to)]);
    there.insert(key);
    EdgeItem& item = Take<EdgeItem>(edges_, key, scene_, style_, 0);
    item.Set(LookOf(edge), layout_.edges[i]);
    edge_at_.push_back(&item);
  }
  DeleteOthers(edges_, there);
  std::map<std::string, QRectF> begins;
  for (std::size_t i = 0; i < graph_.cards.size(); ++i) {
    if (graph_.cards[i].fate == PipelineCard::Fate::kMoves) {
      begins[graph_.cards[i].node_id] = layout_.cards[i];
    }
  }
  std::set<std::string> moving;
  for (std::size_t i = 0; i < graph_.cards.size(); ++i) {
    const PipelineCard& card = graph_.cards[i];
    const auto begin = begins.find(card.node_id);
    if (card.kind != PipelineCard::Kind::kPlanned || begin == begins.end()) continue;
    moving.insert(card.node_id);
    Take<MoveItem>(moves_, card.node_id, scene_, style_, 3).Set(begin->second, layout_.cards[i]);
  }
  DeleteOthers(moves_, moving);
}

// Search and focus.

bool PipelineCanvas::Matches(const PipelineStage& stage, const PipelineCard* card) const {
  const auto has = [this](const QString& text) {
    return text.contains(filter_, Qt::CaseInsensitive);
  };
  const std::string& set = graph_.sets[static_cast<std::size_t>(stage.set)].name;
  if (has(stage.name) || has(SafeText(stage.pool)) || has(SafeText(set)) ||
      has(stage.apps.join(u' '))) {
    return true;
  }
  return card != nullptr && (has(SafeText(card->node_id)) || has(card->state));
}

void PipelineCanvas::Dim() {
  std::vector<bool> in_way(graph_.stages.size(), true), found(graph_.stages.size(), false);
  if (const int focus = focused_stage(); focus >= 0) {
    in_way.assign(graph_.stages.size(), false);
    for (const bool down : {true, false}) {
      std::vector<int> reached = {focus};
      for (std::size_t i = 0; i < reached.size(); ++i) {
        in_way[static_cast<std::size_t>(reached[i])] = true;
        for (const PipelineEdge& edge : graph_.edges) {
          const int here = down ? edge.from : edge.to, next = down ? edge.to : edge.from;
          const bool known = std::find(reached.begin(), reached.end(), next) != reached.end();
          if (here == reached[i] && !known) reached.push_back(next);
        }
      }
    }
  }
  int matches = 0;
  for (std::size_t i = 0; i < graph_.cards.size(); ++i) {
    const PipelineCard& card = graph_.cards[i];
    const auto stage = static_cast<std::size_t>(card.stage);
    const bool match = filter_.isEmpty() || Matches(graph_.stages[stage], &card);
    if (match) ++matches, found[stage] = true;
    card_at_[i]->SetDimmed(!match || !in_way[stage]);
  }
  for (std::size_t i = 0; i < graph_.stages.size(); ++i) {
    const bool match = filter_.isEmpty() || found[i] || Matches(graph_.stages[i], nullptr);
    stage_at_[i]->SetDimmed(!match || !in_way[i]);
  }
  for (std::size_t i = 0; i < graph_.edges.size(); ++i) {
    const PipelineEdge& edge = graph_.edges[i];
    const bool in =
        in_way[static_cast<std::size_t>(edge.from)] && in_way[static_cast<std::size_t>(edge.to)];
    edge_at_[i]->SetDimmed(!filter_.isEmpty() || !in);
  }
  if (std::exchange(matches_, matches) != matches) Q_EMIT Changed();
}

void PipelineCanvas::SetFilter(const QString& text) {
  if (text == filter_) return;
  filter_ = text;
  Dim();
  Q_EMIT Changed();
}

void PipelineCanvas::FocusStage(int stage) {
  const std::string key = KeysOf({stage, -1}).first;
  if (key == focused_) return;
  focused_ = key;
  Dim();
  Q_EMIT Changed();
}

int PipelineCanvas::focused_stage() const { return PlaceOf(focused_, "").stage; }

// Zoom.

void PipelineCanvas::SetScale(double zoom) {
  style_.zoom = std::clamp(zoom, kMinZoom, kMaxZoom);
  const double type = std::clamp(QFontInfo(font()).pixelSize() / kUsualPixels, 0.5, 4.0);
  setTransform(QTransform::fromScale(style_.zoom * type, style_.zoom * type));
  ShowMap();
  Q_EMIT Changed();
}

void PipelineCanvas::ZoomBy(double factor) {
  fits_ = false;
  SetScale(style_.zoom * factor);
}

void PipelineCanvas::Fit() {
  fits_ = true;
  const QRectF all = sceneRect();
  if (graph_.stages.empty() || all.isEmpty()) return;
  const double type = transform().m11() / style_.zoom;
  const QSizeF room = maximumViewportSize();
  SetScale(std::min(
      {room.width() / (all.width() * type), room.height() / (all.height() * type), kMaxFit}));
  centerOn(all.center());
}

void PipelineCanvas::ShowMap() {
  const QRectF seen = mapToScene(viewport()->rect()).boundingRect();
  const bool all = graph_.stages.empty() ||
                   seen.adjusted(-kMargin, -kMargin, kMargin, kMargin).contains(layout_.bounds);
  map_->setVisible(!all);
  if (all) return;
  const double shape = layout_.bounds.height() / std::max(layout_.bounds.width(), 1.0);
  const QSize size(kMapWidth, static_cast<int>(std::clamp(kMapWidth * shape, 50.0, 150.0)) + 12);
  map_->setGeometry(QRect(
      viewport()->geometry().bottomRight() - QPoint(12, 12) - QPoint(size.width(), size.height()),
      size));
  std::vector<PipelineMap::Block> blocks;
  for (std::size_t i = 0; i < graph_.stages.size(); ++i) {
    const StageLook& look = stage_at_[i]->look();
    blocks.push_back({layout_.stages[i], style_.Tint(style_.tone(look.tone), 0.55)});
  }
  map_->Show(std::move(blocks), layout_.bounds, seen);
}

// Places.

std::pair<std::string, std::string> PipelineCanvas::KeysOf(Place place) const {
  if (place.stage < 0 || place.stage >= static_cast<int>(graph_.stages.size())) return {};
  const std::string& stage = keys_[static_cast<std::size_t>(place.stage)];
  if (place.card < 0 || place.card >= static_cast<int>(graph_.cards.size())) return {stage, ""};
  return {stage, graph_.cards[static_cast<std::size_t>(place.card)].key};
}

PipelineCanvas::Place PipelineCanvas::PlaceOf(const std::string& stage_key,
                                              const std::string& card_key) const {
  if (stage_key.empty()) return {};
  for (int i = 0; i < static_cast<int>(graph_.stages.size()); ++i) {
    const PipelineStage& stage = graph_.stages[static_cast<std::size_t>(i)];
    if (keys_[static_cast<std::size_t>(i)] != stage_key) continue;
    if (card_key.empty()) return {i, -1};
    for (int card = stage.first_card; card < stage.first_card + stage.cards; ++card) {
      if (graph_.cards[static_cast<std::size_t>(card)].key == card_key) return {i, card};
    }
    return {};
  }
  return {};
}

PipelineCanvas::Place PipelineCanvas::current() const {
  return PlaceOf(current_stage_, current_card_);
}

void PipelineCanvas::SetCurrent(Place place) {
  std::tie(current_stage_, current_card_) = KeysOf(place);
  MarkCurrent();
  if (place.stage < 0) return;
  ensureVisible(SceneRectOf(place), 24, 24);
  TellCurrent(*this);
}

void PipelineCanvas::MarkCurrent() {
  for (const auto& [key, item] : stages_) {
    item->SetCurrent(key == current_stage_ && current_card_.empty());
  }
  for (const auto& [key, item] : cards_) {
    item->SetCurrent(key.first == current_stage_ && key.second == current_card_);
  }
}

PipelineCanvas::Place PipelineCanvas::Find(const QString& entity) const {
  const std::string wanted = entity.section(u'/', 1).toStdString();
  for (int i = 0; i < static_cast<int>(graph_.cards.size()); ++i) {
    const PipelineCard& card = graph_.cards[static_cast<std::size_t>(i)];
    if (entity.startsWith(u"node/") && card.key == wanted) return {card.stage, i};
  }
  for (int i = 0; i < static_cast<int>(graph_.stages.size()); ++i) {
    if (entity.startsWith(u"pool/") && EntityOf({i, -1}) == entity) return {i, -1};
  }
  return {};
}

QString PipelineCanvas::EntityOf(Place place) const {
  if (place.stage < 0) return {};
  if (place.card >= 0) {
    return QStringLiteral("node/") +
           QString::fromStdString(graph_.cards[static_cast<std::size_t>(place.card)].node_id);
  }
  const PipelineStage& stage = graph_.stages[static_cast<std::size_t>(place.stage)];
  if (stage.kind != PipelineStage::Kind::kPool) return {};
  const std::string& set = graph_.sets[static_cast<std::size_t>(stage.set)].name;
  return QStringLiteral("pool/") + QString::fromStdString(set + "/" + stage.pool);
}

void PipelineCanvas::Activate(Place place) {
  const QString entity = EntityOf(place);
  if (place.card >= 0) {
    Q_EMIT Wanted(entity);
  } else if (place.stage >= 0) {
    FocusStage(focused_stage() == place.stage ? -1 : place.stage);
  }
}

QString PipelineCanvas::AccessibleNameOf(Place place) const {
  if (place.stage < 0) return {};
  const PipelineStage& stage = graph_.stages[static_cast<std::size_t>(place.stage)];
  if (place.card < 0) return AccessibleName(stage);
  return AccessibleName(graph_.cards[static_cast<std::size_t>(place.card)], stage, now_ms_);
}

QRectF PipelineCanvas::SceneRectOf(Place place) const {
  if (place.card >= 0) return layout_.cards[static_cast<std::size_t>(place.card)];
  if (place.stage < 0) return {};
  return layout_.headers[static_cast<std::size_t>(place.stage)];
}

QRect PipelineCanvas::ScreenRectOf(Place place) const {
  const bool stage = place.stage >= 0 && place.card < 0;
  const QRectF box =
      stage ? layout_.stages[static_cast<std::size_t>(place.stage)] : SceneRectOf(place);
  const QRect inside = mapFromScene(box).boundingRect();
  return {viewport()->mapToGlobal(inside.topLeft()), inside.size()};
}

PipelineCanvas::Place PipelineCanvas::PlaceAt(const QPoint& in_viewport) const {
  const QPointF point = mapToScene(in_viewport);
  for (int i = 0; i < static_cast<int>(graph_.stages.size()); ++i) {
    if (!layout_.stages[static_cast<std::size_t>(i)].contains(point)) continue;
    const PipelineStage& stage = graph_.stages[static_cast<std::size_t>(i)];
    for (int card = stage.first_card; card < stage.first_card + stage.cards; ++card) {
      if (layout_.cards[static_cast<std::size_t>(card)].contains(point) &&
          DetailAt(zoom()) != Detail::kStages) {
        return {i, card};
      }
    }
    return {i, -1};
  }
  return {};
}

const CardItem* PipelineCanvas::ItemOf(const std::string& node_id) const {
  const Place place = Find(QStringLiteral("node/") + QString::fromStdString(node_id));
  const auto item = cards_.find(KeysOf(place));
  return item == cards_.end() ? nullptr : item->second;
}

}  // namespace onepiece::gui
