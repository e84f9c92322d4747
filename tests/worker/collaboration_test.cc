#include "stages/worker/collaboration.h"

#include <signal.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cluster/base/status.h"
#include "cluster/fabric/fabric.h"
#include "stages/runtime/stage_runner.h"
#include "stages/worker/worker_stage.h"
#include "tests/devices.h"
#include "tests/eventually.h"
#include "tests/open_files.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::worker {

class CollaborationTest : public QObject {
  Q_OBJECT

  using Artifacts = std::vector<message::Artifact>;
  static constexpr char kMemory[] = "onepiece-collaboration-test";
  const std::pair<std::string, std::string> devices_ = testing::TwoDevices();

  /// An instance whose devices compute jobs together.
  struct Team {
    explicit Team(base::Duration rank_timeout = std::chrono::seconds(30))
        : workers({.program = ONEPIECE_WORKER,
                   .shared_memory = kMemory,
                   .stop_limit = std::chrono::seconds(30),
                   .rank_timeout = rank_timeout}),
          stage(StageInWorkers(workers,
                               {ONEPIECE_TEST_PLUGINS, "worker_moody_plugin", "together"})) {}
    absl::Status Load(const std::string& devices) {
      return stage->Load({.device = devices, .plan = sdk::ParallelPlan{2, 1}});
    }
    absl::Status Load() {
      const auto [first, second] = testing::TwoDevices();
      return Load(first + "," + second);
    }
    absl::StatusOr<Artifacts> Run(const std::string& mood = "calm", std::int64_t rank = 0,
                                  runtime::RunOptions options = {}) {
      message::Message work;
      work.header.uid = base::Uid::GenerateRandom();
      work.header.stage = "together";
      work.header.deadline = base::SystemClock().Now() + std::chrono::hours(1);
      work.parameters = {{"mood", mood}, {"rank", rank}};
      work.artifacts = {message::BytesArtifact("in", "text/plain", "work")};
      options.saved = &saved;
      return runtime::RunStage(*stage, work, options);
    }
    std::string Text() {
      const auto outputs = Run();
      return outputs.ok() ? std::string(outputs->front().data.text()) : outputs.status().ToString();
    }
    pid_t Pid(const std::string& device) { return (*workers.Get(device))->pid(); }

    Workers workers;
    Artifacts saved;
    std::unique_ptr<sdk::Stage> stage;
  };

  static std::size_t Entries(const char* folder, std::string_view name) {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      count += entry.path().filename().string().find(name) != std::string::npos;
    return count;
  }

 private Q_SLOTS:
  void Workers_ComputeAJobTogether() {
    Team team;
    const absl::Status loaded = team.Load();
    QVERIFY2(loaded.ok(), loaded.ToString().c_str());
    std::vector<int> steps;
    const auto outputs = team.Run("calm", 0, {.progress = [&](int step, int of) {
                                    QCOMPARE(of, 3);
                                    steps.push_back(step);
                                  }});
    QVERIFY2(outputs.ok(), outputs.status().ToString().c_str());
    QCOMPARE(outputs->size(), std::size_t{1});
    QCOMPARE(outputs->front().data.text(), std::string_view("work 9 of 2 plan 2x1"));
    QCOMPARE(steps, (std::vector{1, 2, 3}));
    QCOMPARE(team.Text(), std::string("work 9 of 2 plan 2x1"));
  }

  void BadDevices_AreNamed() {
    Team team;
    QCOMPARE(Reason(team.Load(devices_.first + "," + devices_.first)), std::string("BAD_DEVICES"));
    QCOMPARE(Reason(team.Load(devices_.first + ",cpu:1000")), std::string("BAD_DEVICE"));
    QVERIFY(team.Load().ok());
  }

  void CudaDevices_AreRefused_BeforeAnyWorkerStarts() {
    Workers workers({.program = "/nowhere/onepiece-worker"});
    const auto stage = StageInWorkers(workers, {"", "wan", "diffusion"});
    for (const char* devices : {"cuda:0,cuda:1", "cpu,cuda:1"}) {
      const absl::Status loaded = stage->Load({.device = devices});
      QCOMPARE(Reason(loaded), std::string("NO_COLLECTIVES"));
      QVERIFY(base::Message(loaded).find("mode: individual") != std::string::npos);
    }
  }

  void ARankThatDies_IsNamed_AndTheNextJobIsServed_data() {
    QTest::addColumn<int>("rank");
    QTest::newRow("the first") << 0;
    QTest::newRow("another") << 1;
  }
  void ARankThatDies_IsNamed_AndTheNextJobIsServed() {
    QFETCH(int, rank);
    Team team;
    QVERIFY(team.Load().ok());
    const pid_t other = team.Pid(rank == 0 ? devices_.second : devices_.first);
    const auto died = team.Run("dies", rank);
    QCOMPARE(Reason(died.status()), std::string(runtime::kWorkerLost));
    QCOMPARE(sdk::FailedRank(died.status()), rank);
    QVERIFY2(base::Message(died.status()).find("signal 9") != std::string::npos,
             died.status().ToString().c_str());
    QCOMPARE(team.Text(), std::string("work 9 of 2 plan 2x1"));
    QCOMPARE(team.Pid(rank == 0 ? devices_.second : devices_.first),
             other);  // The other one goes on.
  }

