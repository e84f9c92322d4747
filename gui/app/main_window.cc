#include "gui/app/main_window.h"

#include <QApplication>
#include <QCloseEvent>
#include <QComboBox>
#include <QDir>
#include <QDockWidget>
#include <QGuiApplication>
#include <QKeyEvent>
#include <QLabel>
#include <QMessageBox>
#include <QPushButton>
#include <QShowEvent>
#include <QStatusBar>
#include <QThreadPool>
#include <QToolButton>
#include <QVBoxLayout>
#include <utility>

#include "cluster/base/status.h"
#include "cluster/local/control.h"
#include "cluster/local/resources.h"
#include "gui/app/operations_panel.h"
#include "gui/app/recording_service.h"
#include "gui/app/theme.h"
#include "gui/models/format.h"
#include "gui/models/permissions.h"
#include "gui/views/pages.h"

namespace onepiece::gui {
namespace {

/// Version of saveState(). It grows when docks are renamed.
constexpr int kLayoutVersion = 2;
/// How long a page's message stays in the status line.
constexpr int kTellMs = 10'000;

std::string LocalName() { return MainWindow::tr("Local cluster").toStdString(); }

QString KindOfPage(const QString& entity) {
  const QString kind = entity.section(u'/', 0, 0);
  if (kind == u"ring") return QStringLiteral("rings");
  if (kind == u"job") return QStringLiteral("jobs");
  if (kind == u"pool" || kind == u"plan") return QStringLiteral("rebalance");
  if (kind == u"device") return QStringLiteral("gpus");
  if (kind == u"database") return QStringLiteral("databases");
  if (kind == u"replica") return QStringLiteral("replicas");
  if (kind == u"alert") return QStringLiteral("alerts");
  return QStringLiteral("pipelines");
}

}  // namespace

void MainWindowOptions::ApplyLook() const {
  Settings shown = settings.values;
  shown.theme = theme.value_or(shown.theme);
  ApplyTheme(shown, system_is_dark, base_points);
}

MainWindow::MainWindow(MainWindowOptions options, std::unique_ptr<ShownCluster> shown_cluster)
    : options_(std::move(options)),
      shown_cluster_(std::move(shown_cluster)),
      local_(
          std::make_unique<LocalCluster>(options_.data_folder + QStringLiteral("/local-cluster"))),
      commands_(new CommandList(*shown_cluster_, this)),
      band_(new TopBand(*shown_cluster_, this)),
      tabs_(new QTabBar(this)),
      body_(new QStackedWidget(this)),
      pages_(new QStackedWidget(this)),
      scrubber_(new Scrubber(*shown_cluster_, this)) {
  setObjectName(QStringLiteral("console"));
  setWindowTitle(tr("OnePiece Console"));
  MakeBody();
  MakeDocks();
  AddCommands();
  AddPageCommands();
  commands_->SetShow([this](View* view) { ShowPage(view->id()); });
  const QStringList refused = commands_->SetShortcuts(options_.settings.values.shortcuts);
  commands_->Refresh();
  MakeMenus();
  Restore();
  UpdateWelcome();
  connect(shown_cluster_.get(), &ShownCluster::LinkChanged, this, &MainWindow::ShowLastRecorded);
  connect(shown_cluster_.get(), &ShownCluster::ModeChanged, this, &MainWindow::UpdateWelcome);
  connect(shown_cluster_.get(), &ShownCluster::Changed, this, &MainWindow::UpdateWelcome);
  connect(&adopt_, &QTimer::timeout, this, &MainWindow::AdoptRecording);
  connect(local_.get(), &LocalCluster::Ready, this, [this] {
    const auto state = local::FindCluster(local_->data_dir().toStdString());
    if (!state.ok()) return;
    Connect({LocalName(), state->nodemanagers, false}, IdentityIn(state->identity));
  });
  connect(local_.get(), &LocalCluster::StateChanged, this, [this] {
    // The operator ends the cluster, so the session must not try to reconnect.
    if (local_->state() != LocalCluster::State::kStopping || shown_cluster_->session() == nullptr)
      return;
    if (shown_cluster_->session()->target().name == LocalName()) Disconnect();
  });
  qApp->installEventFilter(this);
  if (!refused.isEmpty()) Say(tr("Shortcuts"), refused.join(u'\n'));
}

MainWindow::~MainWindow() { Disconnect(); }

void MainWindow::MakeBody() {
  tabs_->setObjectName(QStringLiteral("pages"));
  tabs_->setAccessibleName(tr("Pages"));
  tabs_->setExpanding(false);
  tabs_->setDocumentMode(true);
  tabs_->setDrawBase(false);
  for (auto& page : MakePages(*shown_cluster_)) {
    View* view = page.release();
    pages_->addWidget(view);
    tabs_->addTab(view->title());
    views_.push_back(view);
    connect(view, &View::Wanted, this, &MainWindow::Open);
    connect(view, &View::Told, this,
            [this](const QString& text) { statusBar()->showMessage(text, kTellMs); });
    connect(view, &View::ClearFilterWanted, band_->filter(), &QLineEdit::clear);
    connect(view, &View::Badge, this, [this, view, tab = tabs_->count() - 1](const QString& text) {
      tabs_->setTabText(
          tab, text.isEmpty() ? view->title() : QStringLiteral("%1 (%2)").arg(view->title(), text));
    });
  }
  int arrow = 0;
  for (auto* button : tabs_->findChildren<QToolButton*>()) {
    button->setAccessibleName(arrow++ == 0 ? tr("Earlier pages") : tr("Later pages"));
  }
  connect(tabs_, &QTabBar::currentChanged, this, [this](int index) {
    pages_->setCurrentIndex(index);
    page()->SetFilter(band_->filter()->text());
  });
  connect(band_, &TopBand::FilterChanged, this,
          [this](const QString& text) { page()->SetFilter(text); });
  connect(band_, &TopBand::ModeWanted, this,
          [this] { commands_->Run(QStringLiteral("control.toggle")); });
  connect(band_, &TopBand::PaletteWanted, this, &MainWindow::RunPalette);
  connect(band_, &TopBand::SwitchWanted, this, &MainWindow::RunConnections);
  connect(band_, &TopBand::IdentityWanted, this, [this] {
    const v1::WhoAmIResponse* me = shown_cluster_->me();
    if (me == nullptr) return;
    Say(tr("Identity"), IdentityText(*me, QDateTime::currentMSecsSinceEpoch()));
  });
  connect(band_, &TopBand::RetryWanted, this, [this] {
    if (shown_cluster_->session() != nullptr) shown_cluster_->session()->RetryNow();
  });
  welcome_ = MakeWelcome();
  tour_ = MakeTour();
  auto* work = new QWidget(this);
  auto* layout = new QVBoxLayout(work);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->setSpacing(0);
  layout->addWidget(tour_);
  layout->addWidget(pages_, 1);
  layout->addWidget(scrubber_);
  body_->addWidget(welcome_);
  body_->addWidget(work);
  setCentralWidget(body_);
}

QWidget* MainWindow::MakeWelcome() {
  auto* page = new QWidget(this);
  page->setObjectName(QStringLiteral("welcome"));
  auto* text =
      new QLabel(options_.settings.values.connections.empty()
                     ? tr("No cluster configured. Add its address, open a recording, or try a "
                          "cluster on this machine.")
                     : tr("Not connected. Choose a cluster, open a recording, or try a "
                          "cluster on this machine."),
                 page);
  text->setWordWrap(true);
  text->setAlignment(Qt::AlignCenter);
  auto* note = new QLabel(options_.settings.notice, page);
  note->setWordWrap(true);
  note->setAlignment(Qt::AlignCenter);
  note->setTextFormat(Qt::PlainText);
  auto* connect_button = new QPushButton(tr("&Connections…"), page);
  auto* open = new QPushButton(tr("&Open recording…"), page);
  auto* local = new QPushButton(tr("&Try a local cluster"), page);
  connect(connect_button, &QPushButton::clicked, this, &MainWindow::RunConnections);
  connect(open, &QPushButton::clicked, this, &MainWindow::RunOpenRecording);
  connect(local, &QPushButton::clicked, this, &MainWindow::TryLocalCluster);
  connect(local_.get(), &LocalCluster::Progressed, note, &QLabel::setText);
  connect(local_.get(), &LocalCluster::Failed, note, &QLabel::setText);
  connect(local_.get(), &LocalCluster::StateChanged, local,
          [this, local] { local->setEnabled(local_->state() == LocalCluster::State::kStopped); });
  auto* row = new QHBoxLayout;
  row->addStretch();
  for (QPushButton* button : {connect_button, open, local}) row->addWidget(button);
  row->addStretch();
  auto* layout = new QVBoxLayout(page);
  layout->addStretch(2);
  layout->addWidget(text);
  layout->addSpacing(12);
  layout->addLayout(row);
  layout->addWidget(note);
  layout->addStretch(3);
  return page;
}

QWidget* MainWindow::MakeTour() {
  auto* bar = new QFrame(this);
  bar->setObjectName(QStringLiteral("tour"));
  bar->setFrameShape(QFrame::StyledPanel);
  auto* text = new QLabel(bar);
  text->setWordWrap(true);
  auto* next = new QPushButton(tr("Next"), bar);
  auto* end = new QPushButton(tr("Dismiss the tour"), bar);
  const QStringList steps = {
      tr("1 of 4. The band above says which cluster this is, how fresh the numbers are, and that "
         "you "
         "observe: nothing can be changed until you press Ctrl+Shift+U."),
      tr("2 of 4. Ctrl+K finds every command, page, node and job, and says what the command line "
         "would be. Ctrl+1 to Ctrl+9 change pages; / filters the one that is shown."),
      tr("3 of 4. Choose something on the left to inspect it on the right. What cannot be done now "
         "says why."),
      tr("4 of 4. The line below is time: everything is recorded. Drag it to see the past; L goes "
         "live again. F1 explains the page.")};
  show_tour_step_ = [=](int step) {
    text->setText(steps[step]);
    next->setVisible(step + 1 < steps.size());
    bar->setProperty("step", step);
  };
  show_tour_step_(0);
  connect(next, &QPushButton::clicked, bar,
          [this, bar] { show_tour_step_(bar->property("step").toInt() + 1); });
  connect(end, &QPushButton::clicked, bar, [this, bar] {
    bar->hide();
    options_.settings.values.tour_done = true;
    SaveSettings();
  });
  auto* layout = new QHBoxLayout(bar);
  layout->addWidget(text, 1);
  layout->addWidget(next);
  layout->addWidget(end);
  bar->setVisible(!options_.settings.values.tour_done);
  return bar;
}

void MainWindow::MakeDocks() {
  // Qt 6.4 cannot dock a floating window again on Wayland (QTBUG-87332), so docks cannot float.
  const auto features = QDockWidget::DockWidgetMovable | QDockWidget::DockWidgetClosable;
  const auto add = [&](const QString& name, const QString& title, QWidget* content,
                       Qt::DockWidgetArea area) {
    auto* dock = new QDockWidget(title, this);
    dock->setObjectName(name);
    dock->setAccessibleName(title);
    dock->setFeatures(features);
    dock->setWidget(content);
    addDockWidget(area, dock);
    for (auto* button :
         dock->findChildren<QAbstractButton*>(QString(), Qt::FindDirectChildrenOnly)) {
      button->setAccessibleName(button->objectName().contains(u"close")
                                    ? tr("Close %1").arg(title)
                                    : tr("Float %1").arg(title));
    }
    return dock;
  };
  tree_ = new EntityTree(*shown_cluster_, this);
  inspector_ = new Inspector(*shown_cluster_, *commands_, this);
  tree_dock_ = add(QStringLiteral("dock.entities"), tr("Entities"), tree_, Qt::LeftDockWidgetArea);
  inspector_dock_ =
      add(QStringLiteral("dock.inspector"), tr("Inspector"), inspector_, Qt::RightDockWidgetArea);
  operations_ = new OperationsPanel(*shown_cluster_, this);
  operations_dock_ = add(QStringLiteral("dock.operations"), tr("Operations"), operations_,
                         Qt::BottomDockWidgetArea);
  connect(operations_, &OperationsPanel::Opened, this,
          [this](const QString& entity) { Open({}, entity); });
  connect(tree_, &EntityTree::Selected, this, &MainWindow::Inspect);
  connect(tree_, &EntityTree::Opened, this, [this](const QString& entity) { Open({}, entity); });
  connect(inspector_, &Inspector::Opened, this,
          [this](const QString& entity) { Open({}, entity); });
}

void MainWindow::Restore() {
  SetPreset(Preset::kOperate);
  const QSize screen = QGuiApplication::primaryScreen()->availableSize();
  resize(QSize(1280, 800).boundedTo(screen));
  restoreGeometry(options_.settings.values.geometry);
  restoreState(options_.settings.values.layout, kLayoutVersion);
  tabs_->setFocus();  // Keys must be commands from the start. The filter would take them as text.
}

void MainWindow::SetPreset(Preset preset) {
  const bool wall = preset == Preset::kWall;
  addDockWidget(Qt::LeftDockWidgetArea, tree_dock_);
  addDockWidget(Qt::RightDockWidgetArea, inspector_dock_);
  addDockWidget(Qt::BottomDockWidgetArea, operations_dock_);
  tree_dock_->setVisible(preset == Preset::kOperate);
  inspector_dock_->setVisible(!wall);
  operations_dock_->setVisible(preset == Preset::kInvestigate);
  scrubber_->setVisible(!wall);
  wide_inspector_ = preset == Preset::kInvestigate;
  if (sized_) SizeDocks();
}

void MainWindow::SizeDocks() {
  // The docks grow with the window: a large one has room for names that a small one must cut.
  const int unit = fontMetrics().averageCharWidth();
  resizeDocks({tree_dock_, inspector_dock_},
              {std::max(unit * 34, width() / 7),
               std::max(unit * (wide_inspector_ ? 70 : 46), width() / (wide_inspector_ ? 4 : 5))},
              Qt::Horizontal);
  resizeDocks({operations_dock_}, {std::max(fontMetrics().height() * 9, height() / 6)},
              Qt::Vertical);
}

void MainWindow::showEvent(QShowEvent* event) {
  QMainWindow::showEvent(event);
  if (std::exchange(sized_, true) || !options_.settings.values.layout.isEmpty()) return;
  layout()->activate();
  SizeDocks();
}

bool MainWindow::ShowPage(const QString& id) {
  for (std::size_t i = 0; i < views_.size(); ++i) {
    if (views_[i]->id() != id) continue;
    tabs_->setCurrentIndex(static_cast<int>(i));
    return true;
  }
  return false;
}

View* MainWindow::page() const {
  return views_[static_cast<std::size_t>(std::max(tabs_->currentIndex(), 0))];
}

void MainWindow::Inspect(const QString& entity) { inspector_->Inspect(entity); }

void MainWindow::Open(const QString& view_id, const QString& entity) {
  if (!entity.isEmpty()) Inspect(entity);
  if (!ShowPage(view_id.isEmpty() ? KindOfPage(entity) : view_id)) return;
  if (!entity.isEmpty()) page()->Focus(entity);
}

void MainWindow::TryLocalCluster() {
  QDir().mkpath(options_.data_folder);
  local_->Start();
}

void MainWindow::UpdateWelcome() {
  const bool nothing = shown_cluster_->session() == nullptr &&
                       shown_cluster_->recording() == nullptr &&
                       shown_cluster_->snapshot()->at_ms == 0;
  const int wanted = nothing ? 0 : 1;
  if (body_->currentIndex() != wanted) body_->setCurrentIndex(wanted);
}

void MainWindow::SaveSettings() {
  const absl::Status saved = options_.settings.Save();
  if (!saved.ok()) qWarning("%s", saved.ToString().c_str());
}

void MainWindow::Say(const QString& title, const QString& text) {
  auto* box = new QMessageBox(QMessageBox::Information, title, text, QMessageBox::Ok, this);
  box->setTextFormat(Qt::PlainText);
  box->setAttribute(Qt::WA_DeleteOnClose);
  box->open();
}

void MainWindow::closeEvent(QCloseEvent* event) {
  options_.settings.values.geometry = saveGeometry();
  options_.settings.values.layout = saveState(kLayoutVersion);
  SaveSettings();
  event->accept();
}

bool MainWindow::eventFilter(QObject* watched, QEvent* event) {
  if (event->type() != QEvent::ShortcutOverride) return QMainWindow::eventFilter(watched, event);
  const auto* key = static_cast<QKeyEvent*>(event);
  const bool presses = qobject_cast<QAbstractButton*>(watched) != nullptr ||
                       qobject_cast<QComboBox*>(watched) != nullptr ||
                       qobject_cast<QAbstractItemView*>(watched) != nullptr;
  // Space presses the focused button. Without this it would be the shortcut for "pause".
  if (presses && key->key() == Qt::Key_Space && key->modifiers() == Qt::NoModifier) {
    event->accept();
    return true;
  }
  return QMainWindow::eventFilter(watched, event);
}

}  // namespace onepiece::gui
