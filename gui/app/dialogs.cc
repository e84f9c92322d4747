#include "gui/app/dialogs.h"

#include <QCheckBox>
#include <QComboBox>
#include <QDialogButtonBox>
#include <QFormLayout>
#include <QHeaderView>
#include <QKeySequenceEdit>
#include <QLineEdit>
#include <QPlainTextEdit>
#include <QSpinBox>
#include <QTabWidget>
#include <QVBoxLayout>
#include <algorithm>
#include <utility>

#include "cluster/base/status.h"
#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

QTableWidget* ShortcutTable(const std::vector<Command>& commands, QWidget* parent) {
  auto* table = new QTableWidget(static_cast<int>(commands.size()), 3, parent);
  table->setAccessibleName(QObject::tr("Shortcuts"));
  table->setHorizontalHeaderLabels(
      {QObject::tr("Command"), QObject::tr("Shortcut"), QObject::tr("Command line")});
  table->horizontalHeader()->setSectionResizeMode(0, QHeaderView::ResizeToContents);
  table->horizontalHeader()->setStretchLastSection(true);
  table->verticalHeader()->hide();
  table->setCornerButtonEnabled(false);
  table->setTabKeyNavigation(false);
  table->setEditTriggers(QAbstractItemView::NoEditTriggers);
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const auto row = static_cast<int>(i);
    table->setItem(row, 0, new QTableWidgetItem(commands[i].title));
    table->setItem(
        row, 1,
        new QTableWidgetItem(QKeySequence(commands[i].shortcut, QKeySequence::PortableText)
                                 .toString(QKeySequence::NativeText)));
    table->setItem(row, 2, new QTableWidgetItem(commands[i].cli));
  }
  table->setColumnWidth(1, table->fontMetrics().averageCharWidth() * 22);
  return table;
}

}  // namespace

SettingsDialog::SettingsDialog(const Settings& settings, const CommandList& commands,
                               QWidget* parent)
    : QDialog(parent),
      settings_(settings),
      commands_(commands.Commands()),
      conflicts_(new QLabel(this)) {
  setObjectName(QStringLiteral("settings"));
  setWindowTitle(tr("Settings"));
  for (const Command& command : commands_) {
    defaults_.insert(command.id, commands.DefaultShortcut(command.id));
  }
  auto* tabs = new QTabWidget(this);
  tabs->setAccessibleName(tr("Settings"));
  tabs->addTab(MakeLook(), tr("Appearance"));
  tabs->addTab(MakeShortcuts(), tr("Shortcuts"));
  conflicts_->setWordWrap(true);
  auto* buttons = new QDialogButtonBox(QDialogButtonBox::Ok | QDialogButtonBox::Cancel, this);
  ok_ = buttons->button(QDialogButtonBox::Ok);
  auto* layout = new QVBoxLayout(this);
  layout->addWidget(tabs, 1);
  layout->addWidget(conflicts_);
  layout->addWidget(buttons);
  connect(buttons, &QDialogButtonBox::accepted, this, &QDialog::accept);
  connect(buttons, &QDialogButtonBox::rejected, this, &QDialog::reject);
  resize(fontMetrics().averageCharWidth() * 100, fontMetrics().height() * 30);
  Check();
}

QWidget* SettingsDialog::MakeLook() {
  auto* page = new QWidget(this);
  auto* form = new QFormLayout(page);
  auto* theme = new QComboBox(page);
  theme->addItems({tr("As the desktop"), tr("Light"), tr("Dark"), tr("High contrast")});
  theme->setCurrentIndex(static_cast<int>(settings_.theme));
  connect(theme, &QComboBox::currentIndexChanged, this,
          [this](int index) { settings_.theme = static_cast<Theme>(index); });
  auto* size = new QSpinBox(page);
  size->setRange(100, 200);
  size->setSingleStep(10);
  size->setSuffix(QStringLiteral(" %"));
  size->setValue(settings_.font_percent);
  connect(size, &QSpinBox::valueChanged, this,
          [this](int value) { settings_.font_percent = value; });
  auto* still = new QCheckBox(tr("Reduce motion"), page);
  still->setChecked(settings_.reduced_motion);
  connect(still, &QCheckBox::toggled, this, [this](bool on) { settings_.reduced_motion = on; });
  form->addRow(tr("&Theme"), theme);
  form->addRow(tr("&Size of type"), size);
  form->addRow(still);
  return page;
}

