// The sources as the rules of tests/lint read them.
#pragma once

#include <QDir>
#include <QString>
#include <QStringList>
#include <QVector>

namespace onepiece::lint {

struct Source {
  QString path;       ///< From the top of the tree.
  QStringList lines;  ///< As they are.
  QStringList code;   ///< As CodeOf() gives them; as many as `lines`.
  QString
      own_header;  ///< x.h in the folder of x.cc, from the top of the tree; empty: there is none.
};

/// `text` with spaces instead of comments, and instead of what is between the quotes of literals.
/// Lines and columns stay where they are.
QString CodeOf(const QString& text);

/// Every .h and .cc below `top`, sorted by path; not what is in build/ or in hidden folders.
QVector<Source> ReadSources(const QDir& top);

}  // namespace onepiece::lint
