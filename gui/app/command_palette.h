// The dialog of Ctrl+K: finds a command, a page or an entity by a few letters.
#pragma once

#include <QDialog>
#include <QLabel>
#include <QLineEdit>
#include <QListWidget>
#include <QString>
#include <functional>
#include <vector>

namespace onepiece::gui {

/// One thing that the dialog offers.
struct PaletteEntry {
  QString title;     ///< "Plan a rebalance…", "node/instance-3"
  QString shortcut;  ///< As QKeySequence::PortableText.
  QString cli;       ///< What Ctrl+Shift+C copies. Empty for nothing.
  QString why_not;   ///< Why it cannot be done now. Empty if it can.
  std::function<void()> run;
};

/// The dialog. The caller runs chosen() after exec().
///
/// Threading: GUI thread only.
class CommandPalette : public QDialog {
  Q_OBJECT
 public:
  static constexpr int kMaxShown = 60;

  CommandPalette(std::vector<PaletteEntry> entries, QWidget* parent);
  /// What to run once the dialog has closed. Null if nothing was chosen.
  [[nodiscard]] const std::function<void()>& chosen() const { return chosen_; }

 protected:
  bool eventFilter(QObject* watched, QEvent* event) override;

 private:
  void Filter(const QString& typed);
  void Choose();
  void CopyCli();
  [[nodiscard]] const PaletteEntry* Current() const;

  std::vector<PaletteEntry> entries_;
  QLineEdit* input_;
  QListWidget* list_;
  QLabel* detail_;
  std::function<void()> chosen_;
};

}  // namespace onepiece::gui
