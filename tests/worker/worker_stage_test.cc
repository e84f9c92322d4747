#include "stages/worker/worker_stage.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "cluster/base/status.h"
#include "stages/runtime/stage_runner.h"
#include "tests/devices.h"
#include "tests/eventually.h"
#include "tests/open_files.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::worker {

class WorkerStageTest : public QObject {
  Q_OBJECT

  using Artifacts = std::vector<message::Artifact>;
  const std::string core_ = testing::TwoDevices().first;

  struct Runner {
    explicit Runner(base::Duration stop_limit = std::chrono::seconds(30))
        : workers({.program = ONEPIECE_WORKER, .stop_limit = stop_limit}),
          stage(StageInWorkers(workers, {ONEPIECE_TEST_PLUGINS, "worker_moody_plugin", "moody"})) {}
    absl::Status Load(const std::string& device = "cpu", const std::string& model_dir = "") {
      return stage->Load({.device = device, .model_dir = model_dir});
    }
    /// As an instance runs a job.
    absl::StatusOr<Artifacts> Run(const std::string& mood, runtime::RunOptions options = {},
                                  Artifacts more = {}) {
      message::Message work;
      work.header.uid = base::Uid::GenerateRandom();
      work.header.stage = "moody";
      work.header.deadline = base::SystemClock().Now() + std::chrono::hours(1);
      work.parameters = {{"mood", mood}};
      work.artifacts = {message::BytesArtifact("in", "text/plain", "work")};
      work.artifacts.insert(work.artifacts.end(), more.begin(), more.end());
      options.saved = &saved;
      return runtime::RunStage(*stage, work, options);
    }
    std::string Text(const std::string& mood) {
      const auto outputs = Run(mood);
      return outputs.ok() ? std::string(outputs->front().data.text()) : outputs.status().ToString();
    }
    /// The process, which lives as long as the caller holds it.
    pid_t Pid(const std::string& device = "cpu") { return (*workers.Get(device))->pid(); }

    Workers workers;
    Artifacts saved;
    std::unique_ptr<sdk::Stage> stage;
  };

 private Q_SLOTS:
  void AStage_RunsInItsProcess() {
    Runner runner;
    QVERIFY2(runner.Load().ok(), runner.Load().ToString().c_str());
    QCOMPARE(runner.stage->Info().name, std::string("moody"));
    QCOMPARE(runner.stage->Info().inputs, std::vector<std::string>{"in"});
    const std::string by = "work on cpu by " + std::to_string(runner.Pid());
    std::vector<int> steps;
    const auto outputs = runner.Run("calm", {.progress = [&](int step, int of) {
                                      QCOMPARE(of, 3);
                                      steps.push_back(step);
                                    }});
    QVERIFY2(outputs.ok(), outputs.status().ToString().c_str());
    QCOMPARE(outputs->front().data.text(), std::string_view(by));
    QCOMPARE(steps, (std::vector{1, 2, 3}));
    QCOMPARE(runner.Text("calm"), by);
    QCOMPARE(runner.stage->Metrics().front().name, std::string("runs_total"));
    QCOMPARE(runner.stage->Metrics().front().value, 2.0);
  }

  void OneDevice_OneProcess_AndStagesOfTheirOwn() {
    Runner runner;
    QVERIFY(runner.Load().ok());
    const auto other =
        StageInWorkers(runner.workers, {ONEPIECE_TEST_PLUGINS, "worker_moody_plugin", "moody"});
    QVERIFY(other->Load({.device = "cpu", .model_dir = "b"}).ok());
    const pid_t pid = runner.Pid();
    runner.stage->Unload();
    QCOMPARE(runner.Pid(), pid);
    QCOMPARE(runner.Load(core_), absl::OkStatus());
    QVERIFY(runner.Pid(core_) != pid);
    QVERIFY(runner.Text("calm").starts_with("work on cpu by "));
  }

  void Errors_OfTheStage_ComeAsTheyAre() {
    Runner runner;
    const absl::Status loaded = runner.Load("cpu", "missing");
    QCOMPARE(Reason(loaded), std::string("NO_MODEL"));
    QCOMPARE(base::GetReason(loaded).metadata.at("model"), std::string("missing"));
    QCOMPARE(loaded.code(), absl::StatusCode::kNotFound);
    QVERIFY(runner.Load().ok());
    const auto thrown = runner.Run("throws");
    QCOMPARE(Reason(thrown.status()), std::string("STAGE_FAILED"));
    QVERIFY(base::Message(thrown.status()).find("no mood for it") != std::string::npos);
    QVERIFY(runner.Text("calm").starts_with("work on cpu"));
  }

  void BadDevices_AreNamed_data() {
    QTest::addColumn<QString>("device");
    QTest::newRow("nothing") << "";
    QTest::newRow("a word") << "gpu";
    QTest::newRow("no core") << "cpu:";
    QTest::newRow("a core that is not there") << "cpu:1000";
    QTest::newRow("more than a core") << "cpu:0x";
    QTest::newRow("cuda") << "cuda:-1";
  }
  void BadDevices_AreNamed() {
    QFETCH(QString, device);
    Runner runner;
    const absl::Status loaded = runner.Load(device.toStdString());
    QCOMPARE(Reason(loaded), std::string("BAD_DEVICE"));
    QVERIFY(base::Message(loaded).find("'" + device.toStdString() + "'") != std::string::npos);
  }

