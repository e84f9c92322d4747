// The page of the alerts: what fires, who has seen it, what is silenced until when.
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
  explicit AlertsView(Store& store, QWidget* parent = nullptr);
  [[nodiscard]] QString Help() const override;
  [[nodiscard]] std::vector<Command> Commands() override;

 protected:
  void Draw(const Snapshot& snapshot) override;

 private:
  /// The badge, and a hint to the window system when something new fires; also while another page
  /// is shown.
  void Count();
  /// Empty: the selected alerts can be acknowledged and silenced.
  [[nodiscard]] QString WhyNot();
  [[nodiscard]] const Alert* Current() const;
  void Enable();
  void Acknowledge();
  void Silence();
  void ShowBeginning();
  using Call = std::function<absl::Status(AlertDesk&, const std::string& id)>;
  void TellDesk(const QString& what, const QStringList& ids, Call call);

  std::unique_ptr<KeyedTable<AlertRow>> table_;
  QPushButton *seen_, *silence_, *began_;
  std::shared_ptr<const Alerts> counted_;
  QSet<QString> fired_;
  bool counted_once_ = false;
};

}  // namespace onepiece::gui
