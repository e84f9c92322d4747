// The rules of the tree that a program can check from the text of one file.
#pragma once

#include <QStringList>
#include <QVector>

#include "tests/lint/code.h"

namespace onepiece::lint {

/// Finds what breaks a rule: "path:line: what is wrong; what to do".
using Rule = QStringList (*)(const Source& source);

struct NamedRule {
  const char* name;
  Rule rule;
};

const QVector<NamedRule>& Rules();

/// The entries of exceptions.h that allow more than `sources` have. An exception that is no longer
/// needed would let the next violation in.
QStringList NeedlessExceptions(const QVector<Source>& sources);

}  // namespace onepiece::lint
