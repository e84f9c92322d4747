// Tests what a recording gives back, and how it treats clocks that jump.
#include "cluster/history/recording.h"

#include <QTemporaryDir>
#include <QtTest>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <thread>

#include "absl/strings/match.h"
#include "cluster/base/status.h"
#include "cluster/history/pieces.h"
#include "cluster/history/recorder.h"
#include "tests/history/recordings.h"
#include "tests/test_main.h"

namespace onepiece::history {
namespace {

namespace fs = std::filesystem;

}  // namespace

class RecordingTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    folder_ = std::make_unique<QTemporaryDir>();
    path_ = folder_->filePath("a.onepiece").toStdString();
  }

  void EveryTick_ComesBackAsItWas() {
    std::vector<session::Snapshot> live;
    {
      auto recorder = Open();
      for (int tick = 0; tick < 200; ++tick) {
        session::Snapshot snapshot = SnapshotAt(tick, tick < 90 ? 3 : 4);  // A node joins.
        if (tick > 140) {  // One job has ended, another has come, and the oldest is forgotten.
          session::JobList jobs;
          jobs.jobs.push_back({JobAt(7, v1::Job::RUNNING, 1), session::Certainty::kKnown});
          jobs.jobs.push_back({JobAt(1, v1::Job::FAILED, 50), session::Certainty::kKnown});
          snapshot.jobs = PartOf(jobs, snapshot.at_ms);
        }
        if (tick == 150) snapshot.plans = {nullptr, 0, "no leader"};
        QVERIFY(recorder->Record(snapshot, kLiveLink).ok());
        live.push_back(snapshot);
      }
      // These reads happen while the file is being written.
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

  // A job whose end nobody saw must not look as if it ran for ever.
  void JobsAtTheEnd_AreUnknown() {
    RecordTicks(0, 5);
    auto reader = Recording::Open(path_);
    const auto last = *(*reader)->At(kStart + 4'000);
    QCOMPARE(last->jobs.value->jobs[0].certainty, session::Certainty::kUnknownAtEnd);
    QCOMPARE(last->jobs.value->jobs[1].certainty, session::Certainty::kUnknownAtEnd);
    QCOMPARE(last->jobs.value->jobs[2].certainty, session::Certainty::kKnown);  // It has ended.
    QCOMPARE((*(*reader)->At(kStart + 3'999))->jobs.value->jobs[1].certainty,
             session::Certainty::kKnown);
  }

  void Integers_ThatADoubleCannotHold_StayWhole() {
    session::Snapshot snapshot = SnapshotAt(0);
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
    // utilization is 0.5 + 0.001 × tick. The rows read ticks and windows of 10 s, 60 s and 600 s,
    // over the first 20 minutes and beyond the windows that have ended.
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
      QVERIFY(recorder->Record(SnapshotAt(0), LinkOf(session::Link::kConnecting)).ok());
      for (int tick = 1; tick < 20; ++tick) {
        const bool lost = tick >= 10 && tick < 13;
        QVERIFY(
            recorder
                ->Record(SnapshotAt(tick),
                         lost ? LinkOf(session::Link::kReconnecting, "reset by peer") : kLiveLink)
                .ok());
      }
      QVERIFY(
          recorder->Record(SnapshotAt(200), kLiveLink).ok());  // The computer slept before this.
    }
    {
      auto recorder = Open();  // It hears nothing at first.
      QVERIFY(recorder->Record(SnapshotAt(299), LinkOf(session::Link::kConnecting)).ok());
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
      QCOMPARE(Reason(recorder->Record(session::Snapshot(), kLiveLink)), QString("NOT_LIVE"));
    }
    auto reader = Recording::Open(path_);
    QCOMPARE((*reader)->Info()->ticks, 6);  // One snapshot had the same time as before.
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
      session::Snapshot one = SnapshotAt(0), two = SnapshotAt(1);
      QVERIFY(recorder->Record(one, kLiveLink).ok());
      v1::Cluster cluster = ClusterAt(4, 1);
      cluster.mutable_nodes(0)->set_state(v1::Node::DEAD);
      cluster.mutable_nodes(1)->mutable_placement()->set_pool("vae/wan/tiny");
      two.cluster = PartOf(cluster, 1);
      v1::ListPlansResponse plans = *one.plans.value;
      plans.mutable_plans(0)->set_state(v1::Plan::DONE);
      two.plans = PartOf(plans, 1);
      two.alerts = PartOf(session::Alerts{}, 1);
      session::JobList jobs = *one.jobs.value;
      jobs.jobs[1].job = JobAt(1, v1::Job::FAILED);
      // This job failed long ago, which is no news.
      jobs.jobs.push_back({JobAt(-900, v1::Job::FAILED), session::Certainty::kKnown});
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
    session::Snapshot snapshot = SnapshotAt(0);
    v1::Cluster cluster = *snapshot.cluster.value;
    const std::string names[] = {std::string(10'000, 'n'), "a/b#2", "", "\xE2\x98\xA0 '; DROP"};
    for (const std::string& name : names) {
      *cluster.add_nodes() = InstanceAt(1, 5);
      cluster.mutable_nodes(cluster.nodes_size() - 1)->set_node_id(name);
    }
    // These are two entries with the same key.
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
    session::Snapshot snapshot = SnapshotAt(0);
    session::JobList jobs;
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
      session::Snapshot nothing;
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
    session::Snapshot other = SnapshotAt(1);
    v1::Cluster cluster = *other.cluster.value;
    cluster.set_cluster_id("marines");
    other.cluster = PartOf(cluster, 1);
    QCOMPARE(Reason(recorder->Record(other, kLiveLink)), QString("OTHER_CLUSTER"));
    recorder.reset();
    recorder = Open();
    QCOMPARE(Reason(recorder->Record(other, kLiveLink)), QString("OTHER_CLUSTER"));
    QVERIFY(recorder->Record(SnapshotAt(2), kLiveLink).ok());
  }

  void Reading_IsDoneByAnyThread() {
    RecordTicks(0, 130);
    const auto reader = *Recording::Open(path_);
    const Interval all{kStart, kStart + 130'000};
    std::atomic<int> wrong = 0;
    {
      std::vector<std::jthread> threads;
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) {
          const auto points = reader->Series("node/instance-0/utilization", all, 130);
          if (!points.ok() || (*points)[7].mean != 0.5 + 0.001 * 7) ++wrong;
        }
      });
      threads.emplace_back([&] {
        for (int i = 0; i < 50; ++i) {
          if (!reader->Marks(all).ok() || !reader->Gaps(all)->empty()) ++wrong;
        }
      });
      threads.emplace_back([&] {
        if (!reader->Export(all, path_ + ".copy").ok()) ++wrong;
      });
      for (int thread = 0; thread < 2; ++thread) {
        threads.emplace_back([&, thread] {
          for (int tick = thread; tick < 129; tick += 3) {
            const auto past = reader->At(kStart + 1000 * tick);
            if (!past.ok() || Describe(**past) != Describe(SnapshotAt(tick))) ++wrong;
          }
        });
      }
    }
    QCOMPARE(wrong.load(), 0);
    QCOMPARE((*Recording::Open(path_ + ".copy"))->Info()->ticks, 130);
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
    QCOMPARE(info->interval.from_ms, kStart + 60'000);  // The first minute comes as a whole.
    QCOMPARE(info->interval.to_ms, kStart + 200'000);
    QCOMPARE(info->ticks, 141);
    QCOMPARE(Describe(**(*part)->At(kStart + 150'000)), Describe(SnapshotAt(150)));
    QCOMPARE((*part)->Series("jobs/running", {kStart + 60'000, kStart + 200'000}, 14)->size(),
             std::size_t{14});
    QCOMPARE(QDir(folder_->path()).entryList(QDir::Files).size(), 2);
  }

 private:
  std::unique_ptr<Recorder> Open(const Limits& limits = {}) { return OpenRecorder(path_, limits); }
  void RecordTicks(int from, int to) {
    auto recorder = Open();
    for (int tick = from; tick < to; ++tick)
      QVERIFY(recorder->Record(SnapshotAt(tick), kLiveLink).ok());
  }

  std::unique_ptr<QTemporaryDir> folder_;
  std::string path_;
};

}  // namespace onepiece::history

ONEPIECE_TEST(onepiece::history::RecordingTest)
#include "recording_test.moc"
