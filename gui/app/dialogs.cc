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

/// Edits one cluster: its name, its addresses and whether it is a production cluster.
class TargetDialog : public QDialog {
 public:
  TargetDialog(const session::ClusterAddress& target, QWidget* parent)
      : QDialog(parent),
        name_(new QLineEdit(QString::fromStdString(target.name), this)),
        addresses_(new QLineEdit(this)),
        identity_(new QLineEdit(QString::fromStdString(target.identity), this)),
        production_(new QCheckBox(
            QObject::tr("Production: show a red band, and ask for the name before risky changes"),
            this)),
        why_(new QLabel(this)),
        buttons_(new QDialogButtonBox(QDialogButtonBox::Ok | QDialogButtonBox::Cancel, this)) {
    setWindowTitle(QObject::tr("Cluster"));
    QStringList texts;
    for (const std::string& address : target.nodemanagers) texts << QString::fromStdString(address);
    addresses_->setText(texts.join(QStringLiteral(", ")));
    addresses_->setPlaceholderText(QStringLiteral("host:port, host:port"));
    production_->setChecked(target.production);
    why_->setWordWrap(true);
    auto* form = new QFormLayout(this);
    form->addRow(QObject::tr("Name"), name_);
    form->addRow(QObject::tr("NodeManagers"), addresses_);
    identity_->setPlaceholderText(
        QObject::tr("Folder of your certificate; empty for an insecure cluster"));
    form->addRow(QObject::tr("Identity"), identity_);
    form->addRow(production_);
    form->addRow(why_);
    form->addRow(buttons_);
    connect(buttons_, &QDialogButtonBox::accepted, this, &QDialog::accept);
    connect(buttons_, &QDialogButtonBox::rejected, this, &QDialog::reject);
    connect(name_, &QLineEdit::textChanged, this, [this] { Check(); });
    connect(addresses_, &QLineEdit::textChanged, this, [this] { Check(); });
    resize(fontMetrics().averageCharWidth() * 70, 0);
    Check();
  }
  [[nodiscard]] session::ClusterAddress target() const {
    return {name_->text().trimmed().toStdString(), ParseAddresses(addresses_->text(), nullptr),
            production_->isChecked(), identity_->text().trimmed().toStdString()};
  }

 private:
  void Check() {
    QString why;
    const bool well =
        !ParseAddresses(addresses_->text(), &why).empty() && !name_->text().trimmed().isEmpty();
    if (why.isEmpty() && name_->text().trimmed().isEmpty())
      why = QObject::tr("A name, as people call the cluster.");
    why_->setText(why);
    buttons_->button(QDialogButtonBox::Ok)->setEnabled(well);
  }

  QLineEdit *name_, *addresses_, *identity_;
  QCheckBox* production_;
  QLabel* why_;
  QDialogButtonBox* buttons_;
};

}  // namespace

std::vector<std::string> ParseAddresses(const QString& text, QString* why) {
  std::vector<std::string> addresses;
  const auto refuse = [&](const QString& reason) {
    if (why != nullptr) *why = reason;
    return std::vector<std::string>{};
  };
  static const QRegularExpression separators(QStringLiteral("[,\\s]+"));
  for (const QString& part : text.split(separators, Qt::SkipEmptyParts)) {
    const qsizetype colon = part.lastIndexOf(u':');
    bool number = false;
    const int port = part.mid(colon + 1).toInt(&number);
    if (colon <= 0 || !number || port < 1 || port > 65535) {
      return refuse(QObject::tr("“%1” is no host:port.").arg(SafeText(part.toStdString(), 40)));
    }
    addresses.push_back(part.toStdString());
  }
  if (addresses.empty())
    return refuse(QObject::tr("The address of at least one NodeManager, host:port."));
  return addresses;
}

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

ConnectionsDialog::ConnectionsDialog(std::vector<session::ClusterAddress> connections,
                                     LocalCluster& local, QWidget* parent)
    : QDialog(parent),
      connections_(std::move(connections)),
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
  Fill();
  DrawLocal({});
}

void ConnectionsDialog::Fill() {
  list_->clear();
  for (const session::ClusterAddress& target : connections_) {
    QStringList addresses;
    for (const std::string& address : target.nodemanagers) addresses << SafeText(address, 60);
    list_->addItem(QStringLiteral("%1%2   %3")
                       .arg(SafeText(target.name, 60),
                            target.production ? tr(" (production)") : QString(),
                            addresses.join(QStringLiteral(", "))));
  }
  list_->setCurrentRow(connections_.empty() ? -1 : 0);
  const bool any = !connections_.empty();
  for (QPushButton* button : {connect_, edit_, remove_}) button->setEnabled(any);
  if (!any)
    note_->setText(
        tr("No cluster is configured. Add its address, open a recording, or try a local cluster."));
}

void ConnectionsDialog::Edit(int row) {
  const bool fresh = row < 0;
  TargetDialog dialog(
      fresh ? session::ClusterAddress{} : connections_[static_cast<std::size_t>(row)], this);
  if (dialog.exec() != Accepted) return;
  const session::ClusterAddress target = dialog.target();
  const auto same =
      std::find_if(connections_.begin(), connections_.end(),
                   [&](const session::ClusterAddress& other) { return other.name == target.name; });
  if (same != connections_.end() && same - connections_.begin() != row) {
    note_->setText(tr("There is a cluster of that name: choose another."));
    return;
  }
  fresh ? connections_.push_back(target)
        : static_cast<void>(connections_[static_cast<std::size_t>(row)] = target);
  note_->clear();
  Fill();
  list_->setCurrentRow(fresh ? list_->count() - 1 : row);
}

void ConnectionsDialog::Remove() {
  const int row = list_->currentRow();
  if (row < 0) return;
  connections_.erase(connections_.begin() + row);
  Fill();
}

void ConnectionsDialog::Connect() {
  const int row = list_->currentRow();
  if (row < 0) return;
  chosen_ = connections_[static_cast<std::size_t>(row)];
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
