#include "stages/runtime/task_manager.h"

#include <QtTest>
#include <algorithm>
#include <future>
#include <map>
#include <stdexcept>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "stages/runtime/fused_workflow.h"
#include "tests/runtime/tasks_fixture.h"
#include "tests/test_main.h"

namespace onepiece::runtime {
class TaskManagerTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Assign_LoadsServesAndUnloads() {
    TasksFixture f;
    f.manager.Assign(Echo());
    QVERIFY(f.WaitFor(TaskState::kServing));
    (void)f.scheduler.Push(f.Item());
    const FinishedWork work = f.events.Next();
    QVERIFY(work.outputs.ok());
    QCOMPARE(std::string(work.outputs->at(0).data.text()), std::string("hi!"));
    f.manager.Assign({});
    QVERIFY(f.WaitFor(TaskState::kIdle));
    QCOMPARE(f.script.loads.load(), 1);
    QCOMPARE(f.script.unloads.load(), 1);
  }

  void Assign_SameAgainChangesNothing() {
    TasksFixture f;
    f.manager.Assign(Echo());
    QVERIFY(f.WaitFor(TaskState::kServing));
    f.manager.Assign(Echo());
    QCOMPARE(f.script.loads.load(), 1);
  }

  void Assign_ReportsWhyLoadingFailed_data() {
    QTest::addColumn<QString>("plugin");
    QTest::addColumn<QString>("message");
    QTest::newRow("no such plug-in") << "missing"
                                     << "application app: no plug-in 'missing'";
    QTest::newRow("weights do not fit") << "p"
                                        << "application app: bad weights";
  }
  void Assign_ReportsWhyLoadingFailed() {
    QFETCH(QString, plugin);
    QFETCH(QString, message);
    TasksFixture f;
    f.script.load = [](const auto&) { return absl::InvalidArgumentError("bad weights"); };
    f.manager.Assign(Echo(plugin.toStdString()));
    QVERIFY(f.WaitFor(TaskState::kFailed));
    QCOMPARE(base::Message(f.States().back().error), message.toStdString());
  }

  void Assign_FailedLoad_IsTriedAgainLaterAndLater() {
    TasksFixture f;
    std::atomic<bool> good = false;
    f.script.load = [&](const auto&) {
      return good ? absl::OkStatus() : absl::UnavailableError("no such disk");
    };
    f.manager.Assign(Echo());
    QVERIFY(f.WaitFor(TaskState::kFailed));
    const auto again = [&](base::Duration later) {
      f.clock.Advance(base::Scaled(later));
      f.manager.RetryFailed();
    };
    again(std::chrono::milliseconds(999));
    QCOMPARE(f.script.loads.load(), 1);
    again(std::chrono::milliseconds(1));
    QTRY_COMPARE(f.Reports(), std::size_t{3});  // Loading, failed, failed: never serving between.
    QVERIFY(f.manager.status().state == TaskState::kFailed);
    QCOMPARE(f.script.loads.load(), 2);
    again(std::chrono::milliseconds(1999));
    QCOMPARE(f.script.loads.load(), 2);
    good = true;
    again(std::chrono::milliseconds(1));
    QVERIFY(f.WaitFor(TaskState::kServing));
    again(std::chrono::hours(1));
    QCOMPARE(f.script.loads.load(), 3);
  }

