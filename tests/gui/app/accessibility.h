// Finds what a screen reader or a keyboard alone would miss in a window.
//
// Threading: GUI thread only.
#pragma once

#include <QStringList>
#include <QWidget>

namespace onepiece::testing {

/// The faults of a visible window or dialog, a line each. Empty if there is none.
/// - What can be reached or pressed has a name, and no other thing of its window has the same role
///   and name.
/// - Tab reaches everything that takes the focus by Tab, and gets out of it again.
/// - A table has a header, and each of its columns a name; a slider has a value in its range.
/// - What paints itself and takes the focus has children, a value, or a description of what it
///   paints.
QStringList AccessibilityFaults(QWidget& window);

}  // namespace onepiece::testing
