#include "tests/lint/rules.h"

#include <QRegularExpression>
#include <algorithm>

#include "tests/lint/exceptions.h"
#include "tests/lint/functions.h"

namespace onepiece::lint {
namespace {

constexpr int kMaxColumns = 100;
constexpr int kMaxFunctionLines = 70;
constexpr int kTableStatements =
    2;  // A static table, and its return: data, as long as it has to be.
constexpr int kMaxHeaderLines = 400;
constexpr int kMaxSourceLines = 800;

QString Finding(const Source& source, qsizetype line, const QString& what) {
  return QString("%1:%2: %3").arg(source.path).arg(line).arg(what);
}

// The name in an #include line; empty: it is none.
QString Included(const QString& line) {
  static const QRegularExpression include("^\\s*#\\s*include\\s+[\"<]([^\">]+)[\">]");
  return include.match(line).captured(1);
}

// x.cc includes x.h before any other header, so that x.h is seen to stand alone.
QStringList OwnHeaderFirst(const Source& source) {
  if (source.own_header.isEmpty()) return {};
  for (qsizetype i = 0; i < source.lines.size(); ++i) {
    const QString included = Included(source.lines[i]);
    if (included.isEmpty()) continue;
    if (included == source.own_header) return {};
    return {Finding(
        source, i + 1,
        QString("includes %1 first; include \"%2\" before it").arg(included, source.own_header))};
  }
  return {Finding(source, 1, QString("does not include \"%1\"").arg(source.own_header))};
}

QStringList Columns(const Source& source) {
  QStringList findings;
  for (qsizetype i = 0; i < source.lines.size(); ++i) {
    // A character beyond the Basic Multilingual Plane is two of a QString's.
    const qsizetype columns = source.lines[i].toUcs4().size();
    if (columns <= kMaxColumns || !Included(source.lines[i]).isEmpty()) continue;
    findings << Finding(
        source, i + 1,
        QString("%1 columns; break the line at %2, clang-format leaves comments and strings")
            .arg(columns)
            .arg(kMaxColumns));
  }
  return findings;
}

QStringList FileLength(const Source& source) {
  const int limit = source.path.endsWith(".h") ? kMaxHeaderLines : kMaxSourceLines;
  const qsizetype lines = source.lines.size() - 1;
  if (lines <= limit) return {};
  return {
      Finding(source, limit + 1,
              QString("the file has %1 lines, the limit is %2; split it").arg(lines).arg(limit))};
}

QStringList FunctionLength(const Source& source) {
  QStringList findings;
  for (const Function& function : FunctionsOf(source.code)) {
    const bool table = function.statements <= kTableStatements;
    if (function.lines <= kMaxFunctionLines || table) continue;
    findings << Finding(source, function.line,
                        QString("%1 has %2 lines, the limit is %3; give a part of it a name")
                            .arg(function.name)
                            .arg(function.lines)
                            .arg(kMaxFunctionLines));
  }
  return findings;
}

// A label of a doc comment that stands in a sentence is not found by those who look for it.
QStringList Labels(const Source& source) {
  static const QRegularExpression label(
      "\\b(Ownership|Threading|Blocking|Units|Errors|Invariants)(:(?!:)|  +\\S)");
  static const QRegularExpression begins("^\\s*///? $");
  QStringList findings;
  for (qsizetype i = 0; i < source.lines.size(); ++i) {
    const QString& line = source.lines[i];
    const qsizetype comment = line.indexOf("//");
    // What the code of the line lacks is a comment or a literal.
    if (comment < 0 || !QStringView(source.code[i]).mid(comment).trimmed().isEmpty()) continue;
    for (const auto& match : label.globalMatch(line, comment)) {
      if (!match.captured(2).startsWith(':')) {
        findings << Finding(
            source, i + 1,
            QString("the label %1 has no colon; write \"%1: ...\"").arg(match.captured(1)));
      } else if (!begins.match(line.left(match.capturedStart())).hasMatch()) {
        findings << Finding(source, i + 1,
                            QString("the label %1: stands in a sentence; begin a line with it")
                                .arg(match.captured(1)));
      }
    }
  }
  return findings;
}

// The lines that wait in real time or read a clock of the system.
QVector<qsizetype> RealTimeLines(const Source& source) {
  if (source.path.startsWith("cluster/base/")) return {};
  static const QRegularExpression real_time(
      "\\b(sleep_for|sleep_until|usleep|nanosleep|SleepFor|qSleep|qWait|QThread::m?sleep)\\b|"
      "\\b(system|steady|high_resolution)_clock::now\\b|\\btesting::Pause\\b");
  static const QRegularExpression wait_for_nothing(
      "\\bWait(For|Until)\\(.*\\[\\] \\{ return false; \\}");
  // Ours waits so until it is stopped. A test's wait would be a sleep; eventually.h has the one
  // poll.
  const bool test = source.path.startsWith("tests/") && source.path != "tests/eventually.h";
  QVector<qsizetype> lines;
  for (qsizetype i = 0; i < source.code.size(); ++i) {
    const QString& line = source.code[i];
    if (line.contains(real_time) || (test && line.contains(wait_for_nothing))) lines << i + 1;
  }
  return lines;
}

const RealTime* AllowedRealTime(const QString& path) {
  for (const RealTime& entry : RealTimes()) {
    if (entry.path == path || (entry.path.endsWith('/') && path.startsWith(entry.path))) {
      return &entry;
    }
  }
  return nullptr;
}

QStringList Clocks(const Source& source) {
  const QVector<qsizetype> lines = RealTimeLines(source);
  const RealTime* allowed = AllowedRealTime(source.path);
  if (allowed != nullptr && (allowed->places == 0 || lines.size() <= allowed->places)) return {};
  QStringList findings;
  for (const qsizetype line : lines) {
    findings << Finding(source, line,
                        "waits in real time or reads the system's clock; take a base::Clock&, and "
                        "in a test a condition (eventually.h) or a ManualClock");
  }
  return findings;
}

// Only the console and the tests know Qt.
QStringList QtStaysOutside(const Source& source) {
  if (source.path.startsWith("gui/") || source.path.startsWith("tests/")) return {};
  static const QRegularExpression qt("^(Q[A-Z]|Qt[A-Z]\\w*/|qt)");
  QStringList findings;
  for (qsizetype i = 0; i < source.lines.size(); ++i) {
    const QString included = Included(source.lines[i]);
    if (!included.contains(qt)) continue;
    findings << Finding(source, i + 1,
                        QString("includes %1; only gui/ and tests/ include Qt").arg(included));
  }
  return findings;
}

}  // namespace

const QVector<NamedRule>& Rules() {
  static const QVector<NamedRule> rules = {
      {"own header first", OwnHeaderFirst}, {"columns", Columns}, {"file length", FileLength},
      {"function length", FunctionLength},  {"labels", Labels},   {"clocks", Clocks},
      {"Qt stays outside", QtStaysOutside},
  };
  return rules;
}

QStringList NeedlessExceptions(const QVector<Source>& sources) {
  QStringList needless;
  for (const RealTime& entry : RealTimes()) {
    qsizetype places = 0;
    for (const Source& source : sources) {
      if (AllowedRealTime(source.path) == &entry) places += RealTimeLines(source).size();
    }
    if (places == 0 || places < entry.places) {
      needless << QString("%1: %2 places are left; correct its entry in RealTimes()")
                      .arg(entry.path)
                      .arg(places);
    }
  }
  return needless;
}

}  // namespace onepiece::lint