  void Assign_BackToAnEarlierStage_NeedsNoLoad() {
    TasksFixture f(250);
    const auto serve = [&](const std::string& model, std::uint64_t epoch) {
      StageAssignment next = Pool(epoch, {{"app", model}});
      next.load.threads = epoch % 2 == 1 ? 1 : 2;  // Another role: all workers end.
      f.manager.Assign(next);
      return f.WaitFor(TaskState::kServing, epoch);
    };
    QVERIFY(serve("a", 1));
    QVERIFY(serve("b", 2));
    QCOMPARE(f.manager.parked().parked_bytes, std::int64_t{100});
    QVERIFY(serve("a", 3));
    QCOMPARE(f.script.loads.load(), 2);
    QCOMPARE(f.script.unloads.load(), 0);
    QCOMPARE(f.manager.parked().hits, std::uint64_t{1});
    (void)f.scheduler.Push(f.Item());
    QCOMPARE(TextOf(f.events.Next()), std::string("hi!a"));
    // When the budget is full, the least recently used model is evicted.
    QVERIFY(serve("c", 4));
    QVERIFY(serve("d", 5));
    QCOMPARE(f.script.unloads.load(), 1);
    QCOMPARE(f.manager.parked().parked_bytes, std::int64_t{200});
    f.manager.DropParked();
    QCOMPARE(f.script.unloads.load(), 3);
    QCOMPARE(f.manager.parked().parked_bytes, std::int64_t{0});
  }

  // The folder holds the weights of other stages too, and two workers share what they load of it.
  void Parked_WeightsOfTheProcessCountOnce() {
    const QTemporaryDir folder;
    WriteFile(folder, std::string(1000, 'x'));
    TasksFixture f(250);
    f.script.process_weights = 100;
    StageAssignment wan = Pool(1, {{"app", folder.path().toStdString()}});
    wan.workers = 2;
    f.manager.Assign(wan);
    QVERIFY(f.WaitFor(TaskState::kServing, 1));
    f.manager.Assign({});
    QCOMPARE(f.manager.parked().parked, std::size_t{2});
    QCOMPARE(f.manager.parked().parked_bytes, std::int64_t{100});
  }

  // Each plug-in has weights of its own, even if both have parked as many bytes.
  void Parked_PluginsShareNoWeights() {
    const QTemporaryDir folder;
    WriteFile(folder, std::string(1000, 'x'));
    TasksFixture f(250);
    f.script.process_weights = 100;
    for (const std::uint64_t epoch : {1, 2}) {
      StageAssignment next = Pool(epoch, {{"app", folder.path().toStdString()}});
      next.plugin = epoch == 1 ? "wan" : "another";
      f.manager.Assign(next);
      QVERIFY(f.WaitFor(TaskState::kServing, epoch));
      f.manager.Assign({});
    }
    QCOMPARE(f.manager.parked().parked_bytes, std::int64_t{200});
  }

  void Assign_FilesReplacedMeanwhile_LoadsThem() {
    const QTemporaryDir folder;
    WriteFile(folder, "old");
    TasksFixture f(250);
    const StageAssignment first = Pool(1, {{"app", folder.path().toStdString()}});
    f.manager.Assign(first);
    QVERIFY(f.WaitFor(TaskState::kServing, 1));
    f.manager.Assign({});
    QCOMPARE(f.manager.parked().parked, std::size_t{1});
    WriteFile(folder, "newer");
    f.manager.Assign(first);
    QVERIFY(f.WaitFor(TaskState::kServing, 1));
    QCOMPARE(f.script.loads.load(), 2);
    QCOMPARE(f.script.unloads.load(), 1);
    QCOMPARE(f.manager.parked().hits, std::uint64_t{0});
    // The files were replaced while the model was served, so it is not kept.
    WriteFile(folder, "newest");
    f.manager.Assign({});
    QCOMPARE(f.manager.parked().parked, std::size_t{0});
  }

  void Run_NoMemory_ParkedModelsMakeRoom() {
    TasksFixture f(1000);
    f.manager.Assign(Pool(1, {{"app", "a"}}));
    QVERIFY(f.WaitFor(TaskState::kServing, 1));
    f.manager.Assign(Pool(2, {{"app", "b"}}));
    QVERIFY(f.WaitFor(TaskState::kServing, 2));
    QCOMPARE(f.manager.parked().parked, std::size_t{1});
    std::atomic<int> runs = 0;
    f.script.run = [&](sdk::StageContext&) -> absl::StatusOr<std::vector<message::Artifact>> {
      if (++runs == 1 || f.script.unloads == 0) return absl::ResourceExhaustedError("memory");
      return std::vector{message::BytesArtifact("out", "", "done")};
    };
    (void)f.scheduler.Push(f.Item());
    QCOMPARE(TextOf(f.events.Next()), std::string("done"));
    QCOMPARE(runs.load(), 2);
    QCOMPARE(f.manager.parked().parked, std::size_t{0});
  }

