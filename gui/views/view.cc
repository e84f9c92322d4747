#include "gui/views/view.h"

#include <utility>

namespace onepiece::gui {

View::View(QString id, QString title, ShownCluster& shown_cluster, QWidget* parent)
    : QWidget(parent), id_(std::move(id)), title_(std::move(title)), shown_cluster_(shown_cluster) {
  setObjectName(id_);
  setAccessibleName(title_);
  const auto draw = [this] {
    if (isVisible()) Draw(*shown_cluster_.snapshot());
  };
  connect(&shown_cluster_, &ShownCluster::Changed, this, draw);
  // What may be changed and what is stale depends on the link and the mode.
  connect(&shown_cluster_, &ShownCluster::LinkChanged, this, draw);
  connect(&shown_cluster_, &ShownCluster::ModeChanged, this, draw);
}

void View::Focus(const QString& /*entity*/) {}

void View::SetFilter(const QString& /*text*/) {}

void View::showEvent(QShowEvent* event) {
  QWidget::showEvent(event);
  Draw(*shown_cluster_.snapshot());
}

}  // namespace onepiece::gui
