#include "gui/app/command_palette.h"

#include <QApplication>
#include <QClipboard>
#include <QKeyEvent>
#include <QKeySequence>
#include <QVBoxLayout>
#include <algorithm>
#include <utility>

#include "gui/app/commands.h"

namespace onepiece::gui {

CommandPalette::CommandPalette(std::vector<PaletteEntry> entries, QWidget* parent)
    : QDialog(parent),
      entries_(std::move(entries)),
      input_(new QLineEdit(this)),
      list_(new QListWidget(this)),
      detail_(new QLabel(this)) {
  setObjectName(QStringLiteral("palette"));
  setWindowTitle(tr("Commands"));
  input_->setPlaceholderText(tr("A command, a page, a node, a job…"));
  input_->setAccessibleName(tr("Find a command"));
  input_->setClearButtonEnabled(false);
  input_->installEventFilter(this);
  list_->setAccessibleName(tr("Commands found"));
  list_->setUniformItemSizes(true);
  list_->setSpacing(2);
  list_->setFocusPolicy(Qt::NoFocus);
  detail_->setTextFormat(Qt::PlainText);
  detail_->setWordWrap(true);
  auto* layout = new QVBoxLayout(this);
  layout->addWidget(input_);
  layout->addWidget(list_, 1);
  layout->addWidget(detail_);
  const int line = fontMetrics().height();
  resize(line * 40, line * 26);
  connect(input_, &QLineEdit::textChanged, this, &CommandPalette::Filter);
  connect(list_, &QListWidget::itemActivated, this, &CommandPalette::Choose);
  connect(list_, &QListWidget::itemClicked, this, &CommandPalette::Choose);
  connect(list_, &QListWidget::currentRowChanged, this, [this] {
    const PaletteEntry* entry = Current();
    if (entry == nullptr) {
      detail_->setText(tr("Nothing is called so. Esc closes."));
    } else if (!entry->why_not.isEmpty()) {
      detail_->setText(tr("Not now: %1").arg(entry->why_not));
    } else if (!entry->cli.isEmpty()) {
      detail_->setText(tr("%1   (Ctrl+Shift+C copies)").arg(entry->cli));
    } else {
      detail_->setText(tr("Enter runs it, Esc closes."));
    }
  });
  Filter({});
}

bool CommandPalette::eventFilter(QObject* watched, QEvent* event) {
  if (event->type() != QEvent::KeyPress && event->type() != QEvent::ShortcutOverride) {
    return QDialog::eventFilter(watched, event);
  }
  auto* key = static_cast<QKeyEvent*>(event);
  const bool copies =
      key->key() == Qt::Key_C && key->modifiers() == (Qt::ControlModifier | Qt::ShiftModifier);
  const bool moves = key->key() == Qt::Key_Up || key->key() == Qt::Key_Down ||
                     key->key() == Qt::Key_PageUp || key->key() == Qt::Key_PageDown;
  const bool chooses = key->key() == Qt::Key_Return || key->key() == Qt::Key_Enter;
  if (!copies && !moves && !chooses) return QDialog::eventFilter(watched, event);
  event->accept();
  // Accepting the override keeps the window's shortcut of the same key from running. The key press
  // itself comes next.
  if (event->type() == QEvent::ShortcutOverride) return true;
  if (copies) CopyCli();
  if (chooses) Choose();
  if (moves) QApplication::sendEvent(list_, event);
  return true;
}

void CommandPalette::Filter(const QString& typed) {
  // The score, and the negated place: equal scores keep their order.
  std::vector<std::pair<int, int>> found;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const int score = FuzzyScore(typed, entries_[i].title);
    if (score >= 0) found.emplace_back(score, -static_cast<int>(i));
  }
  std::sort(found.rbegin(), found.rend());
  list_->clear();
  for (std::size_t i = 0; i < found.size() && i < kMaxShown; ++i) {
    const PaletteEntry& entry = entries_[static_cast<std::size_t>(-found[i].second)];
    const QString keys =
        QKeySequence(entry.shortcut, QKeySequence::PortableText).toString(QKeySequence::NativeText);
    auto* item = new QListWidgetItem(
        keys.isEmpty() ? entry.title : QStringLiteral("%1   [%2]").arg(entry.title, keys), list_);
    item->setData(Qt::UserRole, -found[i].second);
    if (entry.why_not.isEmpty()) continue;
    item->setForeground(palette().color(QPalette::PlaceholderText));
    item->setToolTip(entry.why_not);
    item->setData(Qt::AccessibleDescriptionRole, entry.why_not);
  }
  list_->setCurrentRow(list_->count() > 0 ? 0 : -1);
  if (list_->count() == 0) detail_->setText(tr("Nothing is called so. Esc closes."));
}

const PaletteEntry* CommandPalette::Current() const {
  const QListWidgetItem* item = list_->currentItem();
  return item == nullptr ? nullptr
                         : &entries_[static_cast<std::size_t>(item->data(Qt::UserRole).toInt())];
}

void CommandPalette::Choose() {
  const PaletteEntry* entry = Current();
  if (entry == nullptr || !entry->why_not.isEmpty()) return;
  chosen_ = entry->run;
  accept();
}

void CommandPalette::CopyCli() {
  const PaletteEntry* entry = Current();
  if (entry == nullptr || entry->cli.isEmpty()) return;
  QApplication::clipboard()->setText(entry->cli);
  detail_->setText(tr("Copied: %1").arg(entry->cli));
}

}  // namespace onepiece::gui