  void Assign_WhileAJobIsComputed_CountsItUntilItEnds() {
    TasksFixture f;
    std::promise<void> began, go_on;
    f.script.run = [&](sdk::StageContext&) -> absl::StatusOr<std::vector<message::Artifact>> {
      f.clock.Advance(std::chrono::seconds(3));
      began.set_value();
      go_on.get_future().wait();
      return absl::InternalError("enough");
    };
    f.manager.Assign(Echo());
    QVERIFY(f.WaitFor(TaskState::kServing));
    (void)f.scheduler.Push(f.Item());
    began.get_future().wait();
    auto other = std::async(std::launch::async, [&] { f.manager.Assign({}); });
    // Assign waits for the job, so the job is running whenever the test looks.
    int there = 0;
    for (int looks = 0; looks < 100; ++looks) {
      (void)other.wait_for(std::chrono::milliseconds(1));
      there += f.manager.running().size() == 1 && f.scheduler.held() == 1 &&
               f.manager.busy() == std::chrono::seconds(3);
    }
    go_on.set_value();
    other.wait();
    QCOMPARE(there, 100);
    QVERIFY(f.manager.running().empty());
    QVERIFY(f.manager.busy() == std::chrono::seconds(3));
    QCOMPARE(f.scheduler.held(), std::size_t{0});
  }

  void Assign_NoMemory_ParkedModelsMakeRoom() {
    TasksFixture f(1000);
    std::atomic<int> refusals = 1;
    f.script.load = [&](const sdk::LoadOptions& options) {
      const bool refused = options.model_dir == "b" && refusals-- > 0;
      return refused ? absl::ResourceExhaustedError("memory") : absl::OkStatus();
    };
    f.manager.Assign(Pool(1, {{"app", "a"}}));
    QVERIFY(f.WaitFor(TaskState::kServing, 1));
    f.manager.Assign(Pool(2, {{"app", "b"}}));
    QVERIFY(f.WaitFor(TaskState::kServing, 2));
    QCOMPARE(f.script.unloads.load(), 1);  // The parked model.
    QCOMPARE(f.manager.parked().parked, std::size_t{0});
  }

  void NoProgress_IsTheTimeSinceTheLastStep() {
    TasksFixture f;
    std::promise<void> stepped, go_on;
    f.script.run =
        [&](sdk::StageContext& context) -> absl::StatusOr<std::vector<message::Artifact>> {
      f.clock.Advance(std::chrono::seconds(5));
      ONEPIECE_RETURN_IF_ERROR(context.Progress(1, 2));
      stepped.set_value();
      go_on.get_future().wait();
      return absl::InternalError("enough");
    };
    f.manager.Assign(Echo());
    QVERIFY(f.manager.no_progress() == base::Duration::zero());
    (void)f.scheduler.Push(f.Item());
    stepped.get_future().wait();
    QVERIFY(f.manager.no_progress() == base::Duration::zero());
    f.clock.Advance(std::chrono::seconds(7));
    QVERIFY(f.manager.no_progress() == std::chrono::seconds(7));
    go_on.set_value();
    (void)f.events.Next();
    QVERIFY(f.manager.no_progress() == base::Duration::zero());
    QTRY_COMPARE(f.scheduler.held(), std::size_t{0});
  }

