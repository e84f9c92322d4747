// The tree of all entities of a cluster, and the inspector of the selected one.
//
// Threading: GUI thread only.
#pragma once

#include <QHash>
#include <QLabel>
#include <QTableView>
#include <QTreeWidget>
#include <QVBoxLayout>
#include <QWidget>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gui/models/keyed_table.h"
#include "gui/models/shown_cluster.h"

namespace onepiece::gui {

class CommandList;

/// What is known of an entity ("node/instance-3", "database/…", "ring/…", "pool/SET/POOL",
/// "job/UID"): names and values in reading order. Empty if it is not in the snapshot.
std::vector<std::pair<QString, QString>> PropertiesOf(const QString& entity,
                                                      const session::Snapshot& snapshot);

/// Shows the workflow sets with their stages and instances, then the services. Rows stay where they
/// are when others come and go.
class EntityTree : public QTreeWidget {
  Q_OBJECT
 public:
  explicit EntityTree(ShownCluster& shown_cluster, QWidget* parent = nullptr);
  /// All shown entities, for the palette. Groups begin with "group/".
  [[nodiscard]] QStringList Entities() const { return items_.keys(); }
  [[nodiscard]] QSize sizeHint() const override;

 Q_SIGNALS:
  void Selected(const QString& entity);
  void Opened(const QString& entity);

 private:
  void Draw();
  QTreeWidgetItem* Item(QTreeWidgetItem* parent, const QString& entity, const QString& text);

  ShownCluster& shown_cluster_;
  QHash<QString, QTreeWidgetItem*> items_;  ///< By entity. Groups are "group/…".
  QHash<QString, bool> seen_;
  std::shared_ptr<const v1::Cluster> drawn_;
};

/// Shows the properties of one entity, and buttons for the commands that its kind has.
class Inspector : public QWidget {
  Q_OBJECT
 public:
  Inspector(ShownCluster& shown_cluster, CommandList& commands, QWidget* parent = nullptr);
  void Inspect(const QString& entity);
  [[nodiscard]] const QString& entity() const { return entity_; }
  [[nodiscard]] QSize sizeHint() const override;

 Q_SIGNALS:
  void Opened(const QString& entity);

 private:
  void Draw();
  void MakeButtons();

  using Property = std::pair<QString, QString>;
  ShownCluster& shown_cluster_;
  CommandList& commands_;
  QString entity_;
  QLabel *title_, *note_;
  std::unique_ptr<KeyedTable<Property>> table_;
  QTableView* view_;
  QVBoxLayout* buttons_;
};

}  // namespace onepiece::gui
