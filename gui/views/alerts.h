// The page "Alerts": what fires, who has seen it, and what is silenced until when.
#pragma once

#include <QPushButton>
#include <QSet>
#include <memory>

#include "gui/models/alert_rows.h"
#include "gui/views/list_page.h"

namespace onepiece::gui {

class AlertsView : public ListPage {
  Q_OBJECT
 public:
  explicit AlertsView(ShownCluster& shown_cluster, QWidget* parent = nullptr);
  [[nodiscard]] QString Help() const override;
  [[nodiscard]] std::vector<Command> Commands() override;

 protected:
  void Draw(const session::Snapshot& snapshot) override;

 private:
  /// Updates the tab's badge, and asks the window system for attention when something new fires.
  /// This also happens while another page is shown.
  void Count();
  /// Why the selected alerts cannot be acknowledged or silenced. Empty if they can.
  [[nodiscard]] QString WhyNot();
  [[nodiscard]] const session::Alert* Current() const;
  void Enable();
  void Acknowledge();
  void Silence();
  void ShowBeginning();
  using Call = std::function<absl::Status(AlertDesk&, const std::string& id)>;
  void TellDesk(const QString& what, const QStringList& ids, Call call);

  std::unique_ptr<KeyedTable<AlertRow>> table_;
  QPushButton *seen_, *silence_, *began_;
  std::shared_ptr<const session::Alerts> counted_;
  QSet<QString> fired_;
  bool counted_once_ = false;
};

}  // namespace onepiece::gui
