#include "tests/gui/app/window.h"

#include <QApplication>
#include <utility>

#include "gui/app/theme.h"

namespace onepiece::testing {

TestWindow::TestWindow(const WindowOptions& options)
    : folder_(options.folder.isEmpty() ? own_.path() : options.folder) {
  gui::MainWindowOptions made;
  made.settings = gui::SettingsFile::Load(folder_ + QStringLiteral("/settings.json"));
  made.settings.values.theme = options.theme;
  made.settings.values.font_percent = options.font_percent;
  made.settings.values.tour_done = true;
  made.data_folder = folder_;
  made.contexts_path = folder_.toStdString() + "/contexts.yaml";
  made.base_points = 9;
  QApplication::setStyle(new gui::ConsoleStyle);
  gui::ApplyTheme(made.settings.values, false, made.base_points);
  window_ =
      std::make_unique<gui::MainWindow>(std::move(made), std::make_unique<gui::ShownCluster>());
  window_->resize(options.size);
  window_->show();
  Settle();
}

std::vector<gui::View*> TestWindow::pages() {
  const auto* stack = qobject_cast<QStackedWidget*>(window_->page()->parentWidget());
  std::vector<gui::View*> pages;
  for (int i = 0; i < stack->count(); ++i) {
    pages.push_back(qobject_cast<gui::View*>(stack->widget(i)));
  }
  return pages;
}

void TestWindow::Settle() {
  // Drawing may change the layout, which asks for drawing again. Three rounds are more than any
  // page needs.
  for (int i = 0; i < 3; ++i) {
    QCoreApplication::processEvents();
    QCoreApplication::sendPostedEvents(nullptr, QEvent::DeferredDelete);
  }
}

}  // namespace onepiece::testing