  void Run_StopsAtAStepBoundaryWhenCancelled() {
    TasksFixture f;
    std::promise<void> first_step;
    std::promise<void> go_on;
    f.script.run =
        [&](sdk::StageContext& context) -> absl::StatusOr<std::vector<message::Artifact>> {
      ONEPIECE_RETURN_IF_ERROR(context.Progress(1, 3));
      first_step.set_value();
      go_on.get_future().wait();
      ONEPIECE_RETURN_IF_ERROR(context.Progress(2, 3));
      return absl::InternalError("went on");
    };
    f.manager.Assign(Echo());
    auto item = f.Item();
    const auto uid = item.message.header.uid;
    (void)f.scheduler.Push(std::move(item));
    first_step.get_future().wait();
    QVERIFY(f.manager.running() == std::vector{uid});
    f.scheduler.Cancel(uid);
    go_on.set_value();
    const FinishedWork work = f.events.Next();
    QVERIFY(absl::IsCancelled(work.outputs.status()));
    QCOMPARE(f.events.progress, (std::vector<std::pair<int, int>>{{1, 3}, {2, 3}}));
  }

  void Run_RefusesWorkPastItsDeadline() {
    TasksFixture f;
    auto item = f.Item();
    f.clock.Advance(std::chrono::seconds(61));
    f.manager.Assign(Echo());
    (void)f.scheduler.Push(std::move(item));
    QVERIFY(absl::IsDeadlineExceeded(f.events.Next().outputs.status()));
  }

  void Run_GivesBackWorkOfAnotherStage() {
    TasksFixture f;
    auto item = f.Item();
    item.message.header.stage = "other";
    (void)f.scheduler.Push(std::move(item));
    f.manager.Assign(Echo());
    const FinishedWork work = f.events.Next();
    QCOMPARE(base::GetReason(work.outputs.status()).reason, std::string(kWrongStage));
    QCOMPARE(f.events.started.load(), 0);
  }

  void Pool_ComputesEachApplicationWithItsModel() {
    TasksFixture f;
    f.manager.Assign(Pool(1, {{"one", "x"}, {"two", "y"}, {"three", "x"}}));
    QVERIFY(f.WaitFor(TaskState::kServing, 1));
    QCOMPARE(f.script.loads.load(), 2);  // One for each folder.
    for (const auto& [app, text] :
         {std::pair{"one", "hi!x"}, {"two", "hi!y"}, {"three", "hi!x"}, {"four", kWrongStage}}) {
      QVERIFY(f.scheduler.Push(f.Item(true, app)).ok());
      QCOMPARE(TextOf(f.events.Next()), std::string(text));
    }
    QVERIFY(f.manager.IsAssigned("echo", "two"));
    QVERIFY(!f.manager.IsAssigned("echo", "four"));
    QVERIFY(!f.manager.IsAssigned("other", "two"));
  }

  void Pool_ServesTheOthersWhileOneIsLoaded() {
    TasksFixture f;
    f.manager.Assign(Pool(1, {{"one", "x"}}));
    QVERIFY(f.WaitFor(TaskState::kServing, 1));
    std::promise<void> loading, open;
    f.script.load = [&](const sdk::LoadOptions&) {
      loading.set_value();
      open.get_future().wait();
      return absl::OkStatus();
    };
    f.manager.Assign(Pool(2, {{"one", "x"}, {"two", "y"}}));
    loading.get_future().wait();
    QVERIFY(f.scheduler.Push(f.Item(true, "one")).ok());
    QCOMPARE(TextOf(f.events.Next()), std::string("hi!x"));
    QVERIFY(f.scheduler.Push(f.Item(true, "two")).ok());  // Not here yet.
    QCOMPARE(TextOf(f.events.Next()), std::string(kWrongStage));
    QVERIFY(f.manager.status().state == TaskState::kServing);
    QCOMPARE(f.manager.status().epoch, std::uint64_t{1});
    open.set_value();
    QVERIFY(f.WaitFor(TaskState::kServing, 2));
    QCOMPARE(f.manager.status().apps, (std::vector<std::string>{"one", "two"}));
    QVERIFY(f.scheduler.Push(f.Item(true, "two")).ok());
    QCOMPARE(TextOf(f.events.Next()), std::string("hi!y"));
    QCOMPARE(f.script.unloads.load(), 0);
    f.script.load = nullptr;
    f.manager.Assign(Pool(3, {{"two", "y"}}));
    QVERIFY(f.WaitFor(TaskState::kServing, 3));
    QCOMPARE(f.script.unloads.load(), 1);
    QCOMPARE(f.script.loads.load(), 2);
  }

