// Draws a PipelineGraph: zoom, search, the current item, and a map in the corner.
//
// Threading  GUI thread only.
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

/// Items stay as long as what they show and are changed in place: a graph like the one before
/// paints nothing.
class PipelineCanvas : public QGraphicsView {
  Q_OBJECT
 public:
  /// A stage, or one of its cards, by index in the graph. stage -1: none; card -1: the stage
  /// itself.
  struct Place {
    int stage = -1, card = -1;
    bool operator==(const Place&) const = default;
  };
  static constexpr int kArrivalMs = 2000;
  static constexpr double kMinZoom = 0.05, kMaxZoom = 4, kMaxFit = 2;

  explicit PipelineCanvas(QWidget* parent = nullptr);
  ~PipelineCanvas() override;

  /// `arrivals`: instances that have come since the last graph appear slowly, unless motion is
  /// reduced.
  void Show(const PipelineGraph& graph, std::int64_t now_ms, bool arrivals);
  [[nodiscard]] const PipelineGraph& graph() const { return graph_; }
  [[nodiscard]] std::int64_t now_ms() const { return now_ms_; }

  /// What does not contain the text is dimmed. Empty: nothing is.
  void SetFilter(const QString& text);
  /// Cards that match.
  [[nodiscard]] int matches() const { return matches_; }
  /// All but what jobs pass before and after this stage is dimmed; -1: nothing is.
  void FocusStage(int stage);
  [[nodiscard]] int focused_stage() const;

  /// 1 is 100 %.
  [[nodiscard]] double zoom() const { return style_.zoom; }
  void ZoomBy(double factor);
  /// Shows everything, and goes on doing so until somebody zooms.
  void Fit();

  [[nodiscard]] Place current() const;
  /// Scrolls there.
  void SetCurrent(Place place);
  /// "node/instance-3", "pool/default/diffusion/wan/tiny"; nowhere: not shown.
  [[nodiscard]] Place Find(const QString& entity) const;
  [[nodiscard]] QString EntityOf(Place place) const;
  /// What Enter and a double click do.
  void Activate(Place place);
  [[nodiscard]] QString AccessibleNameOf(Place place) const;
  [[nodiscard]] QRectF SceneRectOf(Place place) const;
  [[nodiscard]] QRect ScreenRectOf(Place place) const;
  [[nodiscard]] Place PlaceAt(const QPoint& in_viewport) const;
  /// By key, for those who hold on to things longer than a graph lives.
  [[nodiscard]] std::pair<std::string, std::string> KeysOf(Place place) const;
  [[nodiscard]] Place PlaceOf(const std::string& stage_key, const std::string& card_key) const;
  /// Of a card; null: none.
  [[nodiscard]] const CardItem* ItemOf(const std::string& node_id) const;
  [[nodiscard]] const PipelineLayout& where() const { return layout_; }

 Q_SIGNALS:
  /// Someone wants to see this thing.
  void Wanted(const QString& entity);
  /// Zoom, focus or matches are others.
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
  using CardKey = std::pair<std::string, std::string>;  ///< Of the stage, of the card in it.
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
  std::vector<std::string> keys_;  ///< Of stages, by index.
  // Of the maps below, by index in the graph.
  std::vector<StageItem*> stage_at_;
  std::vector<CardItem*> card_at_;
  std::vector<EdgeItem*> edge_at_;
  std::int64_t now_ms_ = 0;
  PipelineStyle style_;
  QGraphicsScene scene_;
  // Owned by scene_.
  std::map<std::string, StageItem*> stages_;
  std::map<CardKey, CardItem*> cards_;
  std::map<std::pair<std::string, std::string>, EdgeItem*> edges_;  ///< By stages.
  std::map<std::string, MoveItem*> moves_;                          ///< By node id.
  std::map<std::string, TitleItem*> titles_;                        ///< By set.
  std::map<CardKey, qint64> arriving_;                              ///< When it began.
  QString filter_;
  int matches_ = 0;
  std::string current_stage_, current_card_;  ///< Keys; empty: none, the stage itself.
  std::string focused_;                       ///< Key of a stage; empty: none.
  bool fits_ = true;
  std::optional<QPoint> pressed_;
  bool panned_ = false;
  QTimer arrival_;
  QElapsedTimer clock_;
  PipelineMap* map_;
};

}  // namespace onepiece::gui
