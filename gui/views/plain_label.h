// A label for text that others wrote.
#pragma once

#include <QLabel>
#include <QString>

namespace onepiece::gui {

/// A label that wraps its text and shows it as it is: names and messages of a cluster are never
/// taken for HTML.
///
/// Ownership: `parent` owns it.
inline QLabel* PlainLabel(QWidget* parent, const QString& text = {}) {
  auto* label = new QLabel(text, parent);
  label->setTextFormat(Qt::PlainText);
  label->setWordWrap(true);
  return label;
}

}  // namespace onepiece::gui