QWidget* SettingsDialog::MakeShortcuts() {
  table_ = ShortcutTable(commands_, this);
  for (std::size_t i = 0; i < commands_.size(); ++i) {
    auto* edit = new QKeySequenceEdit(
        QKeySequence(commands_[i].shortcut, QKeySequence::PortableText), table_);
    edit->setAccessibleName(tr("Shortcut of %1").arg(commands_[i].title));
    if (auto* line = edit->findChild<QLineEdit*>()) line->setAccessibleName(edit->accessibleName());
    table_->setCellWidget(static_cast<int>(i), 1, edit);
    connect(edit, &QKeySequenceEdit::keySequenceChanged, this, [this, i](const QKeySequence& keys) {
      commands_[i].shortcut = keys.toString(QKeySequence::PortableText);
      Check();
    });
  }
  return table_;
}

void SettingsDialog::Check() {
  const QStringList conflicts = ShortcutConflicts(commands_);
  conflicts_->setText(conflicts.join(u'\n'));
  conflicts_->setVisible(!conflicts.isEmpty());
  ok_->setEnabled(conflicts.isEmpty());
  settings_.shortcuts.clear();
  for (const Command& command : commands_) {
    if (command.shortcut != defaults_.value(command.id))
      settings_.shortcuts.insert(command.id, command.shortcut);
  }
}

ConnectionsDialog::ConnectionsDialog(std::vector<Connection> connections, std::string contexts_path,
                                     LocalCluster& local, QWidget* parent)
    : QDialog(parent),
      connections_(std::move(connections)),
      contexts_path_(std::move(contexts_path)),
      local_(local),
      list_(new QListWidget(this)),
      note_(new QLabel(this)),
      connect_(new QPushButton(tr("&Connect"), this)),
      edit_(new QPushButton(tr("&Edit…"), this)),
      remove_(new QPushButton(tr("&Remove"), this)),
      try_(new QPushButton(this)) {
  setObjectName(QStringLiteral("connections"));
  setWindowTitle(tr("Connections"));
  list_->setAccessibleName(tr("Clusters"));
  list_->setSpacing(2);
  note_->setWordWrap(true);
  note_->setTextFormat(Qt::PlainText);
  auto* add = new QPushButton(tr("&Add…"), this);
  auto* open = new QPushButton(tr("Open &recording…"), this);
  auto* close = new QPushButton(tr("Close"), this);
  connect_->setDefault(true);
  auto* sides = new QHBoxLayout;
  auto* column = new QVBoxLayout;
  for (QPushButton* button : {connect_, add, edit_, remove_}) column->addWidget(button);
  column->addStretch();
  for (QPushButton* button : {open, try_, close}) column->addWidget(button);
  sides->addWidget(list_, 1);
  sides->addLayout(column);
  auto* layout = new QVBoxLayout(this);
  layout->addLayout(sides, 1);
  layout->addWidget(note_);
  connect(add, &QPushButton::clicked, this, [this] { Edit(-1); });
  connect(list_, &QListWidget::currentRowChanged, this, &ConnectionsDialog::DrawButtons);
  connect(edit_, &QPushButton::clicked, this, [this] { Edit(list_->currentRow()); });
  connect(remove_, &QPushButton::clicked, this, &ConnectionsDialog::Remove);
  connect(connect_, &QPushButton::clicked, this, &ConnectionsDialog::Connect);
  connect(list_, &QListWidget::itemActivated, this, &ConnectionsDialog::Connect);
  connect(open, &QPushButton::clicked, this, [this] {
    reject();
    Q_EMIT OpenRecording();
  });
  connect(close, &QPushButton::clicked, this, &QDialog::reject);
  connect(try_, &QPushButton::clicked, this, [this] {
    local_.state() == LocalCluster::State::kRunning ? local_.Stop() : local_.Start();
  });
  connect(&local_, &LocalCluster::StateChanged, this, [this] { DrawLocal({}); });
  connect(&local_, &LocalCluster::Progressed, this, &ConnectionsDialog::DrawLocal);
  connect(&local_, &LocalCluster::Failed, this, [this](const QString& why) {
    DrawLocal({});
    const bool runs = local_.state() == LocalCluster::State::kRunning;
    note_->setText(
        (runs ? tr("The local cluster did not end: %1") : tr("The local cluster did not start: %1"))
            .arg(why));
  });
  connect(&local_, &LocalCluster::Ready, this, &QDialog::reject);
  resize(fontMetrics().averageCharWidth() * 100, fontMetrics().height() * 18);
  ReadContexts();
  Fill();
  DrawLocal({});
}

void ConnectionsDialog::ReadContexts() {
  auto contexts = ContextConnections(contexts_path_);
  if (contexts.ok()) {
    contexts_ = *std::move(contexts);
  } else {
    trouble_ = tr("The contexts of `onepiece context` cannot be read: %1")
                   .arg(SafeText(base::Message(contexts.status()), 500));
  }
}

