// Tests `onepiece record` and `onepiece show` from outside, against a cluster in this process.
#include <QTemporaryDir>
#include <QtTest>
#include <csignal>
#include <nlohmann/json.hpp>

#include "cluster/history/recording.h"
#include "tests/program.h"
#include "tests/session/fake_cluster.h"
#include "tests/test_main.h"

namespace onepiece::cli {
namespace {

using nlohmann::json;
using testing::Outcome;

const QString kProgram = ONEPIECE_BINARY_DIR "/bin/onepiece";

/// Returns the ticks of a recording that another process writes, or -1 while there is none.
std::int64_t Ticks(const QString& file) {
  const auto recording = history::Recording::Open(file.toStdString());
  if (!recording.ok()) return -1;
  const auto info = (*recording)->Info();
  return info.ok() ? info->ticks : -1;
}

}  // namespace

class RecordTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    folder_ = std::make_unique<QTemporaryDir>();
    file_ = folder_->filePath("a.onepiece");
    cluster_ = std::make_unique<testing::FakeCluster>();
    cluster_->SetUp(2);
    v1::Job job;
    job.set_uid("job-1");
    job.set_name("jobs/job-1");
    job.set_app_id("wan");
    job.set_state(v1::Job::RUNNING);
    cluster_->SetJob(job);
  }

  void Record_EndsInTime_AndShowSaysWhatThereWas() {
    Outcome outcome = Record({"--for", "3s", "--json"});
    QVERIFY2(outcome.exit_code == 0, outcome.err.c_str());
    const json recorded = outcome.Document();
    QVERIFY(recorded.value("ticks", 0) >= 2);
    QVERIFY(recorded.value("bytes", 0) > 0);
    QCOMPARE(QString::fromStdString(recorded.value("file", "")), file_);
    // There is one complete file.
    QCOMPARE(QDir(folder_->path()).entryList(QDir::Files), QStringList{"a.onepiece"});

    outcome = Show({"--json"});
    QVERIFY2(outcome.exit_code == 0, outcome.err.c_str());
    const json shown = outcome.Document();
    QCOMPARE(shown["at_unix_ms"], recorded["to_unix_ms"]);
    QCOMPARE(shown["cluster_id"], recorded["cluster_id"]);
    QStringList nodes;
    for (const json& node : shown["nodes"])
      nodes << QString::fromStdString(node.value("node_id", "") + " " + node.value("state", ""));
    QVERIFY(nodes.contains("instance-1 READY"));
    QVERIFY(nodes.contains("instance-2 READY"));
    QCOMPARE(shown["jobs"], json({{"UNKNOWN_AT_END", 1}}));  // The job had not ended.
    const QString before = QString::number(recorded.value("to_unix_ms", std::int64_t{0}) - 1);
    QCOMPARE(Show({"--at", before, "--json"}).Document()["jobs"], json({{"RUNNING", 1}}));
    QVERIFY(Show({}).Says("instance-1"));
    QVERIFY(Show({"--info"}).Says("ticks"));
    QCOMPARE(Show({"--info", "--json"}).Document()["ticks"], recorded["ticks"]);
    QCOMPARE(Show({"--info", "--json"}).Document()["live"], json(false));

    const QString part = folder_->filePath("part");
    outcome = Show({"--export", part, "--to=-1s", "--json"});
    QVERIFY2(outcome.exit_code == 0, outcome.err.c_str());
    QVERIFY(outcome.Document().value("ticks", 0) < recorded.value("ticks", 0));
    QVERIFY(outcome.Document().value("ticks", 0) > 0);
    QCOMPARE(Show({"--export", part, "--json"}).ErrorReason(), std::string("FILE_EXISTS"));
  }

  // Ctrl-C and kill end the recording in an orderly way, and it can be continued.
  void Record_IsEndedBySignals() {
    for (const int signal : {SIGTERM, SIGINT}) {
      QProcess process;
      process.start(kProgram, RecordArguments({"--json"}));
      QVERIFY(process.waitForStarted());
      QTRY_VERIFY_WITH_TIMEOUT(Ticks(file_) >= (signal == SIGTERM ? 1 : 4), 30'000);
      kill(static_cast<pid_t>(process.processId()), signal);
      QVERIFY(process.waitForFinished());
      QCOMPARE(process.exitStatus(), QProcess::NormalExit);
      QCOMPARE(process.exitCode(), 0);
      QCOMPARE(QDir(folder_->path()).entryList(QDir::Files), QStringList{"a.onepiece"});
      QVERIFY(json::parse(process.readAllStandardOutput().toStdString(), nullptr, false)
                  .value("ticks", 0) > 0);
    }
    const json gaps = Show({"--info", "--json"}).Document()["gaps"];
    QVERIFY(!gaps.empty());
    QCOMPARE(gaps[0]["reason"], json("recorder closed"));
  }

  void Record_SaysWhyItCannot() {
    QCOMPARE(Record({"--for", "soon", "--json"}).ErrorReason(), std::string("USAGE"));
    QCOMPARE(Record({"--for", "-3s", "--json"}).exit_code, 2);
    QCOMPARE(Record({"--for", "1s"}).exit_code, 0);
    cluster_->SetClusterId("marines");
    Outcome outcome = Record({"--json"});  // It ends by itself without --for.
    QCOMPARE(outcome.ErrorReason(), std::string("OTHER_CLUSTER"));
    cluster_->Stop();
    file_ = folder_->filePath("b.onepiece");
    outcome = Record({"--for", "1s", "--json"});
    QCOMPARE(outcome.ErrorReason(), std::string("NOTHING_RECORDED"));
    QCOMPARE(outcome.exit_code, 69);
    file_ = folder_->filePath("no/such/folder");
    QCOMPARE(Record({"--json"}).ErrorReason(), std::string("NO_FILE"));
  }

  void Show_SaysWhyItCannot() {
    QCOMPARE(Show({"--json"}).ErrorReason(), std::string("NO_FILE"));
    QCOMPARE(Show({"--json"}).exit_code, 3);
    QFile foreign(file_);
    QVERIFY(foreign.open(QIODevice::WriteOnly));
    foreign.write("dear diary");
    foreign.close();
    QCOMPARE(Show({"--json"}).ErrorReason(), std::string("FOREIGN_FILE"));
    QCOMPARE(Show({"--at", "11:58", "--info"}).exit_code, 2);
    file_ = folder_->filePath("c.onepiece");
    QCOMPARE(Record({"--for", "1s"}).exit_code, 0);
    for (const char* time : {"yesterday", "25:00", "-", "99999999999999999999", "-5x"})
      QCOMPARE(Show({QString("--at=") + time, "--json"}).ErrorReason(), std::string("USAGE"));
    const Outcome outcome = Show({"--at", "2020-01-01 10:00", "--json"});
    QCOMPARE(outcome.ErrorReason(), std::string("NOT_RECORDED"));
    QCOMPARE(outcome.exit_code, 3);
  }

 private:
  QStringList RecordArguments(const QStringList& more) const {
    return QStringList{"record", "--nodemanager", QString::fromStdString(cluster_->address()),
                       "--out", file_} +
           more;
  }
  Outcome Record(const QStringList& more) const {
    return testing::RunProgram(kProgram, RecordArguments(more), 60);
  }
  Outcome Show(const QStringList& more) const {
    return testing::RunProgram(kProgram, QStringList{"show", "--file", file_} + more);
  }

  std::unique_ptr<QTemporaryDir> folder_;
  QString file_;
  std::unique_ptr<testing::FakeCluster> cluster_;
};

}  // namespace onepiece::cli

ONEPIECE_TEST(onepiece::cli::RecordTest)
#include "record_test.moc"
