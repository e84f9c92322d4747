#include "tests/gui/app/accessibility.h"

#include <QAbstractItemView>
#include <QAbstractSlider>
#include <QAccessible>
#include <QApplication>
#include <QHash>
#include <QHeaderView>
#include <QSet>
#include <QTableView>
#include <QTest>
#include <algorithm>

namespace onepiece::testing {
namespace {

constexpr int kMaxDepth = 40;
constexpr int kMaxChildren = 300;  ///< A table has many cells, all made by one delegate.

QString Where(const QObject* object) {
  QStringList path;
  for (; object != nullptr && path.size() < 4; object = object->parent()) {
    path << QLatin1String(object->metaObject()->className()) +
                (object->objectName().isEmpty() ? QString() : u'#' + object->objectName());
  }
  return path.join(QStringLiteral(" < "));
}

bool IsContent(QAccessible::Role role) {
  switch (role) {
    case QAccessible::Client:
    case QAccessible::Window:
    case QAccessible::Cell:
    case QAccessible::TreeItem:
    case QAccessible::ListItem:
    case QAccessible::ColumnHeader:
    case QAccessible::RowHeader:
    case QAccessible::MenuItem:  // Menus repeat each other's; the menu says which.
      return true;
    default:
      return false;
  }
}

struct Lint {
  QHash<QString, QString> names;  ///< Where a role with a name was found.
  QStringList faults;

  void Visit(QAccessibleInterface* node, int depth) {
    if (node == nullptr || !node->isValid() || depth > kMaxDepth || node->state().invisible) return;
    const QAccessible::Role role = node->role();
    const bool reached =
        node->state().focusable ||
        (node->actionInterface() != nullptr && !node->actionInterface()->actionNames().isEmpty());
    if (reached && !IsContent(role)) Name(*node, role);
    if (role == QAccessible::Slider) Value(*node);
    const int children = std::min(node->childCount(), kMaxChildren);
    for (int i = 0; i < children; ++i) Visit(node->child(i), depth + 1);
  }

  void Value(QAccessibleInterface& node) {
    QAccessibleValueInterface* value = node.valueInterface();
    const bool in_range = value != nullptr &&
                          value->minimumValue().toDouble() <= value->currentValue().toDouble() &&
                          value->currentValue().toDouble() <= value->maximumValue().toDouble();
    if (!in_range) faults << QStringLiteral("no value: %1").arg(Where(node.object()));
  }

  void Name(QAccessibleInterface& node, QAccessible::Role role) {
    const QString name = node.text(QAccessible::Name), where = Where(node.object());
    if (name.isEmpty()) {
      faults << QStringLiteral("no name: role %1, %2").arg(role).arg(where);
      return;
    }
    // The parts of a combo box, its list and its button, share its name.
    if (node.parent() != nullptr && node.parent()->role() == QAccessible::ComboBox) return;
    const QString key = QStringLiteral("%1 \"%2\"").arg(role).arg(name);
    if (names.contains(key)) {
      faults << QStringLiteral("same role and name %1: %2 and %3").arg(key, names[key], where);
    }
    names.insert(key, where);
  }
};

bool TakesTab(const QWidget& widget) {
  return widget.isVisible() && widget.isEnabled() && widget.focusProxy() == nullptr &&
         (widget.focusPolicy() & Qt::TabFocus) != 0;
}

void CheckTabs(QWidget& window, QStringList& faults) {
  QSet<const QWidget*> wanted, reached;
  for (const QWidget* widget : window.findChildren<QWidget*>()) {
    // Tab reaches one radio button of a group. The arrow keys reach the others.
    if (widget->window() == &window && TakesTab(*widget) && !widget->inherits("QRadioButton")) {
      wanted.insert(widget);
    }
  }
  if (wanted.isEmpty()) return;
  window.activateWindow();
  QCoreApplication::processEvents();
  const QWidget* before = nullptr;
  QWidget* focus = window.focusWidget() != nullptr ? window.focusWidget() : &window;
  const auto limit = 2 * wanted.size() + 10;
  for (qsizetype i = 0; i < limit && focus != nullptr; ++i) {
    before = focus;
    QTest::keyClick(focus, Qt::Key_Tab);
    focus = window.focusWidget();
    if (focus == before && wanted.size() > 1) {
      faults << QStringLiteral("Tab does not get out of %1").arg(Where(focus));
      return;
    }
    reached.insert(focus);
  }
  for (const QWidget* widget : wanted) {
    if (!reached.contains(widget)) {
      faults << QStringLiteral("Tab does not reach %1").arg(Where(widget));
    }
  }
}

void CheckTables(QWidget& window, QStringList& faults) {
  for (const QTableView* table : window.findChildren<QTableView*>()) {
    if (!table->isVisible() || table->model() == nullptr) continue;
    if (!table->horizontalHeader()->isVisible()) {
      faults << QStringLiteral("a table without header: %1").arg(Where(table));
    }
    for (int column = 0; column < table->model()->columnCount(); ++column) {
      if (!table->model()->headerData(column, Qt::Horizontal).toString().isEmpty()) continue;
      faults << QStringLiteral("column %1 has no name: %2").arg(column).arg(Where(table));
    }
  }
}

/// True for a class of ours that is not just a Qt class with another name. Only its paintEvent
/// knows what it shows.
bool PaintsItself(const QWidget& widget) {
  const QMetaObject* kind = widget.metaObject();
  if (!QByteArray(kind->className()).startsWith("onepiece::")) return false;
  const QByteArray base = kind->superClass()->className();
  return base == "QWidget" || base == "QFrame" || base == "QAbstractScrollArea" ||
         base == "QGraphicsView";
}

void CheckPainted(QWidget& window, QStringList& faults) {
  for (QWidget* widget : window.findChildren<QWidget*>()) {
    if (!widget->isVisible() || widget->focusPolicy() == Qt::NoFocus || !PaintsItself(*widget)) {
      continue;
    }
    QAccessibleInterface* node = QAccessible::queryAccessibleInterface(widget);
    if (node == nullptr || (node->childCount() == 0 && node->valueInterface() == nullptr &&
                            node->text(QAccessible::Value).isEmpty() &&
                            node->text(QAccessible::Description).isEmpty())) {
      faults << QStringLiteral("paints what it does not tell: %1").arg(Where(widget));
    }
  }
}

}  // namespace

QStringList AccessibilityFaults(QWidget& window) {
  Lint lint;
  lint.Visit(QAccessible::queryAccessibleInterface(&window), 0);
  CheckTabs(window, lint.faults);
  CheckTables(window, lint.faults);
  CheckPainted(window, lint.faults);
  return lint.faults;
}

}  // namespace onepiece::testing
