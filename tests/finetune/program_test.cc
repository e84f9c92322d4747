// Tests onepiece-finetune as idle work runs it: it is told to end, and killed at any moment.
#include "tests/program.h"

#include <QtTest>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "cluster/base/clock.h"
#include "tests/test_main.h"

namespace onepiece {
namespace {

using std::chrono::milliseconds;

constexpr int kSteps = 8;
constexpr int kPatienceMs = 60'000;

}  // namespace

class FinetuneProgramTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    program_ = qEnvironmentVariable("ONEPIECE_BIN_DIR") + "/onepiece-finetune";
  }

  void Run_KilledAtAnyMoment_GoesOnBitForBit() {
    const QTemporaryDir whole_dir, dir;
    const auto whole = testing::RunProgram(program_, Arguments(whole_dir), kPatienceMs / 1000);
    QVERIFY2(whole.exit_code == 0, whole.err.c_str());
    std::map<int, double> expected, losses;
    QVERIFY(Read(QByteArray::fromStdString(whole.out), expected));
    QCOMPARE(expected.size(), std::size_t{kSteps});
    // Each kill comes later after the first line, in the middle of steps and writes, until some
    // runs get through.
    int kills = 0;
    bool done = false;
    for (; !done && kills < 40; ++kills) {
      QProcess process;
      process.start(program_, Arguments(dir));
      QVERIFY(process.waitForReadyRead(kPatienceMs) || process.state() == QProcess::NotRunning);
      done = process.waitForFinished(2 * kills * kills);
      done = done || process.state() == QProcess::NotRunning;
      if (!done) {
        process.kill();
        QVERIFY(process.waitForFinished(kPatienceMs));
      }
      if (done) QCOMPARE(process.exitStatus(), QProcess::NormalExit);
      if (done) QCOMPARE(process.exitCode(), 0);
      QByteArray out = process.readAllStandardOutput();
      out.truncate(out.lastIndexOf('\n') + 1);
      QVERIFY(Read(out, losses));
    }
    QVERIFY(done);
    qInfo("done after %d kills", kills - 1);
    QVERIFY(losses == expected);
  }

  void Run_ToldToEnd_EndsAtOnceWithACheckpoint() {
    const QTemporaryDir dir;
    QStringList arguments = Arguments(dir);
    arguments.replace(arguments.indexOf("--checkpoint-every") + 1, "1000000");
    arguments.replace(arguments.indexOf("--steps") + 1, "0");
    QProcess process;
    process.start(program_, arguments);
    QVERIFY(process.waitForReadyRead(kPatienceMs));
    base::Clock& clock = base::SystemClock();
    const auto before = clock.Now();
    process.terminate();
    QVERIFY(process.waitForFinished(kPatienceMs));
    const auto took = std::chrono::duration_cast<milliseconds>(clock.Now() - before);
    qInfo("ended after %d ms", static_cast<int>(took.count()));
    QVERIFY(took < milliseconds(5000));
    if (process.exitStatus() == QProcess::NormalExit) {  // Else it took its 200 ms.
      QCOMPARE(QDir(dir.path()).entryList({"step-*"}, QDir::Dirs).size(), 1);
    }
  }

  void Run_SaysWhatIsWrong() {
    const QTemporaryDir dir;
    const auto outcome = testing::RunProgram(
        program_, {"--model", "/no/such/model", "--checkpoint", dir.path(), "--steps", "1"});
    QCOMPARE(outcome.exit_code, 1);
    QVERIFY2(outcome.err.find("/no/such/model") != std::string::npos, outcome.err.c_str());
  }

 private:
  static QStringList Arguments(const QTemporaryDir& dir) {
    return {"--model",
            ONEPIECE_SOURCE_DIR "/resources/models/tiny-wan-t2v",
            "--checkpoint",
            dir.path(),
            "--steps",
            QString::number(kSteps),
            "--seed",
            "1",
            "--checkpoint-every",
            "1",
            "--json"};
  }
  /// Collects steps and losses of JSON lines. A step that is known already must have the same loss.
  static bool Read(const QByteArray& out, std::map<int, double>& losses) {
    for (const QByteArray& line : out.split('\n')) {
      if (line.isEmpty()) continue;
      const auto json = nlohmann::json::parse(line.toStdString(), nullptr, false);
      if (!json.is_object() || !json.contains("step") || !json.contains("loss")) return false;
      const auto [at, added] = losses.emplace(json["step"].get<int>(), json["loss"].get<double>());
      if (!added && at->second != json["loss"].get<double>()) return false;
    }
    return true;
  }

  QString program_;
};

}  // namespace onepiece

ONEPIECE_TEST(onepiece::FinetuneProgramTest)
#include "program_test.moc"