  void Pool_FinishesTheJobWhoseApplicationLeaves() {
    TasksFixture f;
    std::promise<void> inside, go_on;
    f.script.run = [&](sdk::StageContext&) -> absl::StatusOr<std::vector<message::Artifact>> {
      inside.set_value();
      go_on.get_future().wait();
      return std::vector{message::BytesArtifact("out", "", "done")};
    };
    f.manager.Assign(Pool(1, {{"one", "x"}, {"two", "y"}}));
    QVERIFY(f.scheduler.Push(f.Item(true, "one")).ok());
    inside.get_future().wait();
    f.manager.Assign(Pool(2, {{"two", "y"}}));
    QVERIFY(f.WaitFor(TaskState::kServing, 2));
    QCOMPARE(f.script.unloads.load(), 0);  // In use.
    go_on.set_value();
    QCOMPARE(TextOf(f.events.Next()), std::string("done"));
    QCOMPARE(f.script.unloads.load(), 1);
  }

  void Pool_OneModelThatFailsHarmsNoOther() {
    TasksFixture f;
    std::atomic<bool> broken = true;
    f.script.load = [&](const sdk::LoadOptions& options) {
      return options.model_dir == "y" && broken ? absl::NotFoundError("no y") : absl::OkStatus();
    };
    f.manager.Assign(Pool(1, {{"one", "x"}, {"two", "y"}}));
    QVERIFY(f.WaitFor(TaskState::kServing, 1));
    QCOMPARE(f.manager.status().apps, (std::vector<std::string>{"one"}));
    QCOMPARE(base::Message(f.manager.status().error), std::string("application two: no y"));
    QVERIFY(f.scheduler.Push(f.Item(true, "one")).ok());
    QCOMPARE(TextOf(f.events.Next()), std::string("hi!x"));
    broken = false;  // The same assignment again tries what had failed.
    f.manager.Assign(Pool(2, {{"one", "x"}, {"two", "y"}}));
    QVERIFY(f.WaitFor(TaskState::kServing, 2));
    QCOMPARE(f.manager.status().apps, (std::vector<std::string>{"one", "two"}));
    QCOMPARE(f.script.loads.load(), 3);
  }

  void Pool_ReplacedModelIsLoadedAnew() {
    TasksFixture f;
    f.manager.Assign(Pool(1, {{"one", "x"}}));
    QVERIFY(f.WaitFor(TaskState::kServing, 1));
    f.manager.Assign(Pool(2, {{"one", "z"}}));
    QVERIFY(f.WaitFor(TaskState::kServing, 2));
    QVERIFY(std::ranges::any_of(f.States(), [](const TaskStatus& status) {
      return status.state == TaskState::kLoading && status.epoch == 2;
    }));
    QVERIFY(f.scheduler.Push(f.Item(true, "one")).ok());
    QCOMPARE(TextOf(f.events.Next()), std::string("hi!z"));
  }

  void Load_GetsThePrecision() {
    TasksFixture f;
    std::promise<std::string> seen;
    f.script.load = [&](const sdk::LoadOptions& options) {
      seen.set_value(options.precision);
      return absl::OkStatus();
    };
    StageAssignment assignment = Echo();
    assignment.load.precision = "bf16";
    f.manager.Assign(assignment);
    QCOMPARE(seen.get_future().get(), std::string("bf16"));
  }