std::vector<Connection> ConnectionsDialog::All() const {
  std::vector<Connection> all = connections_;
  for (const Connection& context : contexts_) {
    const bool hidden = std::ranges::any_of(connections_, [&](const Connection& own) {
      return own.cluster.name == context.cluster.name;
    });
    if (!hidden) all.push_back(context);
  }
  return all;
}

void ConnectionsDialog::Fill() {
  list_->clear();
  for (const Connection& connection : All()) {
    const session::ClusterAddress& target = connection.cluster;
    QStringList addresses;
    for (const std::string& address : target.nodemanagers) addresses << SafeText(address, 60);
    const QString kind = connection.from_context ? tr(" (context)")
                         : target.production     ? tr(" (production)")
                                                 : QString();
    list_->addItem(QStringLiteral("%1%2   %3   %4")
                       .arg(SafeText(target.name, 60), kind, addresses.join(QStringLiteral(", ")),
                            LoginName(connection.credentials)));
  }
  list_->setCurrentRow(list_->count() > 0 ? 0 : -1);
  DrawButtons();
  if (!trouble_.isEmpty()) {
    note_->setText(trouble_);
  } else if (list_->count() == 0) {
    note_->setText(
        tr("No cluster is configured. Add its address, open a recording, or try a local cluster."));
  }
}

void ConnectionsDialog::DrawButtons() {
  const int row = list_->currentRow();
  const bool ours = row >= 0 && row < static_cast<int>(connections_.size());
  connect_->setEnabled(row >= 0);
  for (QPushButton* button : {edit_, remove_}) {
    button->setEnabled(ours);
    button->setToolTip(ours || row < 0
                           ? QString()
                           : tr("A context of the command line: `onepiece context` changes it"));
  }
}

void ConnectionsDialog::Edit(int row) {
  const bool fresh = row < 0;
  const auto at = static_cast<std::size_t>(row);
  std::vector<std::string> taken;
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    if (fresh || i != at) taken.push_back(connections_[i].cluster.name);
  }
  ConnectionDialog dialog(fresh ? Connection{} : connections_[at], std::move(taken), contexts_path_,
                          this);
  if (dialog.exec() != Accepted) return;
  if (fresh) {
    connections_.push_back(dialog.connection());
  } else {
    connections_[at] = dialog.connection();
  }
  note_->clear();
  Fill();
  list_->setCurrentRow(fresh ? static_cast<int>(connections_.size()) - 1 : row);
}

void ConnectionsDialog::Remove() {
  const int row = list_->currentRow();
  if (row < 0 || row >= static_cast<int>(connections_.size())) return;
  ForgetToken(contexts_path_, connections_[static_cast<std::size_t>(row)]);
  connections_.erase(connections_.begin() + row);
  Fill();
}

void ConnectionsDialog::Connect() {
  const int row = list_->currentRow();
  if (row < 0) return;
  chosen_ = All()[static_cast<std::size_t>(row)];
  accept();
}

void ConnectionsDialog::DrawLocal(const QString& line) {
  switch (local_.state()) {
    case LocalCluster::State::kStopped:
      try_->setText(tr("&Try a local cluster"));
      break;
    case LocalCluster::State::kStarting:
      try_->setText(tr("Starting…"));
      note_->setText(tr("The local cluster starts. %1").arg(line));
      break;
    case LocalCluster::State::kRunning:
      try_->setText(tr("S&top the local cluster"));
      break;
    case LocalCluster::State::kStopping:
      try_->setText(tr("Stopping…"));
      note_->setText(tr("The local cluster ends. %1").arg(line));
      break;
  }
  try_->setEnabled(local_.state() == LocalCluster::State::kStopped ||
                   local_.state() == LocalCluster::State::kRunning);
}

HelpDialog::HelpDialog(const QString& title, const QString& text, const CommandList& commands,
                       QWidget* parent)
    : QDialog(parent) {
  setObjectName(QStringLiteral("help"));
  setWindowTitle(tr("Help: %1").arg(title));
  auto* words = new QPlainTextEdit(text, this);
  words->setReadOnly(true);
  words->setAccessibleName(tr("Help: %1").arg(title));
  words->setTabChangesFocus(true);
  std::vector<Command> with_keys = commands.Commands();
  std::erase_if(with_keys, [](const Command& command) { return command.shortcut.isEmpty(); });
  auto* keys = ShortcutTable(with_keys, this);
  auto* buttons = new QDialogButtonBox(QDialogButtonBox::Close, this);
  connect(buttons, &QDialogButtonBox::rejected, this, &QDialog::reject);
  auto* layout = new QVBoxLayout(this);
  layout->addWidget(words, 1);
  layout->addWidget(keys, 1);
  layout->addWidget(buttons);
  resize(fontMetrics().averageCharWidth() * 90, fontMetrics().height() * 32);
}

}  // namespace onepiece::gui
