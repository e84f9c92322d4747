// The canvas of the page "Pipelines". It draws a PipelineGraph, with zoom, search, a current item
// and a map in the corner.
//
// Threading: GUI thread only.
#pragma once

#include <QElapsedTimer>
#include <QGraphicsView>
#include <QTimer>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gui/views/pipeline_items.h"

namespace onepiece::gui {

class PipelineMap;

/// The canvas. Items are changed in place and live as long as what they show, so a graph that
/// equals the last one paints nothing.
class PipelineCanvas : public QGraphicsView {
  Q_OBJECT
 public:
  /// A stage or one of its cards, by index in the graph. `stage` -1 means none; `card` -1 means the
  /// stage itself.
  struct Place {
    int stage = -1, card = -1;
    bool operator==(const Place&) const = default;
  };
  static constexpr int kArrivalMs = 2000;
  static constexpr double kMinZoom = 0.05, kMaxZoom = 4, kMaxFit = 2;

  explicit PipelineCanvas(QWidget* parent = nullptr);
  ~PipelineCanvas() override;

  /// Shows a graph. If `arrivals` is true, instances that have come since the last graph fade in,
  /// unless motion is reduced.
  void Show(const PipelineGraph& graph, std::int64_t now_ms, bool arrivals);
  [[nodiscard]] const PipelineGraph& graph() const { return graph_; }
  [[nodiscard]] std::int64_t now_ms() const { return now_ms_; }

  /// Dims what does not contain the text. An empty text dims nothing.
  void SetFilter(const QString& text);
  /// The number of cards that match.
  [[nodiscard]] int matches() const { return matches_; }
  /// Dims all stages except for this one and those that jobs pass before and after it. -1 dims
  /// nothing.
  void FocusStage(int stage);
  [[nodiscard]] int focused_stage() const;

  /// The zoom; 1 is 100 %.
  [[nodiscard]] double zoom() const { return style_.zoom; }
  void ZoomBy(double factor);
  /// Shows everything, and keeps doing so until the operator zooms.
  void Fit();

  [[nodiscard]] Place current() const;
  /// Makes a place current, and scrolls to it.
  void SetCurrent(Place place);
  /// The place of "node/instance-3" or "pool/default/diffusion/wan/tiny". `stage` is -1 if it is
  /// not shown.
  [[nodiscard]] Place Find(const QString& entity) const;
  [[nodiscard]] QString EntityOf(Place place) const;
  /// Does what Enter and a double click do.
  void Activate(Place place);
  [[nodiscard]] QString AccessibleNameOf(Place place) const;
  [[nodiscard]] QRectF SceneRectOf(Place place) const;
  [[nodiscard]] QRect ScreenRectOf(Place place) const;
  [[nodiscard]] Place PlaceAt(const QPoint& in_viewport) const;
  /// The keys of a place. Unlike indices, they hold longer than a graph.
  [[nodiscard]] std::pair<std::string, std::string> KeysOf(Place place) const;
  [[nodiscard]] Place PlaceOf(const std::string& stage_key, const std::string& card_key) const;
  /// The item of a card; null if there is none.
  [[nodiscard]] const CardItem* ItemOf(const std::string& node_id) const;
  [[nodiscard]] const PipelineLayout& where() const { return layout_; }

 Q_SIGNALS:
  /// The operator wants to see this entity.
  void Wanted(const QString& entity);
  /// Zoom, focus or matches have changed.
  void Changed();

 protected:
  void keyPressEvent(QKeyEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;
  void mouseReleaseEvent(QMouseEvent* event) override;
  void mouseDoubleClickEvent(QMouseEvent* event) override;
  void wheelEvent(QWheelEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void scrollContentsBy(int dx, int dy) override;
  void changeEvent(QEvent* event) override;
  bool event(QEvent* event) override;
  bool viewportEvent(QEvent* event) override;

 private:
  /// The key of a stage, and of a card in it.
  using CardKey = std::pair<std::string, std::string>;
  void PlaceStages();
  void PlaceCards(bool arrivals);
  void PlaceEdges();
  void Dim();
  void Restyle();
  void SetScale(double zoom);
  void Arrive();
  void MoveCurrent(int key);
  [[nodiscard]] Place Beside(Place from, int direction) const;
  void MarkCurrent();
  void ShowMap();
  [[nodiscard]] bool Matches(const PipelineStage& stage, const PipelineCard* card) const;

  PipelineGraph graph_;
  PipelineLayout layout_;
  std::vector<std::string> keys_;  ///< Keys of stages, by index.
  // The items of the maps below, by index in the graph.
  std::vector<StageItem*> stage_at_;
  std::vector<CardItem*> card_at_;
  std::vector<EdgeItem*> edge_at_;
  std::int64_t now_ms_ = 0;
  PipelineStyle style_;
  QGraphicsScene scene_;
  // Ownership: scene_ owns the items.
  std::map<std::string, StageItem*> stages_;
  std::map<CardKey, CardItem*> cards_;
  std::map<std::pair<std::string, std::string>, EdgeItem*> edges_;  ///< By the keys of both stages.
  std::map<std::string, MoveItem*> moves_;                          ///< By node id.
  std::map<std::string, TitleItem*> titles_;                        ///< By set.
  std::map<CardKey, qint64> arriving_;  ///< When the card began to fade in.
  QString filter_;
  int matches_ = 0;
  /// Keys. An empty stage means none, an empty card the stage itself.
  std::string current_stage_, current_card_;
  std::string focused_;  ///< Key of a stage. Empty for none.
  bool fits_ = true;
  std::optional<QPoint> pressed_;
  bool panned_ = false;
  QTimer arrival_;
  QElapsedTimer clock_;
  PipelineMap* map_;
};

}  // namespace onepiece::gui