  void AWorkerThatDiedMeanwhile_CostsNoJob() {
    Team team;
    QVERIFY(team.Load().ok());
    const pid_t first = team.Pid(devices_.first);
    const auto other = *team.workers.Get(devices_.second);
    ::kill(other->pid(), SIGKILL);
    QVERIFY(testing::Eventually([&] { return !other->alive(); }));
    QCOMPARE(team.Text(), std::string("work 9 of 2 plan 2x1"));
    QCOMPARE(team.Pid(devices_.first), first);
  }

  void ARankThatStops_IsNamedAndKilled_AndTheNextJobIsServed_data() {
    QTest::addColumn<int>("rank");
    QTest::newRow("the first") << 0;
    QTest::newRow("another") << 1;
  }
  void ARankThatStops_IsNamedAndKilled_AndTheNextJobIsServed() {
    QFETCH(int, rank);
    Team team(std::chrono::seconds(2));
    QVERIFY(team.Load().ok());
    const pid_t stopped = team.Pid(rank == 0 ? devices_.first : devices_.second);
    const auto run = team.Run("stops", rank);
    QCOMPARE(Reason(run.status()), std::string(runtime::kWorkerLost));
    QCOMPARE(sdk::FailedRank(run.status()), rank);
    QCOMPARE(::kill(stopped, 0), -1);
    QCOMPARE(team.Text(), std::string("work 9 of 2 plan 2x1"));
  }

  void ARankThatFails_SaysWhy_NotWhoWaitedForIt_data() {
    QTest::addColumn<QString>("mood");
    QTest::addColumn<int>("rank");
    QTest::addColumn<QString>("reason");
    QTest::newRow("an error of the first") << "fails" << 0 << "NO_MEMORY";
    QTest::newRow("an error of another") << "fails" << 1 << "NO_MEMORY";
    QTest::newRow("an exception of another") << "throws" << 1 << "STAGE_FAILED";
  }
  void ARankThatFails_SaysWhy_NotWhoWaitedForIt() {
    QFETCH(QString, mood);
    QFETCH(int, rank);
    QFETCH(QString, reason);
    Team team(std::chrono::seconds(2));
    QVERIFY(team.Load().ok());
    const pid_t first = team.Pid(devices_.first);
    const auto failed = team.Run(mood.toStdString(), rank);
    QCOMPARE(Reason(failed.status()), reason.toStdString());
    QCOMPARE(team.Text(), std::string("work 9 of 2 plan 2x1"));
    QCOMPARE(team.Pid(devices_.first), first);
  }

  void ACancelledJob_EndsOnAllRanks() {
    Team team;
    QVERIFY(team.Load().ok());
    int looks = 0;
    const auto cancelled = team.Run("calm", 0, {.cancelled = [&] { return ++looks > 2; }});
    QCOMPARE(cancelled.status().code(), absl::StatusCode::kCancelled);
    QCOMPARE(team.Text(), std::string("work 9 of 2 plan 2x1"));
  }

  void WorkIsHandedOver_WithTheFirstRanksState() {
    Team team;
    QVERIFY(team.Load().ok());
    const auto ended = team.Run("calm", 0, {.hand_over = [](int step) { return step == 2; }});
    QCOMPARE(Reason(ended.status()), std::string(runtime::kHandedOver));
    QCOMPARE(team.saved.size(), std::size_t{1});
    QCOMPARE(team.saved[0].data.text(), std::string_view("6"));
    QCOMPARE(team.Text(), std::string("work 9 of 2 plan 2x1"));
  }

  void NothingIsLeft() {
    const std::size_t files = testing::OpenFiles();
    {
      Team team(std::chrono::seconds(2));
      QVERIFY(team.Load().ok());
      for (const char* mood : {"dies", "stops", "fails", "calm"}) (void)team.Run(mood, 1);
      QVERIFY(team.Run().ok());
    }
    QCOMPARE(testing::OpenFiles(), files);
    QCOMPARE(Entries("/dev/shm", kMemory), std::size_t{0});
    QCOMPARE(Entries(std::filesystem::temp_directory_path().c_str(), "onepiece-workers-"),
             std::size_t{0});
  }
};

}  // namespace onepiece::worker

ONEPIECE_TEST(onepiece::worker::CollaborationTest)
#include "collaboration_test.moc"
