// The rules that a program can check from the text of the tree: the tree keeps them, and a
// violation of each is found.
#include <QFile>
#include <QProcess>
#include <QTemporaryDir>
#include <QtTest>

#include "tests/lint/code.h"
#include "tests/lint/format.h"
#include "tests/lint/functions.h"
#include "tests/lint/rules.h"
#include "tests/test_main.h"

namespace onepiece::lint {
namespace {

QStringList PathsOf(const QVector<Source>& sources) {
  QStringList paths;
  for (const Source& source : sources) paths << source.path;
  return paths;
}

QStringList AllFindings(const QDir& top) {
  const QVector<Source> sources = ReadSources(top);
  QStringList findings = FormatFindings(top, PathsOf(sources));
  for (const NamedRule& rule : Rules()) {
    for (const Source& source : sources) findings += rule.rule(source);
  }
  return findings;
}

// All of them: QVERIFY2 cuts its message off.
void Print(const QStringList& findings) {
  for (const QString& finding : findings) qWarning().noquote() << finding;
}

QString ReadText(const QString& path) {
  QFile file(path);
  return file.open(QIODevice::ReadOnly) ? QString::fromUtf8(file.readAll()) : QString();
}

bool WriteText(const QString& path, const QString& text) {
  QFile file(path);
  return QDir().mkpath(QFileInfo(path).path()) && file.open(QIODevice::WriteOnly) &&
         file.write(text.toUtf8()) >= 0;
}

// The files of the tree that violations are planted in.
const QStringList kCopied = {".clang-format", "cluster/base/sha256.cc", "cluster/base/sha256.h",
                             "tests/base/sha256_test.cc"};

QString Repeated(const QString& line, int times) {
  return QString("int F() {\n  int x = 0;\n%1  return x;\n}\n").arg(line.repeated(times));
}

}  // namespace

class LintTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    sources_ = ReadSources(QDir(ONEPIECE_SOURCE_DIR));
    QVERIFY(sources_.size() > 1000);
  }

  void Tree_KeepsTheRule_data() {
    QTest::addColumn<int>("rule");
    for (int i = 0; i < Rules().size(); ++i) QTest::newRow(Rules()[i].name) << i;
  }
  void Tree_KeepsTheRule() {
    QFETCH(int, rule);
    QStringList findings;
    for (const Source& source : sources_) findings += Rules()[rule].rule(source);
    Print(findings);
    QCOMPARE(findings.size(), 0);
  }

  void Tree_IsFormatted() {
    const QStringList findings = FormatFindings(QDir(ONEPIECE_SOURCE_DIR), PathsOf(sources_));
    Print(findings);
    QCOMPARE(findings.size(), 0);
  }

  void Exceptions_AreNeeded() {
    const QStringList needless = NeedlessExceptions(sources_);
    Print(needless);
    QCOMPARE(needless.size(), 0);
  }

  // One that does not apply puts no defect back, and only tests/run --long would say so.
  void Mutants_Apply() {
    QStringList stale;
    const QString top = ONEPIECE_SOURCE_DIR;
    for (const QString& name : QDir(top + "/tests/mutants").entryList({"*.patch"})) {
      QProcess git;
      git.setWorkingDirectory(top);
      git.start("git", {"apply", "--check", "tests/mutants/" + name});
      if (!git.waitForFinished() || git.exitCode() != 0)
        stale << name + ": " + QString::fromUtf8(git.readAllStandardError());
    }
    Print(stale);
    QVERIFY(stale.isEmpty());
  }

  // A violation is planted into a copy of some files, in the place of `before` or, if that is
  // empty, at the end of the file.
  void Violation_IsFound_data() {
    QTest::addColumn<QString>("path");
    QTest::addColumn<QString>("before");
    QTest::addColumn<QString>("after");
    QTest::addColumn<QString>("finding");
    const QString source = "cluster/base/sha256.cc", header = "cluster/base/sha256.h";
    const QString test = "tests/base/sha256_test.cc";
    QTest::newRow("format") << source << ""
                            << "int  x;\n"
                            << "cluster/base/sha256.cc:N: not formatted; run clang-format -i on "
                               "the file";
    QTest::newRow("own header") << source << "#include \"cluster/base/sha256.h\"\n\n"
                                << ""
                                << "cluster/base/sha256.cc:N: includes openssl/evp.h first; "
                                   "include \"cluster/base/sha256.h\" before it";
    QTest::newRow("columns")
        << source << ""
        << "// " + QString("word-").repeated(20) + "\n"
        << "cluster/base/sha256.cc:N: 103 columns; break the line at 100, clang-format leaves "
           "comments and strings";
    QTest::newRow("header length")
        << "cluster/base/long.h"
        << "" << QString("// Line.\n").repeated(401)
        << "cluster/base/long.h:N: the file has 401 lines, the limit is 400; split it";
    QTest::newRow("source length")
        << "cluster/base/long.cc"
        << "" << QString("// Line.\n").repeated(801)
        << "cluster/base/long.cc:N: the file has 801 lines, the limit is 800; split it";
    QTest::newRow("function length")
        << source << "" << Repeated("  ++x;\n", 67)
        << "cluster/base/sha256.cc:N: F has 71 lines, the limit is 70; give a part of it a name";
    QTest::newRow("function in a class")
        << source << ""
        << "class C {\n public:\n  C() : x_{1} {\n" + QString("    ++x_;\n").repeated(69) +
               "  }\n\n private:\n  int x_;\n};\n"
        << "cluster/base/sha256.cc:N: C has 71 lines, the limit is 70; give a part of it a name";
    QTest::newRow("label in a sentence")
        << header << ""
        << "/// Hashes. Errors: none.\nvoid F();\n"
        << "cluster/base/sha256.h:N: the label Errors: stands in a sentence; begin a line with it";
    QTest::newRow("label without a colon")
        << header << ""
        << "/// Threading  Thread-safe.\nvoid F();\n"
        << "cluster/base/sha256.h:N: the label Threading has no colon; write \"Threading: ...\"";
    const QString clock =
        ":N: waits in real time or reads the system's clock; take a base::Clock&, and in a test a "
        "condition (eventually.h) or a ManualClock";
    QTest::newRow("clock, ours") << "stages/sdk/clock.cc"
                                 << ""
                                 << "auto now = std::chrono::steady_clock::now();\n"
                                 << "stages/sdk/clock.cc" + clock;
    QTest::newRow("sleep in a test") << test << ""
                                     << "void F() { std::this_thread::sleep_for(kTime); }\n"
                                     << test + clock;
    QTest::newRow("sleep behind a helper") << test << ""
                                           << "void F() { testing::Pause(kTime); }\n"
                                           << test + clock;
    QTest::newRow("wait for nothing")
        << test << ""
        << "void F() {\n  changed.WaitFor(lock, kTime, [] { return false; });\n}\n"
        << test + clock;
    QTest::newRow("Qt") << source << ""
                        << "#include <QString>\n"
                        << "cluster/base/sha256.cc:N: includes QString; only gui/ and tests/ "
                           "include Qt";
  }
  void Violation_IsFound() {
    QFETCH(QString, path);
    QFETCH(QString, before);
    QFETCH(QString, after);
    QFETCH(QString, finding);
    const QTemporaryDir copy;
    for (const QString& file : kCopied) {
      QVERIFY(WriteText(copy.filePath(file), ReadText(QDir(ONEPIECE_SOURCE_DIR).filePath(file))));
    }
    QCOMPARE(AllFindings(QDir(copy.path())), QStringList());

    QString text = ReadText(copy.filePath(path));
    if (before.isEmpty()) {
      text += text.isEmpty() ? after : "\n" + after;
    } else {
      QVERIFY(text.contains(before));
      text.replace(before, after);
    }
    QVERIFY(WriteText(copy.filePath(path), text));
    QStringList findings = AllFindings(QDir(copy.path()));
    // The line depends on the length of the file that it is planted into.
    static const QRegularExpression line(":\\d+: ");
    findings.replaceInStrings(line, ":N: ");
    QCOMPARE(findings, QStringList{finding});
  }

  void Code_HasNoCommentsAndLiterals() {
    QCOMPARE(CodeOf("a;  // b \"c\"\nd(\"//\\\"\", 'x', 1'000); /* e\nf */ g(R\"(\"h\")\");"),
             QString("a;          \nd(\"    \", ' ', 1'000);     \n     g(R\"     \");"));
  }

 private:
  QVector<Source> sources_;
};

}  // namespace onepiece::lint

ONEPIECE_TEST(onepiece::lint::LintTest)
#include "lint_test.moc"