  void Metrics_AddUpWorkersAndCountTheProcessOnce() {
    TasksFixture f;
    const auto numbers = [&] {
      std::map<std::string, double> values;
      for (const auto& metric : f.manager.Metrics()) values[metric.name] = metric.value;
      return values;
    };
    QVERIFY(numbers().empty());
    f.script.process_hits = 5;
    f.manager.Assign(Echo("p", 2));
    QVERIFY(f.WaitFor(TaskState::kServing));
    for (int i = 0; i < 7; ++i) {
      (void)f.scheduler.Push(f.Item());
      QVERIFY(f.events.Next().outputs.ok());
    }
    QCOMPARE(numbers().at("runs_total"), 7.0);
    QCOMPARE(numbers().at("hits_total"), 5.0);
    // New workers start counting at zero, but the exported counter goes on.
    f.manager.Assign(Echo("p", 1));
    QVERIFY(f.WaitFor(TaskState::kServing));
    (void)f.scheduler.Push(f.Item());
    QVERIFY(f.events.Next().outputs.ok());
    QCOMPARE(numbers().at("runs_total"), 8.0);
  }

  // The counts of the models that stay must not count twice when another model goes.
  void Metrics_OfSeveralModels_GoOnWhenOneGoes() {
    TasksFixture f;
    const auto runs = [&] {
      double value = -1;
      for (const auto& metric : f.manager.Metrics())
        if (metric.name == "runs_total") value = metric.value;
      return value;
    };
    const auto run = [&](const std::string& app) {
      (void)f.scheduler.Push(f.Item(true, app));
      return f.events.Next().outputs.ok();
    };
    f.manager.Assign(Pool(1, {{"a", "m1"}, {"b", "m2"}}));
    QVERIFY(f.WaitFor(TaskState::kServing, 1));
    QVERIFY(run("a") && run("a") && run("a") && run("b") && run("b"));
    QCOMPARE(runs(), 5.0);
    f.manager.Assign(Pool(2, {{"a", "m1"}}));
    QVERIFY(f.WaitFor(TaskState::kServing, 2));
    QCOMPARE(runs(), 5.0);
    // What runs between two looks does not hide that a model went.
    f.manager.Assign(Pool(3, {{"a", "m1"}, {"b", "m2"}}));
    QVERIFY(f.WaitFor(TaskState::kServing, 3));
    QVERIFY(run("b"));
    QCOMPARE(runs(), 6.0);
    f.manager.Assign(Pool(4, {{"a", "m1"}}));
    QVERIFY(f.WaitFor(TaskState::kServing, 4));
    QVERIFY(run("a") && run("a"));
    QCOMPARE(runs(), 8.0);
  }

  void Metrics_OfAParkedModel_CountOnce() {
    TasksFixture f(/*parked_bytes=*/1000);
    const auto runs = [&] { return f.manager.Metrics().at(1).value; };
    const auto serve = [&](const std::string& plugin) {
      f.manager.Assign(Echo(plugin));
      return f.WaitFor(TaskState::kServing);
    };
    QVERIFY(serve("p"));
    (void)f.scheduler.Push(f.Item());
    QVERIFY(f.events.Next().outputs.ok());
    for (const char* plugin : {"p", "q", "p", "q", "p"}) {
      QVERIFY(serve(plugin));
      QCOMPARE(runs(), 1.0);
    }
    QVERIFY(f.manager.parked().hits > 0);
  }

  void Run_TurnsBadWorkIntoAStatus() {
    TasksFixture f;
    f.manager.Assign(Echo());
    (void)f.scheduler.Push(f.Item(/*with_input=*/false));
    QCOMPARE(base::GetReason(f.events.Next().outputs.status()).reason,
             std::string("MISSING_ARTIFACT"));
  }

  void Run_SurvivesAStageThatThrowsOrForgetsItsOutput() {
    TasksFixture f;
    f.script.run = [](sdk::StageContext&) -> absl::StatusOr<std::vector<message::Artifact>> {
      throw std::runtime_error("boom");
    };
    f.manager.Assign(Echo());
    (void)f.scheduler.Push(f.Item());
    QCOMPARE(base::GetReason(f.events.Next().outputs.status()).reason, std::string("STAGE_FAILED"));
    f.script.run = [](sdk::StageContext&) { return std::vector<message::Artifact>{}; };
    (void)f.scheduler.Push(f.Item());
    QCOMPARE(base::GetReason(f.events.Next().outputs.status()).reason,
             std::string("MISSING_ARTIFACT"));
  }

