#include "tests/lint/functions.h"

#include <QRegularExpression>

namespace onepiece::lint {
namespace {

// What a pair of braces holds.
enum class Braces {
  kScope,     // A namespace, a class or the like: functions may be defined in it.
  kFunction,  // The body of a function.
  kOther,     // A block in a function, an initialiser, an enum.
};

// The words in front of a brace, as far back as the last ';' or brace.
class Head {
 public:
  void Add(QChar c, int line) {
    if (text_.isEmpty()) {
      if (c.isSpace()) return;
      line_ = line;
    }
    if (c == '(') ++parentheses_;
    if (c == ')') --parentheses_;
    text_ += c;
    static const QRegularExpression access(
        "(^|\\s)((public|private|protected)( Q_SLOTS)?|Q_SIGNALS):$");
    if (c == ':' && access.match(text_).hasMatch()) Clear();
  }
  void Clear() { *this = {}; }
  [[nodiscard]] bool in_parentheses() const { return parentheses_ > 0; }
  [[nodiscard]] int line() const { return line_; }
  // Whether a brace that follows begins the value of a member or variable: clang-format sets a
  // space before every other one.
  [[nodiscard]] bool wants_value() const {
    return in_parentheses() || (!text_.isEmpty() && !text_.back().isSpace());
  }
  [[nodiscard]] Braces Opens() const {
    const QString plain = Plain();
    static const QRegularExpression scope(
        "^((inline )?namespace|class|struct|union)\\b|^extern \"\\s*\"\\s*$");
    static const QRegularExpression value("=\\s*$|^enum\\b");
    if (value.match(plain).hasMatch()) return Braces::kOther;
    if (scope.match(plain).hasMatch()) return Braces::kScope;
    return plain.contains('(') ? Braces::kFunction : Braces::kOther;
  }
  [[nodiscard]] QString Name() const {
    static const QRegularExpression name(
        "([\\w:~]+|operator\\s*[^\\s\\w(]+|operator\\(\\))\\s*\\(");
    const auto match = name.match(Plain());
    return match.hasMatch() ? match.captured(1) : Plain().left(40);
  }

 private:
  // Without a macro's line or `template <...>` in front.
  [[nodiscard]] QString Plain() const {
    static const QRegularExpression macros("^([A-Z][A-Z_]+(\\([^()]*\\))?\\s*\\n\\s*)+");
    const QString plain = QString(text_).remove(macros);
    if (!plain.startsWith("template")) return plain;
    int depth = 0;
    for (qsizetype i = 0; i < plain.size(); ++i) {
      if (plain[i] == '<') ++depth;
      if (plain[i] == '>' && --depth == 0) return plain.mid(i + 1).trimmed();
    }
    return plain;
  }

  QString text_;
  int line_ = 0;
  int parentheses_ = 0;
};

struct Open {
  Braces braces;
  Head head;  // Of a value: to be gone on with behind it.
  bool value = false;
};

class Reader {
 public:
  void Read(QChar c, int line) {
    if (c == '{') {
      Begin();
    } else if (c == '}') {
      End(line);
    } else if (in_function_ > 0) {
      if (c == ';') ++statements_;
    } else {
      if (c == ';' && !head_.in_parentheses()) {
        head_.Clear();
      } else {
        head_.Add(c, line);
      }
    }
  }
  QVector<Function> Take() { return std::move(functions_); }

 private:
  void Begin() {
    Open open{in_function_ > 0 ? Braces::kOther : head_.Opens(), head_};
    if (in_function_ == 0 && head_.wants_value()) open = {Braces::kOther, head_, true};
    if (open.braces != Braces::kScope) ++in_function_;
    if (open.braces == Braces::kFunction) statements_ = 0;
    open_.append(open);
    head_.Clear();
  }
  void End(int line) {
    if (open_.isEmpty()) return;
    const Open open = open_.takeLast();
    if (open.braces != Braces::kScope) --in_function_;
    head_.Clear();
    if (open.value && in_function_ == 0) head_ = open.head;
    if (open.braces == Braces::kFunction) {
      functions_.append(
          {open.head.Name(), open.head.line(), line - open.head.line() + 1, statements_});
    }
  }

  Head head_;
  QVector<Open> open_;
  int in_function_ = 0;  // Depth of braces that define no functions for us.
  int statements_ = 0;   // Of the function that is being read.
  QVector<Function> functions_;
};

}  // namespace

QVector<Function> FunctionsOf(const QStringList& code) {
  Reader reader;
  bool directive = false;  // #define and its like, with the lines that a backslash joins to it.
  for (int i = 0; i < code.size(); ++i) {
    directive = directive || code[i].trimmed().startsWith('#');
    if (!directive) {
      for (const QChar c : code[i]) reader.Read(c, i + 1);
      reader.Read('\n', i + 1);
    }
    directive = directive && code[i].endsWith('\\');
  }
  return reader.Take();
}

}  // namespace onepiece::lint
