// What a recording gives back, and what it does with files and clocks that are not as they should
// be.
#include "gui/history/recording.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <QTemporaryDir>
#include <QtTest>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "cluster/base/status.h"
#include "gui/history/pieces.h"
#include "gui/history/recorder.h"
#include "tests/gui/history/snapshots.h"

namespace onepiece::gui::history {
namespace {

namespace fs = std::filesystem;

QString Reason(const absl::Status& status) {
  return QString::fromStdString(base::GetReason(status).reason);
}

void Sql(const std::string& path, const std::string& sql) {
  sqlite3* file = nullptr;
  QCOMPARE(sqlite3_open(path.c_str(), &file), SQLITE_OK);
  QCOMPARE(sqlite3_exec(file, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(file);
}

int CountRows(const std::string& path, const std::string& table) {
  sqlite3* file = nullptr;
  sqlite3_stmt* count = nullptr;
  int rows = -1;
  if (sqlite3_open(path.c_str(), &file) == SQLITE_OK &&
      sqlite3_prepare_v2(file, ("SELECT count(*) FROM " + table).c_str(), -1, &count, nullptr) ==
          SQLITE_OK &&
      sqlite3_step(count) == SQLITE_ROW)
    rows = sqlite3_column_int(count, 0);
  sqlite3_finalize(count);
  sqlite3_close(file);
  return rows;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
}

template <typename T>
std::string Age(const Part<T>& part) {
  return std::to_string(part.as_of_ms) + part.error + (part.value ? "" : "null");
}

/// Everything that a snapshot says, as text; what a recording leaves out is left out.
std::string Describe(const Snapshot& s) {
  std::string text = std::to_string(s.at_ms);
  for (const std::string& age :
       {Age(s.cluster), Age(s.elasticity), Age(s.rings), Age(s.jobs), Age(s.databases),
        Age(s.replicas), Age(s.audit), Age(s.plans), Age(s.alerts)})
    text += "\n" + age;
  if (s.cluster.value) text += "\n" + s.cluster.value->DebugString();
  if (s.elasticity.value) text += "\n" + s.elasticity.value->DebugString();
  if (s.plans.value) text += "\n" + s.plans.value->DebugString();
  const auto number = [](double value) { return std::to_string(value) + " "; };
  for (const RingEntry& ring : s.rings.value ? *s.rings.value : Rings()) {
    text += "\n" + ring.node_id + std::to_string(ring.incarnation) + ring.error +
            std::to_string(ring.as_of_ms) + ring.health.DebugString();
    if (ring.rates) text += number(ring.rates->messages_per_s) + number(ring.rates->bytes_per_s);
  }
  for (const JobEntry& job : s.jobs.value ? s.jobs.value->jobs : std::vector<JobEntry>())
    text += "\n" + job.job->DebugString() + std::to_string(static_cast<int>(job.certainty));
  if (s.jobs.value) text += s.jobs.value->truncated ? "truncated" : "all";
  for (const DatabaseEntry& database : s.databases.value ? *s.databases.value : Databases())
    text += "\n" + database.database.DebugString() + database.error;
  for (const ReplicaEntry& replica : s.replicas.value ? *s.replicas.value : Replicas())
    text += "\n" + replica.name + replica.address + replica.error +
            (replica.status ? replica.status->DebugString() : "silent");
  for (const auto& entry : s.audit.value ? *s.audit.value : Audit()) text += entry.DebugString();
  for (const Alert& alert : s.alerts.value ? *s.alerts.value : Alerts())
    text += "\n" + alert.id + alert.entity + alert.text + number(alert.value.value_or(-1)) +
            number(alert.threshold.value_or(-1)) + std::to_string(alert.since_ms) +
            std::to_string(static_cast<int>(alert.state));
  return text;
}

}  // namespace

class RecordingTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    folder_ = std::make_unique<QTemporaryDir>();
    path_ = folder_->filePath("a.onepiece").toStdString();
  }

