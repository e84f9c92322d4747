// What clang-format says.
#pragma once

#include <QDir>
#include <QStringList>

namespace onepiece::lint {

/// One finding for every place that clang-format would change in these files, or one that says why
/// clang-format does not run.
///
/// Blocking: until clang-format has read all of them, on every core.
QStringList FormatFindings(const QDir& top, const QStringList& paths);

}  // namespace onepiece::lint
