#include "gui/views/pipeline_accessible.h"

#include <QAccessible>
#include <QAccessibleWidget>
#include <QPointer>
#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace onepiece::gui {
namespace {

using Place = PipelineCanvas::Place;
using Keys = std::pair<std::string, std::string>;

class CanvasAccessible;

/// A stage or a card. It is found by key, because it outlives the graph that it was found in.
class PlaceAccessible : public QAccessibleInterface, public QAccessibleActionInterface {
 public:
  PlaceAccessible(PipelineCanvas* canvas, Keys keys) : canvas_(canvas), keys_(std::move(keys)) {}

  [[nodiscard]] bool isValid() const override { return canvas_ && Where().stage >= 0; }
  [[nodiscard]] QObject* object() const override { return nullptr; }
  [[nodiscard]] QWindow* window() const override {
    return canvas_ ? canvas_->window()->windowHandle() : nullptr;
  }
  [[nodiscard]] QAccessibleInterface* childAt(int x, int y) const override;
  [[nodiscard]] QAccessibleInterface* parent() const override;
  [[nodiscard]] QAccessibleInterface* child(int index) const override;
  [[nodiscard]] int childCount() const override {
    const Place place = Where();
    if (place.stage < 0 || place.card >= 0) return 0;
    return canvas_->graph().stages[static_cast<std::size_t>(place.stage)].cards;
  }
  [[nodiscard]] int indexOfChild(const QAccessibleInterface* child) const override;
  [[nodiscard]] QString text(QAccessible::Text kind) const override {
    if (!isValid()) return {};
    if (kind == QAccessible::Name) return canvas_->AccessibleNameOf(Where());
    return {};
  }
  void setText(QAccessible::Text /*kind*/, const QString& /*text*/) override {}
  [[nodiscard]] QRect rect() const override {
    return isValid() ? canvas_->ScreenRectOf(Where()) : QRect();
  }
  [[nodiscard]] QAccessible::Role role() const override {
    return keys_.second.empty() ? QAccessible::List : QAccessible::ListItem;
  }
  [[nodiscard]] QAccessible::State state() const override {
    QAccessible::State state;
    state.invalid = !isValid();
    if (state.invalid) return state;
    state.focusable = state.selectable = true;
    const bool current = canvas_->current() == Where();
    state.selected = current;
    state.focused = current && canvas_->hasFocus();
    const QRect seen =
        canvas_->viewport()->rect().translated(canvas_->viewport()->mapToGlobal(QPoint(0, 0)));
    state.offscreen = !seen.intersects(rect());
    return state;
  }
  void* interface_cast(QAccessible::InterfaceType type) override {
    return type == QAccessible::ActionInterface ? static_cast<QAccessibleActionInterface*>(this)
                                                : nullptr;
  }
  [[nodiscard]] QStringList actionNames() const override {
    return {pressAction(), setFocusAction()};
  }
  void doAction(const QString& name) override {
    if (!isValid()) return;
    if (name == setFocusAction()) {
      canvas_->setFocus();
      canvas_->SetCurrent(Where());
    } else if (name == pressAction()) {
      canvas_->Activate(Where());
    }
  }
  [[nodiscard]] QStringList keyBindingsForAction(const QString& name) const override {
    return name == pressAction() ? QStringList{QStringLiteral("Return")} : QStringList();
  }

  [[nodiscard]] Place Where() const {
    return canvas_ ? canvas_->PlaceOf(keys_.first, keys_.second) : Place();
  }

 private:
  [[nodiscard]] CanvasAccessible* Canvas() const;
  QPointer<PipelineCanvas> canvas_;
  Keys keys_;
};

class CanvasAccessible : public QAccessibleWidget {
 public:
  explicit CanvasAccessible(PipelineCanvas* canvas)
      : QAccessibleWidget(canvas, QAccessible::List) {}
  ~CanvasAccessible() override {
    for (const auto& [keys, id] : ids_) QAccessible::deleteAccessibleInterface(id);
  }
  [[nodiscard]] int childCount() const override {
    return static_cast<int>(canvas().graph().stages.size());
  }
  [[nodiscard]] QAccessibleInterface* child(int index) const override {
    return index < 0 || index >= childCount() ? nullptr : Of({index, -1});
  }
  [[nodiscard]] int indexOfChild(const QAccessibleInterface* child) const override {
    const auto* place = dynamic_cast<const PlaceAccessible*>(child);
    return place == nullptr || place->Where().card >= 0 ? -1 : place->Where().stage;
  }
  [[nodiscard]] QAccessibleInterface* childAt(int x, int y) const override {
    const Place place = canvas().PlaceAt(canvas().viewport()->mapFromGlobal(QPoint(x, y)));
    return place.stage < 0 ? nullptr : Of({place.stage, -1});
  }
  [[nodiscard]] QAccessibleInterface* focusChild() const override {
    const Place place = canvas().current();
    return canvas().hasFocus() && place.stage >= 0 ? Of(place) : nullptr;
  }
  [[nodiscard]] QAccessibleInterface* Of(Place place) const {
    Keys keys = canvas().KeysOf(place);
    if (keys.first.empty()) return nullptr;
    Forget();
    const auto at = ids_.find(keys);
    if (at != ids_.end()) return QAccessible::accessibleInterface(at->second);
    auto* made = new PlaceAccessible(&canvas(), keys);
    ids_.emplace(std::move(keys), QAccessible::registerAccessibleInterface(made));
    return made;
  }

