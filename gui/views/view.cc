#include "gui/views/view.h"

#include <utility>

namespace onepiece::gui {

View::View(QString id, QString title, Store& store, QWidget* parent)
    : QWidget(parent), id_(std::move(id)), title_(std::move(title)), store_(store) {
  setObjectName(id_);
  setAccessibleName(title_);
  const auto draw = [this] {
    if (isVisible()) Draw(*store_.snapshot());
  };
  connect(&store_, &Store::Changed, this, draw);
  // What may be changed and what is stale depends on the link and the mode.
  connect(&store_, &Store::LinkChanged, this, draw);
  connect(&store_, &Store::ModeChanged, this, draw);
}

void View::Focus(const QString& /*entity*/) {}

void View::SetFilter(const QString& /*text*/) {}

void View::showEvent(QShowEvent* event) {
  QWidget::showEvent(event);
  Draw(*store_.snapshot());
}

}  // namespace onepiece::gui
