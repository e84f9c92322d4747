// The console's whole window for tests, with settings and recordings in a folder of its own.
#pragma once

#include <QString>
#include <QTemporaryDir>
#include <memory>
#include <vector>

#include "gui/app/main_window.h"

namespace onepiece::testing {

struct WindowOptions {
  gui::Theme theme = gui::Theme::kLight;
  int font_percent = 100;
  QSize size{1280, 800};
  QString folder;  ///< The folder of settings and recordings. Empty for a new one.
};

/// The window.
///
/// Threading: GUI thread only.
class TestWindow {
 public:
  /// Makes a visible window. Sets the application's style, font and palette.
  explicit TestWindow(const WindowOptions& options = {});
  gui::MainWindow* operator->() { return window_.get(); }
  gui::MainWindow& operator*() { return *window_; }
  /// All pages, in the order of the tabs.
  [[nodiscard]] std::vector<gui::View*> pages();
  [[nodiscard]] const QString& folder() const { return folder_; }
  /// Handles events until nothing is left to be drawn.
  static void Settle();

 private:
  QTemporaryDir own_;
  QString folder_;
  std::unique_ptr<gui::MainWindow> window_;
};

}  // namespace onepiece::testing