  void EveryTick_ComesBackAsItWas() {
    std::vector<Snapshot> live;
    {
      auto recorder = Open();
      for (int tick = 0; tick < 200; ++tick) {
        Snapshot snapshot = SnapshotAt(tick, tick < 90 ? 3 : 4);  // A node joins.
        if (tick > 140) {  // A job ends, another has come, and the oldest is forgotten.
          JobList jobs;
          jobs.jobs.push_back({JobAt(7, v1::Job::RUNNING, 1), Certainty::kKnown});
          jobs.jobs.push_back({JobAt(1, v1::Job::FAILED, 50), Certainty::kKnown});
          snapshot.jobs = PartOf(jobs, snapshot.at_ms);
        }
        if (tick == 150) snapshot.plans = {nullptr, 0, "no leader"};
        QVERIFY(recorder->Record(snapshot, kLiveLink).ok());
        live.push_back(snapshot);
      }
      // While it is being written.
      auto reader = Recording::Open(path_);
      QVERIFY(reader.ok());
      for (const int tick : {0, 59, 60, 61, 150, 199, 90, 89, 141, 3}) {
        const auto past = (*reader)->At(live[static_cast<std::size_t>(tick)].at_ms + 400);
        QVERIFY2(past.ok(), base::Message(past.status()).c_str());
        QVERIFY((*past)->recorded);
        QCOMPARE(QString::fromStdString(Describe(**past)),
                 QString::fromStdString(Describe(live[static_cast<std::size_t>(tick)])));
      }
      QVERIFY((*reader)->Info()->live);
      QVERIFY(recorder->Record(SnapshotAt(200), kLiveLink).ok());
      QCOMPARE((*reader)->Info()->ticks, 201);
      QCOMPARE((*reader)->At(kStart + 999'999)->get()->at_ms, kStart + 200'000);
    }
    QVERIFY(!fs::exists(path_ + "-wal"));
    QVERIFY(!fs::exists(path_ + ".lock"));
    auto reader = Recording::Open(path_);
    const auto info = (*reader)->Info();
    QVERIFY(!info->live);
    QCOMPARE(QString::fromStdString(info->cluster_id), QString("pirates"));
    QCOMPARE(info->interval.from_ms, kStart);
    QCOMPARE(info->interval.to_ms, kStart + 200'000);
    for (std::size_t tick = 0; tick < live.size(); ++tick)
      QCOMPARE(Describe(**(*reader)->At(live[tick].at_ms)), Describe(live[tick]));
    QCOMPARE(Reason((*reader)->At(kStart - 1).status()), QString("NOT_RECORDED"));
  }

  // C17: a job that nobody saw ending is not running for ever.
  void JobsAtTheEnd_AreUnknown() {
    RecordTicks(0, 5);
    auto reader = Recording::Open(path_);
    const auto last = *(*reader)->At(kStart + 4'000);
    QCOMPARE(last->jobs.value->jobs[0].certainty, Certainty::kUnknownAtEnd);
    QCOMPARE(last->jobs.value->jobs[1].certainty, Certainty::kUnknownAtEnd);
    QCOMPARE(last->jobs.value->jobs[2].certainty, Certainty::kKnown);  // Has ended.
    QCOMPARE((*(*reader)->At(kStart + 3'999))->jobs.value->jobs[1].certainty, Certainty::kKnown);
  }

  void Integers_ThatADoubleCannotHold_StayWhole() {
    Snapshot snapshot = SnapshotAt(0);
    v1::Cluster cluster = *snapshot.cluster.value;
    cluster.mutable_nodes(0)->mutable_load()->mutable_stages(0)->set_jobs(0xffff'ffff'ffff'ffff);
    cluster.mutable_nodes(1)->mutable_load()->set_utilization(std::nan(""));
    snapshot.cluster = PartOf(cluster, 1);
    {
      auto recorder = Open();
      QVERIFY(recorder->Record(SnapshotAt(-1), kLiveLink).ok());
      QVERIFY(recorder->Record(snapshot, kLiveLink).ok());
      QVERIFY(recorder->Record(SnapshotAt(1), kLiveLink).ok());
    }
    auto reader = Recording::Open(path_);
    QCOMPARE(Describe(**(*reader)->At(kStart)), Describe(snapshot));
  }

  void Series_HaveNamesUnitsAndBuckets() {
    RecordTicks(0, 1500);
    auto reader = Recording::Open(path_);
    std::map<std::string, std::string> units;
    const auto series = (*reader)->ListSeries();
    for (const SeriesInfo& info : *series) units[info.name] = info.unit;
    QCOMPARE(QString::fromStdString(units["node/instance-1/utilization"]), QString("ratio"));
    QCOMPARE(QString::fromStdString(units["ring/instance-2/used_slots"]), QString("1"));
    QCOMPARE(QString::fromStdString(units["ring/instance-2/bytes_per_s"]), QString("bytes/s"));
    QCOMPARE(QString::fromStdString(units["pool/default/diffusion/wan/tiny/utilization"]),
             QString("ratio"));
    QCOMPARE(QString::fromStdString(units["node/instance-0/devices/cuda:0/temperature_c"]),
             QString("celsius"));
    QVERIFY(units.contains("node/instance-0/stages/wan/diffusion/compute_buckets/20"));
    QVERIFY(units.contains("jobs/running"));
    // utilization is 0.5 + 0.001 tick: raw, by windows of 10 s, of 60 s and of 600 s; of the first
    // 20 minutes, and up to where the windows have not ended.
    for (const auto& [seconds, points] :
         {std::pair(1200, 1200), {1200, 120}, {1200, 20}, {1200, 2}, {1500, 150}, {1500, 25}}) {
      const Interval interval{kStart, kStart + std::int64_t{1000} * seconds};
      const auto got = (*reader)->Series("node/instance-0/utilization", interval, points);
      QVERIFY(got.ok());
      QCOMPARE(got->size(), static_cast<std::size_t>(points));
      const int each = seconds / points;
      for (int i = 0; i < points; ++i) {
        const SeriesPoint& point = (*got)[static_cast<std::size_t>(i)];
        QCOMPARE(point.at_ms, kStart + std::int64_t{1000} * each * i);
        QVERIFY(std::abs(point.min - (0.5 + 0.001 * each * i)) < 1e-9);
        QVERIFY(std::abs(point.max - (0.5 + 0.001 * (each * i + each - 1))) < 1e-9);
        QVERIFY(std::abs(point.mean - (0.5 + 0.001 * (each * i + 0.5 * (each - 1)))) < 1e-9);
      }
    }
    const auto temperature = (*reader)->Series("node/instance-0/devices/cuda:0/temperature_c",
                                               {kStart, kStart + 6'000}, 6);
    QVERIFY(std::isnan((*temperature)[0].mean));
    QCOMPARE((*temperature)[1].mean, 41.0);
    QCOMPARE(Reason((*reader)->Series("node/nobody/x", {0, 1}, 1).status()), QString("NO_SERIES"));
    QCOMPARE(Reason((*reader)->Series("jobs/running", {5, 5}, 1).status()),
             QString("BAD_INTERVAL"));
  }

  void LostConnection_IsAGapWithMarks() {
    {
      auto recorder = Open();
      QVERIFY(recorder->Record(SnapshotAt(0), LinkOf(Link::kConnecting)).ok());
      for (int tick = 1; tick < 20; ++tick) {
        const bool lost = tick >= 10 && tick < 13;
        QVERIFY(recorder
                    ->Record(SnapshotAt(tick),
                             lost ? LinkOf(Link::kReconnecting, "reset by peer") : kLiveLink)
                    .ok());
      }
      QVERIFY(recorder->Record(SnapshotAt(200), kLiveLink).ok());  // The computer slept.
    }
    {
      auto recorder = Open();  // Which hears nothing at first.
      QVERIFY(recorder->Record(SnapshotAt(299), LinkOf(Link::kConnecting)).ok());
      QVERIFY(recorder->Record(SnapshotAt(300), kLiveLink).ok());
    }
    auto reader = Recording::Open(path_);
    const auto gaps = *(*reader)->Gaps({0, kStart * 2});
    QCOMPARE(gaps.size(), std::size_t{3});
    QCOMPARE(QString::fromStdString(gaps[0].reason), QString("connection lost: reset by peer"));
    QCOMPARE(gaps[0].interval.from_ms, kStart + 9'000);
    QCOMPARE(gaps[0].interval.to_ms, kStart + 13'000);
    QVERIFY(absl::StrContains(gaps[1].reason, "slept"));
    QCOMPARE(QString::fromStdString(gaps[2].reason), QString("recorder closed"));
    const auto in_gap = (*reader)->At(kStart + 11'000);
    QCOMPARE(Reason(in_gap.status()), QString("NOT_RECORDED"));
    QVERIFY(absl::StrContains(base::Message(in_gap.status()), "reset by peer"));
    QVERIFY((*reader)->At(kStart + 9'000).ok());
    QVERIFY((*reader)->At(kStart + 13'000).ok());
    QCOMPARE((*reader)->Gaps({kStart, kStart + 9'000})->size(), std::size_t{0});
    const auto marks = *(*reader)->Marks({0, kStart * 2});
    QCOMPARE(marks.size(), std::size_t{2});
    QCOMPARE(marks[0].kind, Mark::Kind::kConnection);
    QCOMPARE(marks[1].at_ms, kStart + 13'000);
  }

  void ClockSetBack_GoesOnFromThere() {
    {
      auto recorder = Open();
      for (const int tick : {100, 101, 40, 41, 41, 42, 103})
        QVERIFY(recorder->Record(SnapshotAt(tick), kLiveLink).ok());
      QCOMPARE(Reason(recorder->Record(Snapshot(), kLiveLink)), QString("NOT_LIVE"));
    }
    auto reader = Recording::Open(path_);
    QCOMPARE((*reader)->Info()->ticks, 6);  // One was nothing new.
    QCOMPARE((*reader)->At(kStart + 101'001)->get()->replicas.value->at(0).status->applied(), 140u);
    QCOMPARE((*reader)->At(kStart + 103'001)->get()->replicas.value->at(0).status->applied(), 142u);
    QCOMPARE((*reader)->At(kStart + 103'002)->get()->replicas.value->at(0).status->applied(), 203u);
    const auto gaps = *(*reader)->Gaps({0, kStart * 2});
    QCOMPARE(gaps.size(), std::size_t{2});
    QVERIFY(absl::StrContains(gaps[0].reason, "clock set back by 62 s"));
    QVERIFY(absl::StrContains(gaps[1].reason, "set right"));
  }

  void Events_AreMarks() {
    {
      auto recorder = Open();
      Snapshot one = SnapshotAt(0), two = SnapshotAt(1);
      QVERIFY(recorder->Record(one, kLiveLink).ok());
      v1::Cluster cluster = ClusterAt(4, 1);
      cluster.mutable_nodes(0)->set_state(v1::Node::DEAD);
      cluster.mutable_nodes(1)->mutable_placement()->set_pool("vae/wan/tiny");
      two.cluster = PartOf(cluster, 1);
      v1::ListPlansResponse plans = *one.plans.value;
      plans.mutable_plans(0)->set_state(v1::Plan::DONE);
      two.plans = PartOf(plans, 1);
      two.alerts = PartOf(Alerts{}, 1);
      JobList jobs = *one.jobs.value;
      jobs.jobs[1].job = JobAt(1, v1::Job::FAILED);
      jobs.jobs.push_back({JobAt(-900, v1::Job::FAILED), Certainty::kKnown});  // Long ago.
      two.jobs = PartOf(jobs, 1);
      QVERIFY(recorder->Record(two, kLiveLink).ok());
      QVERIFY(recorder->Bookmark(two.at_ms + 5, "here it began").ok());
    }
    auto reader = Recording::Open(path_);
    QStringList texts;
    const auto marks = *(*reader)->Marks({0, kStart * 2});
    for (const Mark& mark : marks) {
      texts << QString::number(static_cast<int>(mark.kind)) + " " +
                   QString::fromStdString(mark.entity + ": " + mark.text);
    }
    QCOMPARE(
        texts,
        (QStringList{"0 node/instance-0: instance-0 died",
                     "0 node/instance-1: instance-1 goes to vae/wan/tiny",
                     "0 node/instance-3: instance-3 joined", "1 plan/7f01: plan 7f01 is done",
                     "3 job/job-1001: job job-1001 of wan failed:  ", "4 cluster: here it began"}));
    const auto newest = *(*reader)->Marks({0, kStart * 2}, 2);
    QCOMPARE(newest.size(), std::size_t{2});
    QCOMPARE(newest[1].kind, Mark::Kind::kBookmark);
  }

  void TooMuch_TheOldestGoes() {
    Limits limits;
    limits.max_bytes = 600'000;
    std::int64_t largest = 0;
    {
      auto recorder = Open(limits);
      for (int tick = 0; tick < 3000; ++tick) {
        QVERIFY(recorder->Record(SnapshotAt(tick), kLiveLink).ok());
        largest = std::max(largest, static_cast<std::int64_t>(fs::file_size(path_)));
      }
    }
    QVERIFY2(largest <= 700'000, qPrintable(QString::number(largest)));
    auto reader = Recording::Open(path_);
    const auto info = (*reader)->Info();
    QCOMPARE(info->interval.to_ms, kStart + 2'999'000);
    QVERIFY(info->interval.from_ms > kStart + 600'000);
    QVERIFY(info->interval.from_ms < kStart + 2'900'000);
    QCOMPARE(info->ticks, (info->interval.to_ms - info->interval.from_ms) / 1000 + 1);
    QVERIFY((*reader)->At(info->interval.from_ms).ok());
    QCOMPARE(Reason((*reader)->At(info->interval.from_ms - 1).status()), QString("NOT_RECORDED"));
  }

  void TooOld_Goes_WithTheSeriesOfWhatIsGone() {
    Limits limits;
    limits.max_age_ms = 300'000;
    {
      auto recorder = Open(limits);
      for (int tick = 0; tick < 700; ++tick)
        QVERIFY(recorder->Record(SnapshotAt(tick, tick < 100 ? 4 : 3), kLiveLink).ok());
    }
    auto reader = Recording::Open(path_);
    const auto info = (*reader)->Info();
    QVERIFY(info->interval.from_ms >= kStart + 330'000);
    QVERIFY(info->interval.from_ms <= kStart + 400'000);
    const auto series = (*reader)->ListSeries();
    for (const SeriesInfo& info_of : *series)
      QVERIFY2(!absl::StrContains(info_of.name, "instance-3"), info_of.name.c_str());
    QCOMPARE(Describe(**(*reader)->At(kStart + 450'000)), Describe(SnapshotAt(450)));
  }

  void LowDisk_WritesNothing_AndNotesTheGap() {
    Limits limits;
    limits.keep_free_bytes = std::int64_t{1} << 60;
    RecordTicks(0, 2);
    {
      auto recorder = Open(limits);
      const std::string before = ReadFile(path_);
      QCOMPARE(Reason(recorder->Record(SnapshotAt(2), kLiveLink)), QString("DISK_LOW"));
      QCOMPARE(ReadFile(path_), before);
    }
    auto reader = Recording::Open(path_);
    QCOMPARE((*reader)->Info()->ticks, 2);
  }

  void LongNames_AndOddOnes_ComeBack() {
    Snapshot snapshot = SnapshotAt(0);
    v1::Cluster cluster = *snapshot.cluster.value;
    const std::string names[] = {std::string(10'000, 'n'), "a/b#2", "", "\xE2\x98\xA0 '; DROP"};
    for (const std::string& name : names) {
      *cluster.add_nodes() = InstanceAt(1, 5);
      cluster.mutable_nodes(cluster.nodes_size() - 1)->set_node_id(name);
    }
    // Two entries that nothing tells apart.
    auto& stages = *cluster.mutable_nodes(0)->mutable_load()->mutable_stages();
    stages[1].set_stage(stages[0].stage());
    stages[1].set_jobs(4711);
    snapshot.cluster = PartOf(cluster, 1);
    {
      auto recorder = Open();
      QVERIFY(recorder->Record(snapshot, kLiveLink).ok());
      QVERIFY(recorder->Bookmark(1, std::string(1 << 20, '\xff')).ok());
    }
    auto reader = Recording::Open(path_);
    const auto past = (*reader)->At(snapshot.at_ms);
    QVERIFY(past.ok());
    QCOMPARE((*past)->cluster.value->DebugString(), cluster.DebugString());
    QVERIFY(!(*reader)->Marks({0, kStart})->empty());
  }

  void ManyJobs_ActiveOnesFirst() {
    Snapshot snapshot = SnapshotAt(0);
    JobList jobs;
    for (int i = 3000; i-- > 0;)
      jobs.jobs.push_back({JobAt(i, i == 0 ? v1::Job::RUNNING : v1::Job::SUCCEEDED)});
    snapshot.jobs = PartOf(jobs, 1);
    {
      auto recorder = Open();
      QVERIFY(recorder->Record(snapshot, kLiveLink).ok());
      QVERIFY(recorder->Record(SnapshotAt(1), kLiveLink).ok());
    }
    auto reader = Recording::Open(path_);
    const auto past = *(*reader)->At(kStart);
    QCOMPARE(past->jobs.value->jobs.size(), kMaxEndedJobs + 1);
    QVERIFY(past->jobs.value->truncated);
    QCOMPARE(past->jobs.value->jobs.back().job->state(), v1::Job::RUNNING);
    QCOMPARE((*(*reader)->At(kStart + 1000))->jobs.value->jobs.size(), std::size_t{3});
  }

  void SessionWithoutData_RecordsNothing() {
    {
      auto recorder = Open();
      Snapshot nothing;
      nothing.at_ms = kStart;
      QVERIFY(recorder->Record(nothing, kLiveLink).ok());
    }
    auto reader = Recording::Open(path_);
    QVERIFY(reader.ok());
    QCOMPARE((*reader)->Info()->ticks, 0);
    QCOMPARE(Reason((*reader)->At(kStart).status()), QString("NOT_RECORDED"));
    QCOMPARE((*reader)->ListSeries()->size(), std::size_t{0});
    QCOMPARE(Reason((*reader)->Export({0, kStart}, path_ + "2")), QString("NOT_RECORDED"));
  }

  void OtherCluster_AndSecondRecorder_AreRefused() {
    auto recorder = Open();
    QVERIFY(recorder->Record(SnapshotAt(0), kLiveLink).ok());
    QCOMPARE(Reason(Recorder::Open(path_).status()), QString("IN_USE"));
    Snapshot other = SnapshotAt(1);
    v1::Cluster cluster = *other.cluster.value;
    cluster.set_cluster_id("marines");
    other.cluster = PartOf(cluster, 1);
    QCOMPARE(Reason(recorder->Record(other, kLiveLink)), QString("OTHER_CLUSTER"));
    recorder.reset();
    recorder = Open();
    QCOMPARE(Reason(recorder->Record(other, kLiveLink)), QString("OTHER_CLUSTER"));
    QVERIFY(recorder->Record(SnapshotAt(2), kLiveLink).ok());
  }

  void FilesThatAreNotOurs_AreLeftAlone_data() {
    QTest::addColumn<QByteArray>("bytes");
    QTest::addColumn<QString>("sql");
    QTest::addColumn<QString>("reason");
    QTest::newRow("text") << QByteArray("dear diary, ").repeated(100) << ""
                          << "FOREIGN_FILE";
    QTest::newRow("one byte") << QByteArray("x") << ""
                              << "FOREIGN_FILE";
    QTest::newRow("zeros") << QByteArray(100'000, '\0') << ""
                           << "FOREIGN_FILE";
    QTest::newRow("the beginning of a database") << QByteArray("SQLite format 3\0", 16) << ""
                                                 << "FOREIGN_FILE";
    QTest::newRow("another database") << QByteArray() << "CREATE TABLE photos (id INTEGER)"
                                      << "FOREIGN_FILE";
    QTest::newRow("of a newer program")
        << QByteArray()
        << "PRAGMA application_id=1330655555; PRAGMA user_version=2; CREATE TABLE t (x)"
        << "NEWER_FORMAT";
  }
  void FilesThatAreNotOurs_AreLeftAlone() {
    QFETCH(const QByteArray, bytes);
    QFETCH(const QString, sql);
    QFETCH(const QString, reason);
    WriteFile(path_, bytes.toStdString());
    if (!sql.isEmpty()) Sql(path_, sql.toStdString());
    const std::string before = ReadFile(path_);
    QCOMPARE(Reason(Recording::Open(path_).status()), reason);
    QCOMPARE(Reason(Recorder::Open(path_).status()), reason);
    QCOMPARE(ReadFile(path_), before);
    QCOMPARE(QDir(folder_->path()).entryList(QDir::Files), QStringList{"a.onepiece"});
  }

  void NoFile_AndFolders_AreRefused() {
    QCOMPARE(Reason(Recording::Open(path_).status()), QString("NO_FILE"));
    QVERIFY(!fs::exists(path_));
    QCOMPARE(Reason(Recorder::Open(path_ + "/deeper/b").status()), QString("NO_FILE"));
    QCOMPARE(Reason(Recording::Open(folder_->path().toStdString()).status()),
             QString("FOREIGN_FILE"));
    WriteFile(path_, "");
    QCOMPARE(Reason(Recording::Open(path_).status()), QString("FOREIGN_FILE"));
    QVERIFY(Recorder::Open(path_).ok());  // Nothing is lost.
  }

  void FileThatWeMayNotWrite_IsReadWithoutATrace() {
    RecordTicks(0, 3);
    const std::string before = ReadFile(path_);
    chmod(path_.c_str(), 0400);
    chmod(folder_->path().toLocal8Bit(), 0500);
    auto reader = Recording::Open(path_);
    QVERIFY(reader.ok());
    QVERIFY((*reader)->At(kStart + 1000).ok());
    chmod(folder_->path().toLocal8Bit(), 0700);
    QCOMPARE(QDir(folder_->path()).entryList(QDir::Files), QStringList{"a.onepiece"});
    QCOMPARE(ReadFile(path_), before);
  }

  void CutOffFile_SaysWhatIsLeft_AndIsMovedAside() {
    RecordTicks(0, 400);
    const std::string whole = ReadFile(path_);
    for (const double share : {0.99, 0.6, 0.2}) {
      const std::string cut =
          whole.substr(0, static_cast<std::size_t>(share * static_cast<double>(whole.size())));
      WriteFile(path_, cut);
      const absl::Status read = Recording::Open(path_).status();
      QCOMPARE(Reason(read), QString("DAMAGED"));
      QVERIFY2(absl::StrContains(base::Message(read), "read"), base::Message(read).c_str());
      QCOMPARE(ReadFile(path_), cut);
    }
    const absl::Status moved = Recorder::Open(path_).status();
    QCOMPARE(Reason(moved), QString("DAMAGED"));
    QVERIFY(!fs::exists(path_));
    const QStringList files = QDir(folder_->path()).entryList(QDir::Files);
    QCOMPARE(files.size(), 1);
    QVERIFY(files[0].startsWith("a.onepiece.damaged-"));
    QVERIFY(absl::StrContains(base::Message(moved), files[0].toStdString()));
    RecordTicks(0, 1);
  }

  // Whatever byte changes: an error that says so, or what was recorded.
  void ChangedBytes_AreFoundOrHarmless() {
    RecordTicks(0, 30);
    const std::string good = ReadFile(path_);
    std::vector<std::string> expected;
    {
      auto reader = Recording::Open(path_);
      for (int tick = 0; tick < 30; ++tick)
        expected.push_back(Describe(**(*reader)->At(kStart + 1000 * tick)));
    }
    int found = 0, harmless = 0, other = 0;
    for (std::size_t at = 100; at < good.size(); at += 211) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x40);
      WriteFile(path_, bad);
      const auto reader = Recording::Open(path_);
      bool error = !reader.ok();
      for (int tick = 0; tick < 30 && !error; tick += 7) {
        const auto past = (*reader)->At(kStart + 1000 * tick);
        error = !past.ok();
        if (error) continue;
        // SQLite may lose a row of a page whose header has changed, without a word.
        if (Describe(**past) != expected[static_cast<std::size_t>(tick)]) ++other;
      }
      ++(error ? found : harmless);
    }
    qInfo("%d found, %d harmless, %d ticks read otherwise", found, harmless, other);
    QVERIFY(found > 20);
    QCOMPARE(other, 0);
  }

  // What SQLite loses without a word, one row at a time: an error that says when, or what was
  // there.
  void LostRows_AreFound_data() {
    QTest::addColumn<QString>("table_name");
    for (const char* table : {"frame", "change", "keyframe", "layout", "gap"})
      QTest::newRow(table) << table;
  }
  void LostRows_AreFound() {
    QFETCH(const QString, table_name);
    const std::string table = table_name.toStdString();
    RecordTicks(0, 30);
    RecordTicks(40, 70);
    const std::string good = ReadFile(path_);
    std::vector<std::string> expected;  // Empty in the gap.
    {
      auto reader = Recording::Open(path_);
      for (int tick = 0; tick < 70; ++tick) {
        const auto past = (*reader)->At(kStart + 1000 * tick);
        expected.push_back(past.ok() ? Describe(**past) : "");
        QCOMPARE(past.ok(), tick < 30 || tick >= 40);
      }
    }
    const int rows = CountRows(path_, table);
    QVERIFY(rows > 0);
    for (int row = 0; row < rows; ++row) {
      WriteFile(path_, good);
      Sql(path_, "DELETE FROM " + table + " WHERE rowid = (SELECT rowid FROM " + table +
                     " ORDER BY rowid LIMIT 1 OFFSET " + std::to_string(row) + ")");
      auto reader = Recording::Open(path_);
      int found = reader.ok() ? 0 : 1;
      for (int tick = 0; tick < 70 && reader.ok(); ++tick) {
        const auto past = (*reader)->At(kStart + 1000 * tick);
        const std::string& was = expected[static_cast<std::size_t>(tick)];
        if (Reason(past.status()) == "DAMAGED") {
          ++found;
          QVERIFY(absl::StrContains(base::Message(past.status()), "2027-"));  // kStart's year.
        } else {
          QCOMPARE(past.ok() ? Describe(**past) : "", was);
        }
      }
      QVERIFY2(found > 0, qPrintable(QString("row %1").arg(row)));
    }
  }

  void WrongRows_AreNamed() {
    RecordTicks(0, 100);
    Sql(path_,
        "UPDATE frame SET numbers = (SELECT numbers FROM frame WHERE t_ms = 1800000012000) "
        "WHERE t_ms = 1800000011000; UPDATE keyframe SET shape = zeroblob(50000000) WHERE "
        "t_ms > 1800000000000; DELETE FROM layout WHERE t_ms > 1800000030000");
    auto reader = Recording::Open(path_);
    QVERIFY(reader.ok());
    QVERIFY((*reader)->At(kStart + 10'000).ok());
    QCOMPARE(Reason((*reader)->At(kStart + 11'000).status()), QString("DAMAGED"));
    QVERIFY((*reader)->At(kStart + 12'000).ok());
    QCOMPARE(Reason((*reader)->At(kStart + 70'000).status()), QString("DAMAGED"));
    QVERIFY((*reader)->At(kStart + 13'000).ok());
  }

  void Export_IsARecordingOfThePart() {
    RecordTicks(0, 300);
    const std::string copy = path_ + ".part";
    auto reader = Recording::Open(path_);
    QVERIFY((*reader)->Export({kStart + 100'000, kStart + 200'000}, copy).ok());
    QCOMPARE(Reason((*reader)->Export({kStart, kStart + 1}, copy)), QString("FILE_EXISTS"));
    QCOMPARE(Reason((*reader)->Export({kStart, kStart + 1}, path_ + ".no/b")), QString("NO_FILE"));
    QCOMPARE(Reason((*reader)->Export({kStart + 400'000, kStart + 500'000}, copy + "2")),
             QString("NOT_RECORDED"));
    std::vector<double> shares;
    QVERIFY((*reader)
                ->Export({kStart, kStart + 299'000}, copy + "3",
                         [&](double share) {
                           shares.push_back(share);
                           return true;
                         })
                .ok());
    QVERIFY(shares.size() >= 3 && std::ranges::is_sorted(shares));
    QVERIFY(shares.front() >= 0 && shares.back() <= 1);
    QVERIFY(fs::remove(copy + "3"));
    QCOMPARE(Reason((*reader)->Export({kStart, kStart + 299'000}, copy + "3",
                                      [](double) { return false; })),
             QString("STOPPED"));
    auto part = Recording::Open(copy);
    QVERIFY(part.ok());
    const auto info = (*part)->Info();
    QCOMPARE(info->interval.from_ms, kStart + 60'000);  // The whole minute.
    QCOMPARE(info->interval.to_ms, kStart + 200'000);
    QCOMPARE(info->ticks, 141);
    QCOMPARE(Describe(**(*part)->At(kStart + 150'000)), Describe(SnapshotAt(150)));
    QCOMPARE((*part)->Series("jobs/running", {kStart + 60'000, kStart + 200'000}, 14)->size(),
             std::size_t{14});
    QCOMPARE(QDir(folder_->path()).entryList(QDir::Files).size(), 2);
  }

 private:
  std::unique_ptr<Recorder> Open(Limits limits = {}) {
    if (limits.keep_free_bytes == Limits().keep_free_bytes) limits.keep_free_bytes = 0;
    auto recorder = Recorder::Open(path_, limits);
    if (!recorder.ok()) qFatal("%s", base::Message(recorder.status()).c_str());
    return *std::move(recorder);
  }
  void RecordTicks(int from, int to) {
    auto recorder = Open();
    for (int tick = from; tick < to; ++tick)
      QVERIFY(recorder->Record(SnapshotAt(tick), kLiveLink).ok());
  }

  std::unique_ptr<QTemporaryDir> folder_;
  std::string path_;
};

}  // namespace onepiece::gui::history

QTEST_GUILESS_MAIN(onepiece::gui::history::RecordingTest)
#include "recording_test.moc"
