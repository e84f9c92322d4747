// The functions of a C++ source and how long they are.
#pragma once

#include <QString>
#include <QStringList>
#include <QVector>

namespace onepiece::lint {

struct Function {
  QString name;    ///< As the definition spells it, "NodeAgent::Impl::Pause".
  int line;        ///< The first of its lines, counted from 1.
  int lines;       ///< From the first line of its head to its closing brace.
  int statements;  ///< So many semicolons are in it.
};

/// The functions that `code` (CodeOf) defines. A lambda is part of the function that it stands in.
QVector<Function> FunctionsOf(const QStringList& code);

}  // namespace onepiece::lint
