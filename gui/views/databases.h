// The pages "Databases" and "NodeManager": the databases of results, and the replicas of the
// NodeManager.
#pragma once

#include <memory>

#include "gui/models/database_rows.h"
#include "gui/views/list_page.h"

namespace onepiece::gui {

class DatabasesView : public ListPage {
  Q_OBJECT
 public:
  explicit DatabasesView(ShownCluster& shown_cluster, QWidget* parent = nullptr);
  [[nodiscard]] QString Help() const override;

 protected:
  void Draw(const session::Snapshot& snapshot) override;

 private:
  std::unique_ptr<KeyedTable<DatabaseRow>> table_;
};

class ReplicasView : public ListPage {
  Q_OBJECT
 public:
  explicit ReplicasView(ShownCluster& shown_cluster, QWidget* parent = nullptr);
  [[nodiscard]] QString Help() const override;
  [[nodiscard]] std::vector<Command> Commands() override;

 protected:
  void Draw(const session::Snapshot& snapshot) override;

 private:
  void StepDown();
  void TakeSnapshot();

  std::unique_ptr<KeyedTable<ReplicaRow>> table_;
  ReplicaWatch watch_;
  ReplicaWatch::News news_;
  std::shared_ptr<const session::Replicas> watched_;
};

}  // namespace onepiece::gui