 private:
  [[nodiscard]] PipelineCanvas& canvas() const {
    return *static_cast<PipelineCanvas*>(
        const_cast<QWidget*>(static_cast<const QWidget*>(widget())));
  }
  /// Forgets entries that are gone. Only when many have gathered, because the search is slow.
  void Forget() const {
    const auto there = canvas().graph().stages.size() + canvas().graph().cards.size();
    if (ids_.size() <= 2 * there + 64) return;
    std::erase_if(ids_, [this](const auto& one) {
      const bool gone = canvas().PlaceOf(one.first.first, one.first.second).stage < 0;
      if (gone) QAccessible::deleteAccessibleInterface(one.second);
      return gone;
    });
  }
  mutable std::map<Keys, QAccessible::Id> ids_;
};

CanvasAccessible* PlaceAccessible::Canvas() const {
  return canvas_ ? dynamic_cast<CanvasAccessible*>(QAccessible::queryAccessibleInterface(canvas_))
                 : nullptr;
}

QAccessibleInterface* PlaceAccessible::parent() const {
  CanvasAccessible* canvas = Canvas();
  if (canvas == nullptr || keys_.second.empty()) return canvas;
  return canvas->Of({Where().stage, -1});
}

QAccessibleInterface* PlaceAccessible::child(int index) const {
  CanvasAccessible* canvas = Canvas();
  if (canvas == nullptr || index < 0 || index >= childCount()) return nullptr;
  const int stage = Where().stage;
  const int first = canvas_->graph().stages[static_cast<std::size_t>(stage)].first_card;
  return canvas->Of({stage, first + index});
}

QAccessibleInterface* PlaceAccessible::childAt(int x, int y) const {
  CanvasAccessible* canvas = Canvas();
  if (canvas == nullptr) return nullptr;
  const Place place = canvas_->PlaceAt(canvas_->viewport()->mapFromGlobal(QPoint(x, y)));
  return place.card < 0 || place.stage != Where().stage ? nullptr : canvas->Of(place);
}

int PlaceAccessible::indexOfChild(const QAccessibleInterface* child) const {
  const auto* place = dynamic_cast<const PlaceAccessible*>(child);
  if (place == nullptr || !isValid()) return -1;
  const Place where = place->Where();
  if (where.stage != Where().stage || where.card < 0) return -1;
  return where.card - canvas_->graph().stages[static_cast<std::size_t>(where.stage)].first_card;
}

QAccessibleInterface* Make(const QString& class_name, QObject* object) {
  if (class_name != QLatin1String("onepiece::gui::PipelineCanvas")) return nullptr;
  return new CanvasAccessible(static_cast<PipelineCanvas*>(object));
}

}  // namespace

void InstallPipelineAccessibility() {
  static const bool installed = (QAccessible::installFactory(Make), true);
  Q_UNUSED(installed);
}

void TellCurrent(PipelineCanvas& canvas) {
  if (!QAccessible::isActive() || canvas.current().stage < 0) return;
  auto* made = dynamic_cast<CanvasAccessible*>(QAccessible::queryAccessibleInterface(&canvas));
  if (made == nullptr) return;
  QAccessibleEvent event(made->Of(canvas.current()), QAccessible::Focus);
  QAccessible::updateAccessibility(&event);
}

void TellReordered(PipelineCanvas& canvas) {
  if (!QAccessible::isActive()) return;
  QAccessibleEvent event(&canvas, QAccessible::ObjectReorder);
  QAccessible::updateAccessibility(&event);
}

}  // namespace onepiece::gui
