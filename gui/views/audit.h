// The page of the audit log.
#pragma once

#include <memory>

#include "gui/models/audit_rows.h"
#include "gui/views/list_page.h"

namespace onepiece::gui {

class AuditView : public ListPage {
  Q_OBJECT
 public:
  explicit AuditView(ShownCluster& shown_cluster, QWidget* parent = nullptr);
  [[nodiscard]] QString Help() const override;
  void Focus(const QString& entity) override;

 protected:
  void Draw(const session::Snapshot& snapshot) override;

 private:
  std::unique_ptr<KeyedTable<AuditRow>> table_;
  std::shared_ptr<const session::Audit> drawn_;
};

}  // namespace onepiece::gui
