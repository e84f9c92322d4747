#include "tests/lint/code.h"

#include <QDirIterator>
#include <QFile>
#include <QRegularExpression>
#include <algorithm>

namespace onepiece::lint {
namespace {

// Goes through C++ text and blanks what is not code.
class Blanker {
 public:
  explicit Blanker(const QString& text) : text_(text), code_(text) {}

  QString Run() {
    while (at_ < text_.size()) {
      if (Sees("//")) {
        BlankTo(text_.indexOf('\n', at_));
      } else if (Sees("/*")) {
        BlankTo(End(text_.indexOf("*/", at_ + 2), 2));
      } else if (Sees("R\"") && !IsWord(at_ - 1)) {
        const qsizetype open = text_.indexOf('(', at_);
        const QString close = ')' + text_.mid(at_ + 2, open - at_ - 2) + '"';
        BlankLiteral(at_ + 1, End(text_.indexOf(close, open), close.size()));
      } else if (Sees("\"")) {
        BlankLiteral(at_, EndOfQuoted('"'));
      } else if (Sees("'") && !IsDigitSeparator()) {
        BlankLiteral(at_, EndOfQuoted('\''));
      } else {
        ++at_;
      }
    }
    return code_;
  }

 private:
  bool Sees(const char* what) const {
    return QStringView(text_).mid(at_).startsWith(QLatin1String(what));
  }
  bool IsWord(qsizetype at) const {
    return at >= 0 && (text_[at].isLetterOrNumber() || text_[at] == '_');
  }
  // Whether the quote at `at_` is one of 1'000'000.
  bool IsDigitSeparator() const {
    qsizetype begin = at_;
    while (begin > 0 && (IsWord(begin - 1) || text_[begin - 1] == '\'')) --begin;
    return begin < at_ && text_[begin].isDigit();
  }
  qsizetype End(qsizetype found, qsizetype length) const {
    return found < 0 ? text_.size() : found + length;
  }
  qsizetype EndOfQuoted(QChar quote) const {
    qsizetype end = at_ + 1;
    while (end < text_.size() && text_[end] != quote && text_[end] != '\n') {
      end += text_[end] == '\\' ? 2 : 1;
    }
    return std::min(end + 1, text_.size());
  }
  void BlankTo(qsizetype end) {
    if (end < 0) end = text_.size();
    for (; at_ < end; ++at_) {
      if (text_[at_] != '\n') code_[at_] = ' ';
    }
  }
  // Keeps the quotes: `begin` is at the first, `end` behind the last.
  void BlankLiteral(qsizetype begin, qsizetype end) {
    at_ = begin + 1;
    BlankTo(end - 1);
    at_ = end;
  }

  const QString& text_;
  QString code_;
  qsizetype at_ = 0;
};

}  // namespace

QString CodeOf(const QString& text) { return Blanker(text).Run(); }

QVector<Source> ReadSources(const QDir& top) {
  QStringList paths;
  for (const QString& root : top.entryList(QDir::Dirs | QDir::NoDotAndDotDot)) {
    if (root == "build") continue;
    QDirIterator files(top.filePath(root), {"*.h", "*.cc"}, QDir::Files,
                       QDirIterator::Subdirectories);
    while (files.hasNext()) paths.append(top.relativeFilePath(files.next()));
  }
  paths.sort();
  QVector<Source> sources;
  for (const QString& path : paths) {
    QFile file(top.filePath(path));
    if (!file.open(QIODevice::ReadOnly)) continue;
    const QString text = QString::fromUtf8(file.readAll());
    const QString header = path.chopped(3) + ".h";
    const bool has_header = path.endsWith(".cc") && paths.contains(header);
    sources.append({.path = path,
                    .lines = text.split('\n'),
                    .code = CodeOf(text).split('\n'),
                    .own_header = has_header ? header : QString()});
  }
  return sources;
}

}  // namespace onepiece::lint