  void AProcessThatDies_IsAnAnswer_AndTheNextRunHasANewOne() {
    Runner runner;
    QVERIFY(runner.Load().ok());
    const pid_t first = runner.Pid();
    const auto died = runner.Run("dies");
    QCOMPARE(Reason(died.status()), std::string(runtime::kWorkerLost));
    QVERIFY2(base::Message(died.status()).find("cpu ended while it computed: signal 9") !=
                 std::string::npos,
             died.status().ToString().c_str());
    QVERIFY(runner.Text("calm").starts_with("work on cpu"));
    QVERIFY(runner.Pid() != first);
    QCOMPARE(Reason(runner.Load("cpu", "killer")), std::string(runtime::kWorkerLost));
  }

  void AProcessThatDies_IsReaped_WithItsSockets() {
    const std::size_t open = testing::OpenFiles();
    {
      Runner runner;
      QVERIFY(runner.Load().ok());
      const pid_t pid = runner.Pid();
      QCOMPARE(Reason(runner.Run("dies").status()), std::string(runtime::kWorkerLost));
      QCOMPARE(::kill(pid, 0), -1);
      QVERIFY(runner.Load().ok());
    }
    QCOMPARE(testing::OpenFiles(), open);
  }

  void AProcessThatStops_IsKilled_OnceNobodyWantsTheJob() {
    Runner runner(std::chrono::milliseconds(300));
    QVERIFY(runner.Load().ok());
    const pid_t pid = runner.Pid();
    std::atomic<bool> cancelled = false;
    const std::jthread canceller([&] {
      testing::Eventually([&] {
        std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
        std::string line;
        std::getline(stat, line);
        return line.find(") T ") != std::string::npos;
      });
      cancelled = true;
    });
    const auto stopped = runner.Run("stops", {.cancelled = [&] { return cancelled.load(); }});
    QCOMPARE(stopped.status().code(), absl::StatusCode::kCancelled);
    QCOMPARE(::kill(pid, 0), -1);
    QVERIFY(runner.Text("calm").starts_with("work on cpu"));
  }

  void ACancelledJob_EndsAtItsNextStep() {
    Runner runner;
    QVERIFY(runner.Load().ok());
    const pid_t pid = runner.Pid();
    int steps = 0;
    const auto cancelled = runner.Run("calm", {.cancelled = [&] { return ++steps > 2; }});
    QCOMPARE(cancelled.status().code(), absl::StatusCode::kCancelled);
    QCOMPARE(runner.Pid(), pid);
    QVERIFY(runner.Text("calm").starts_with("work on cpu"));
  }

  void WorkIsHandedOver_AndGoesOnElsewhere() {
    Runner runner, other;
    QVERIFY(runner.Load().ok() && other.Load(core_).ok());
    const auto ended = runner.Run("calm", {.hand_over = [](int step) { return step == 2; }});
    QCOMPARE(Reason(ended.status()), std::string(runtime::kHandedOver));
    QCOMPARE(runner.saved.size(), std::size_t{1});
    QCOMPARE(runner.saved[0].data.text(), std::string_view("2"));
    std::vector<int> steps;
    const auto outputs = other.Run(
        "calm", {.progress = [&](int step, int) { steps.push_back(step); }}, runner.saved);
    QVERIFY2(outputs.ok(), outputs.status().ToString().c_str());
    QCOMPARE(steps, std::vector{3});
    QVERIFY(runner.Text("calm").starts_with("work on cpu"));
  }

  void AWorker_EndsWithTheProcessThatStartedIt() {
    // A child of this one starts a worker, says which, and is killed. Nobody reaps its worker.
    std::array<int, 2> said{};
    QCOMPARE(::pipe(said.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const auto worker = WorkerProcess::Start(ONEPIECE_WORKER, *WorkerDevice::Parse("cpu"));
      const pid_t pid = worker.ok() ? (*worker)->pid() : -1;
      const bool told = ::write(said[1], &pid, sizeof pid) == sizeof pid;
      ::kill(told ? ::getpid() : 0, SIGKILL);
    }
    pid_t worker = -1;
    QCOMPARE(::read(said[0], &worker, sizeof worker), ssize_t{sizeof worker});
    QCOMPARE(::waitpid(child, nullptr, 0), child);
    QVERIFY(worker > 0);
    const std::string about = "/proc/" + std::to_string(worker) + "/stat";
    QVERIFY(testing::Eventually([&] {
      std::string line;
      std::ifstream stat(about);
      return !std::getline(stat, line) || line.find(") Z ") != std::string::npos;
    }));
    ::close(said[0]);
    ::close(said[1]);
  }

  void NoProgram_SaysWhich() {
    Workers workers({.program = "/nowhere/onepiece-worker"});
    const auto stage =
        StageInWorkers(workers, {ONEPIECE_TEST_PLUGINS, "worker_moody_plugin", "moody"});
    const absl::Status loaded = stage->Load({});
    QCOMPARE(Reason(loaded), std::string("CANNOT_START"));
    QVERIFY(base::Message(loaded).find("/nowhere/onepiece-worker") != std::string::npos);
  }
};

}  // namespace onepiece::worker

ONEPIECE_TEST(onepiece::worker::WorkerStageTest)
#include "worker_stage_test.moc"
