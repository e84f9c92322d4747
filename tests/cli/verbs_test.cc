// Tests the table of verbs: that --help, docs/cli.md and completion follow it, and the verbs that
// other programs serve.
#include <sys/stat.h>

#include <QtTest>
#include <csignal>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece::cli {
namespace {

using testing::Outcome;
using testing::RunProgram;

const QString kOnepiece = ONEPIECE_BINARY_DIR "/bin/onepiece";

/// Returns the verbs with their one-line help, as the `Subcommands:` part of a --help lists them.
std::map<QString, QString> ListedVerbs(const QStringList& arguments) {
  std::map<QString, QString> verbs;
  const Outcome outcome = RunProgram(kOnepiece, arguments);
  bool listing = false;
  QString last;
  for (const QString& line : QString::fromStdString(outcome.out).split('\n')) {
    if (line == "Subcommands:") {
      listing = true;
    } else if (listing && line.startsWith("   ")) {
      verbs[last] += " " + line.trimmed();
    } else if (listing && line.startsWith("  ")) {
      last = line.trimmed().section(' ', 0, 0);
      verbs[last] = line.trimmed().section(' ', 1).trimmed();
    } else {
      listing = false;
    }
  }
  return verbs;
}

/// Returns the rows "| `verb` | help |" of docs/cli.md.
std::map<QString, QString> DocumentedVerbs() {
  std::map<QString, QString> verbs;
  QFile file(ONEPIECE_SOURCE_DIR "/docs/cli.md");
  if (!file.open(QIODevice::ReadOnly)) return verbs;
  static const QRegularExpression row("^\\| `([a-z -]+)` \\| (.*) \\|$");
  for (const QString& line : QString::fromUtf8(file.readAll()).split('\n')) {
    const auto match = row.match(line);
    if (match.hasMatch()) verbs[match.captured(1)] = match.captured(2);
  }
  return verbs;
}

/// A folder of programs that replaces build/release/bin.
class StandIns {
 public:
  /// Writes a program, which is a shell script with this body.
  void Add(const QString& name, const QString& body) const {
    const std::string path = temp_.filePath(name).toStdString();
    std::ofstream(path) << "#!/bin/sh\n" << body.toStdString() << "\n";
    chmod(path.c_str(), 0700);
  }
  [[nodiscard]] QString folder() const { return temp_.path(); }

 private:
  QTemporaryDir temp_;
};

}  // namespace

class VerbsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Documentation_HasEveryVerb() {
    std::map<QString, QString> listed = ListedVerbs({"--help"});
    QVERIFY(listed.size() > 20);
    for (const QString group : {"bench", "cluster"}) {
      for (const auto& [verb, help] : ListedVerbs({group, "--help"}))
        listed[group + " " + verb] = help;
    }
    QCOMPARE(DocumentedVerbs(), listed);
  }

  void Completion_KnowsEveryVerb() {
    const std::string script = RunProgram(kOnepiece, {"completion"}).out;
    for (const auto& [verb, help] : ListedVerbs({"--help"})) {
      const std::string name = verb.toStdString();
      QVERIFY2(script.find("    \"" + name + "\") words=\"") != std::string::npos, name.c_str());
    }
    const Outcome completed = RunProgram(
        "bash", {"-c", "source <(" + kOnepiece +
                           " completion); COMP_WORDS=(onepiece cluster ste); COMP_CWORD=2; "
                           "_onepiece; echo ${COMPREPLY[@]}"});
    QCOMPARE(completed.out, std::string("step-down\n"));
  }

  void Program_GetsEverythingButWhatNamesTheCluster_data() {
    QTest::addColumn<QStringList>("command_line");
    QTest::addColumn<QString>("program");
    QTest::addColumn<QString>("arguments");
    QTest::newRow("as it stands") << QStringList{"simulate", "--set", "a=b", "status"}
                                  << "onepiece-simulate"
                                  << "--set a=b status";
    QTest::newRow("help") << QStringList{"simulate", "--help"} << "onepiece-simulate"
                          << "--help";
    QTest::newRow("cluster, before and after")
        << QStringList{"--data-dir",    "/x", "simulate", "--proxy=p:1", "--compare",
                       "--nodemanager", "n:1"}
        << "onepiece-simulate"
        << "--compare";
    QTest::newRow("json, before") << QStringList{"--json", "simulate", "--compare"}
                                  << "onepiece-simulate"
                                  << "--compare --json";
    QTest::newRow("json, before what is no option")
        << QStringList{"simulate", "--json", "--", "file"} << "onepiece-simulate"
        << "--json -- file";
    QTest::newRow("verb of a verb") << QStringList{"bench", "ring", "--quick"} << "onepiece-bench"
                                    << "ring --quick";
  }
  void Program_GetsEverythingButWhatNamesTheCluster() {
    QFETCH(QStringList, command_line);
    QFETCH(QString, program);
    QFETCH(QString, arguments);
    const StandIns programs;
    programs.Add(program, "echo \"$@\"; exit 42");
    const Outcome outcome =
        RunProgram(kOnepiece, command_line, 30, {{"ONEPIECE_BIN_DIR", programs.folder()}});
    QCOMPARE(QString::fromStdString(outcome.out), arguments + "\n");
    QCOMPARE(outcome.exit_code, 42);
  }

  // A signal to `onepiece` reaches the program, because it is the same process.
  void Program_IsTheSameProcess() {
    const StandIns programs;
    programs.Add("onepiece-simulate", "trap 'exit 7' TERM; echo $$; while :; do read _ || :; done");
    QProcess process;
    QProcessEnvironment environment = QProcessEnvironment::systemEnvironment();
    environment.insert("ONEPIECE_BIN_DIR", programs.folder());
    process.setProcessEnvironment(environment);
    process.start(kOnepiece, {"simulate"});
    QVERIFY(process.waitForReadyRead());
    QCOMPARE(process.readLine().trimmed().toLongLong(), process.processId());
    kill(static_cast<pid_t>(process.processId()), SIGTERM);
    process.closeWriteChannel();
    QVERIFY(process.waitForFinished());
    QCOMPARE(process.exitCode(), 7);
  }

  void Program_Missing_IsSaidClearly() {
    const StandIns none;
    const Outcome outcome = RunProgram(kOnepiece, {"bench", "ring", "--json"}, 30,
                                       {{"ONEPIECE_BIN_DIR", none.folder()}});
    QCOMPARE(outcome.exit_code, 4);
    QCOMPARE(outcome.ErrorReason(), std::string("NOT_INSTALLED"));
    QVERIFY(outcome.Says("onepiece-bench"));
    QVERIFY(outcome.Says("-DONEPIECE_TESTS=ON"));
  }
};

}  // namespace onepiece::cli

ONEPIECE_TEST(onepiece::cli::VerbsTest)
#include "verbs_test.moc"
