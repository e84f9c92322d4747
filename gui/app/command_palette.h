// Ctrl+K: find a command, a page or a thing by a few letters.
#pragma once

#include <QDialog>
#include <QLabel>
#include <QLineEdit>
#include <QListWidget>
#include <QString>
#include <functional>
#include <vector>

namespace onepiece::gui {

struct PaletteEntry {
  QString title;     ///< "Plan a rebalance…", "node/instance-3"
  QString shortcut;  ///< Portable text.
  QString cli;       ///< What Ctrl+Shift+C copies; empty: nothing.
  QString why_not;   ///< Not empty: it cannot be done now.
  std::function<void()> run;
};

/// Threading  GUI thread only.
class CommandPalette : public QDialog {
  Q_OBJECT
 public:
  static constexpr int kMaxShown = 60;

  CommandPalette(std::vector<PaletteEntry> entries, QWidget* parent);
  /// What is run once the dialog has closed; null: nothing was chosen.
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