  void Workers_ShareTheQueue() {
    TasksFixture f;
    std::promise<void> both;
    std::atomic<int> inside = 0;
    const auto wait = both.get_future().share();
    f.script.run = [&, wait](sdk::StageContext&) -> absl::StatusOr<std::vector<message::Artifact>> {
      if (++inside == 2) both.set_value();
      if (wait.wait_for(kSoon) != std::future_status::ready) return absl::InternalError("alone");
      return std::vector{message::BytesArtifact("out", "", "x")};
    };
    f.manager.Assign(Echo("p", 2));
    QVERIFY(f.WaitFor(TaskState::kServing));
    (void)f.scheduler.Push(f.Item());
    (void)f.scheduler.Push(f.Item());
    QVERIFY(f.events.Next().outputs.ok());
    QVERIFY(f.events.Next().outputs.ok());
  }

  void FusedWorkflow_PassesOutputsOnAndReportsStages() {
    TasksFixture f;
    int calls = 0;
    f.script.run =
        [&](sdk::StageContext& context) -> absl::StatusOr<std::vector<message::Artifact>> {
      ONEPIECE_RETURN_IF_ERROR(context.Progress(1, 1));
      ++calls;
      return std::vector{message::BytesArtifact("out", "", "a"),
                         message::BytesArtifact("in", "", "b")};
    };
    auto stages = FusedWorkflow::Load({{Echo(), {}}}, f.Source());
    QVERIFY(stages.ok());
    const auto missing = stages->Run({}, {}, f.clock.Now() + std::chrono::hours(24 * 36500), {});
    QCOMPARE(base::GetReason(missing.status()).reason, std::string("MISSING_ARTIFACT"));
    QCOMPARE(calls, 0);
    const auto done = stages->Run({}, {message::BytesArtifact("in", "image/png", "pixels")},
                                  f.clock.Now() + std::chrono::hours(24 * 36500), {});
    QVERIFY2(done.ok(), done.status().ToString().c_str());
    QCOMPARE(calls, 1);
  }

  void FusedWorkflow_GivesEachStageWhatItsPredecessorsMade() {
    std::vector<std::string> seen;
    const TaskManager::StageSource source =
        [&](const std::string&,
            const std::string& name) -> absl::StatusOr<std::unique_ptr<sdk::Stage>> {
      return std::make_unique<ListingStage>(name, seen);
    };
    const auto plan = [](const std::string& name, std::vector<std::string> predecessors) {
      return FusedWorkflow::StagePlan{{.stage = name, .plugin = "p", .load = {}, .workers = 1},
                                      std::move(predecessors)};
    };
    const std::vector<FusedWorkflow::StagePlan> diamond = {plan("read", {}), plan("text", {"read"}),
                                                           plan("image", {"read"}),
                                                           plan("paint", {"text", "image"})};
    auto workflow = FusedWorkflow::Load(diamond, source);
    QVERIFY(workflow.ok());
    const auto far = base::SystemClock().Now() + std::chrono::hours(1);
    const auto result = workflow->Run({}, {}, far, {});
    QVERIFY2(result.ok(), base::Message(result.status()).c_str());
    QCOMPARE(seen,
             (std::vector<std::string>{"read:", "text: read", "image: read", "paint: text image"}));
    QCOMPARE(result->artifacts.size(), std::size_t{1});
    QCOMPARE(result->artifacts[0].name, std::string("paint"));
    QCOMPARE(result->times.size(), std::size_t{4});

    // Two predecessors bring the same artifact. No stage may guess which one was meant.
    auto clash = FusedWorkflow::Load(
        {plan("read", {}), plan("same", {"read"}), plan("paint", {"read", "same"})}, source);
    QCOMPARE(base::GetReason(clash->Run({}, {}, far, {}).status()).reason,
             std::string("ARTIFACT_TWICE"));
  }
};

}  // namespace onepiece::runtime

ONEPIECE_TEST(onepiece::runtime::TaskManagerTest)
#include "task_manager_test.moc"
